// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Random traffic between simulated hosts, for 200 seeds, each checked against a simple model. A seed that
// fails is run alone by LINKSPAN_SIM_SEED=N test-transport -tc="*200 seeds*".
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>

#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/sim_network.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan {
namespace {

constexpr int kSeeds = 200;
constexpr int kConnections = 8;
constexpr Duration kTraffic = std::chrono::milliseconds(60);

// What an end with this number sends at this position; the first bytes are the number.
std::byte byte_at(std::uint32_t number, std::uint64_t position) noexcept {
  if (position < 4) return static_cast<std::byte>(number >> (8 * position));
  return static_cast<std::byte>((position * 2654435761u + number * 40503u) >> 13);
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint64_t below(std::uint64_t bound) {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return (state_ >> 33) % bound;
  }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  Duration time(Duration longest) { return Duration(below(static_cast<std::uint64_t>(longest.count()) + 1)); }

 private:
  std::uint64_t state_;
};

/// One end of a connection, which does random things to its stream, and notices what must not be.
class End final : public StreamHandler {
 public:
  End(EventLoop& loop, Draw& draw, std::uint32_t number) : number_(number), loop_(loop), draw_(draw) {
    timer_.emplace(loop, [this] { act(); });
    timer_->start(Duration::zero());
  }

  Stream stream;

  /// No more traffic: what is open is closed.
  void finish() {
    acts_ = false;
    timer_.reset();
    if (stream) stream.close();
  }
  [[nodiscard]] bool over() const { return !stream; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] std::uint64_t received() const { return received_; }
  [[nodiscard]] std::uint64_t accepted() const { return progress_; }
  /// Of the other end; false: not enough was received to know.
  [[nodiscard]] bool knows_peer() const { return received_ >= 4; }
  [[nodiscard]] std::uint32_t peer() const { return peer_; }

  void check_over() const {
    CHECK(wrong_ == "");
    CHECK(closed_ == (dropped_ ? 0 : 1));
    CHECK(completed_ == issued_);
    CHECK(memory_back_ == memory_given_);
    if (dropped_) return;
    CHECK(progress_ + unsent_ == written_);
    CHECK(accepted_ == progress_);
  }

  void on_open() override { open_ = true; }
  void on_read(Chain&& data) override {
    if (data.empty()) wrong_ += " empty read;";
    for (const Slice& slice : data) take({slice.data(), slice.size()});
  }
  void on_end() override {
    if (std::exchange(ended_, true)) wrong_ += " two ends;";
  }
  void on_write_progress(std::size_t bytes) override { progress_ += bytes; }
  void on_closed(std::error_code, Chain&& unsent) override {
    ++closed_;
    unsent_ = unsent.size();
  }

 private:
  void take(std::span<const std::byte> bytes) {
    if (ended_ && !bytes.empty()) wrong_ += " data after the end;";
    for (const std::byte byte : bytes) {
      const std::uint64_t position = received_++;
      if (position < 4) {
        peer_ |= static_cast<std::uint32_t>(byte) << (8 * position);
      } else if (byte != byte_at(peer_, position) && wrong_.size() < 100) {
        wrong_ += " byte " + std::to_string(position) + ";";
      }
    }
  }

  void act() {
    if (!acts_ || !stream) return;
    timer_->start(draw_.time(std::chrono::milliseconds(6)));
    switch (draw_.below(12)) {
      case 0:
      case 1:
      case 2: write(1 + draw_.below(1000)); break;
      case 3: write(1 + draw_.below(40'000)); break;
      case 4: write(0); break;
      case 5: stream.flush(); break;
      case 6:
        if (!reads_) stream.start_read();
        reads_ = true;
        break;
      case 7:
        if (reads_) stream.pause_read();
        reads_ = false;
        break;
      case 8: receive_into(draw_.below(5000)); break;
      case 9:
        if (draw_.one_in(8)) {
          stream.shutdown_write();
          shut_down_ = true;
        }
        break;
      case 10:
        if (draw_.one_in(16)) {
          stream.close(draw_.time(std::chrono::milliseconds(50)));
          shut_down_ = true;
        }
        break;
      case 11:
        if (draw_.one_in(24)) {
          stream.abort();
        } else if (draw_.one_in(24)) {
          dropped_ = true;
          stream = Stream();
        }
        break;
      default: break;
    }
  }

  void write(std::size_t size) {
    std::string bytes(size, '\0');
    // What is refused is not sent, but handed back by nobody.
    const std::uint64_t begin = sent_;
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(byte_at(number_, begin + i));
    const std::size_t before = stream.queued_bytes();
    const int write = issued_++;
    stream.write(Chain(Slice::copy(bytes)), [this, write, size](std::error_code error, std::size_t accepted) {
      if (write != completed_) wrong_ += " completion out of order;";
      ++completed_;
      accepted_ += accepted;
      if (!error && accepted != size) wrong_ += " a part without an error;";
    });
    const std::size_t queued = stream.queued_bytes() - before;
    sent_ += queued;
    written_ += queued;
    if (queued != size && !shut_down_ && open_ && queued != 0) wrong_ += " a part was queued;";
  }

  void receive_into(std::size_t size) {
    Block memory = loop_.pool().allocate(std::max<std::size_t>(size, 1));
    if (!memory) return;
    ++memory_given_;
    stream.receive_into(std::move(memory), size,
                        [this, size](std::error_code error, Block&& block, std::size_t bytes) {
                          ++memory_back_;
                          if (!error && bytes != size) wrong_ += " a part of the memory without an error;";
                          take({block.data(), bytes});
                        });
  }

  const std::uint32_t number_;
  EventLoop& loop_;
  Draw& draw_;
  std::optional<Timer> timer_;
  bool acts_ = true;
  bool open_ = false;
  bool reads_ = false;
  bool shut_down_ = false;
  bool dropped_ = false;
  bool ended_ = false;
  int closed_ = 0;
  int issued_ = 0;
  int completed_ = 0;
  int memory_given_ = 0;
  int memory_back_ = 0;
  std::uint64_t sent_ = 0;      // positions given out
  std::uint64_t written_ = 0;   // that the stream took
  std::uint64_t accepted_ = 0;  // by completions
  std::uint64_t progress_ = 0;
  std::uint64_t unsent_ = 0;
  std::uint64_t received_ = 0;
  std::uint32_t peer_ = 0;
  std::string wrong_;
};

SimOptions options_for(std::uint64_t seed, Draw& draw) {
  SimOptions options;
  options.seed = seed;
  options.latency_max = std::chrono::microseconds(20 + draw.below(3000));
  options.short_sends = draw.one_in(2) ? 0.5 : 0;
  options.short_receives = draw.one_in(2) ? 0.5 : 0;
  options.send_buffer_bytes = 1 + draw.below(64 * 1024);
  options.receive_buffer_bytes = 1 + draw.below(64 * 1024);
  options.segment_bytes = 1000 + draw.below(16'000);
  options.refused_connects = draw.one_in(4) ? 0.2 : 0;
  options.resets = draw.one_in(4) ? 0.005 : 0;
  options.give_up = std::chrono::seconds(2);
  if (draw.one_in(3)) options.bytes_per_second = 1'000'000 + draw.below(10'000'000);
  return options;
}

/// Three hosts: the first listens, on TCP and at a unix path for itself.
class Run {
 public:
  explicit Run(std::uint64_t seed) : draw_(seed), network_(options_for(seed, draw_)) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      hosts_[i] = &network_.add_host("host" + std::to_string(i), {"10.0.0." + std::to_string(i + 1)});
      loops_[i] = hosts_[i]->make_loop().value_or_throw();
    }
  }

  /// The hash.
  std::uint64_t run() {
    Accept accept(*this);
    const std::array endpoints{Endpoint::parse("10.0.0.1:7000").value(),
                               Endpoint::parse("unix:/run/service").value()};
    std::array<Listener, 2> listeners;
    for (std::size_t i = 0; i < 2; ++i) {
      listeners[i] = Transport::of(*loops_[0]).listen(endpoints[i], {}, accept).value_or_throw();
    }
    for (int i = 0; i < kConnections; ++i) {
      const std::size_t host = draw_.below(hosts_.size());
      const bool is_unix = host == 0 && draw_.one_in(2);
      End& end = add_end(*loops_[host]);
      end.stream = Transport::of(*loops_[host]).connect(endpoints[is_unix ? 1 : 0], {}, end);
      clients_.push_back(&end);
    }
    const TimePoint end = network_.now() + kTraffic;
    while (network_.now() < end) {
      network_.run_for(draw_.time(std::chrono::milliseconds(10)));
      disturb();
    }
    settle();
    for (Listener& listener : listeners) listener.close();
    check();
    return network_.event_hash();
  }

 private:
  struct Accept final : ListenerHandler {
    explicit Accept(Run& owner) : run(owner) {}
    void on_accept(Socket socket) override {
      End& end = run.add_end(*run.loops_[0]);
      end.stream = Transport::of(*run.loops_[0]).open(std::move(socket), {}, end);
    }
    Run& run;
  };

  End& add_end(EventLoop& loop) {
    return ends_.emplace_back(loop, draw_, static_cast<std::uint32_t>(ends_.size()));
  }

  void disturb() {
    const SimHost& other = *hosts_[1 + draw_.below(2)];
    switch (draw_.below(8)) {
      case 0: network_.partition(*hosts_[0], other); break;
      case 1:
      case 2: network_.heal(*hosts_[0], other); break;
      case 3: {
        End& end = *clients_[draw_.below(clients_.size())];
        if (!end.over() && draw_.one_in(2))
          static_cast<void>(network_.reset(end.stream.local_endpoint(), end.stream.peer_endpoint()));
        break;
      }
      case 4: network_.refuse(*hosts_[0], draw_.one_in(2)); break;
      case 5:
        if (draw_.one_in(12)) kill(2);
        break;
      default: break;
    }
  }

  void kill(std::size_t host) {
    network_.kill(*hosts_[host]);
    killed_ = true;
  }

  void settle() {
    for (std::size_t i = 1; i < hosts_.size(); ++i) network_.heal(*hosts_[0], *hosts_[i]);
    for (End& end : ends_) end.finish();
    // Its loop stands still; ending it ends its streams.
    if (killed_) loops_[2].reset();
    const auto all_over = [&] {
      // Connections that were on their way come while the others end.
      for (End& end : ends_) end.finish();
      for (const End& end : ends_) {
        if (!end.over()) return false;
      }
      return true;
    };
    CHECK(network_.run_until(all_over, std::chrono::minutes(2)));
  }

  void check() {
    // Nothing is left to happen: no timer, nothing on its way.
    int steps = 0;
    while (network_.step() && steps < 100'000) ++steps;
    CHECK(steps < 100'000);
    CHECK(network_.sockets() == 0);
    for (const End& end : ends_) {
      CAPTURE(end.number());
      end.check_over();
      if (!end.knows_peer()) continue;
      REQUIRE(end.peer() < ends_.size());
      const End& peer = ends_[end.peer()];
      CHECK(end.received() <= peer.accepted());
      if (end.ended()) CHECK(end.received() == peer.accepted());
    }
    for (const std::unique_ptr<EventLoop>& loop : loops_) {
      if (loop == nullptr) continue;
      // A transport keeps at most one block of each receive class.
      std::uint64_t blocks = 0;
      for (const BlockClassStatistics& of_class : loop->pool().statistics().classes) {
        CHECK(of_class.live_blocks <= 1);
        blocks += of_class.live_blocks;
      }
      CHECK(blocks <= 3);
    }
  }

  Draw draw_;
  SimNetwork network_;
  std::array<SimHost*, 3> hosts_{};
  // Ends are told of their end while their loop goes; their timers go before it.
  std::array<std::unique_ptr<EventLoop>, 3> loops_;
  std::deque<End> ends_;
  std::vector<End*> clients_;
  bool killed_ = false;
};

}  // namespace

TEST_CASE("random traffic and faults on a simulated network, 200 seeds: every promise holds") {
  if (const char* alone = std::getenv("LINKSPAN_SIM_SEED")) {
    Run(std::strtoull(alone, nullptr, 10)).run();
    return;
  }
  for (int seed = 1; seed <= kSeeds; ++seed) {
    INFO("LINKSPAN_SIM_SEED=", seed, " runs this seed alone");
    Run(static_cast<std::uint64_t>(seed)).run();
  }
}

TEST_CASE("random traffic repeats itself event for event") {
  std::uint64_t before = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    const std::uint64_t hash = Run(seed).run();
    CHECK(Run(seed).run() == hash);
    CHECK(hash != std::exchange(before, hash));
  }
}

}  // namespace linkspan
