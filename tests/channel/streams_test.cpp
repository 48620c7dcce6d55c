// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Two channels and what may happen between them, on each transport and the simulated network: slow readers,
// pauses, ends and resets.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/loop/timer.hpp"
#include "tests/channel/own_loop.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

// What one side has heard, and its channel.
struct Side {
  ChannelRef ref;
  std::string received;
  int actives = 0;
  int ends = 0;
  int inactives = 0;
  std::error_code error;
  std::vector<bool> writable;
  std::function<void(std::string_view event)> during;

  [[nodiscard]] Channel& channel() const {
    REQUIRE(ref.here() != nullptr);
    return *ref.here();
  }
};

// Takes the peer's end: writing stays possible.
class Probe final : public Service<Chain> {
 public:
  explicit Probe(std::shared_ptr<Side> side) : side_(std::move(side)) {}
  void on_active() override {
    ++side_->actives;
    tell("active");
  }
  void on_read(Chain&& data) override {
    side_->received += data.to_string();
    tell("read");
  }
  void on_read_end() override { ++side_->ends; }
  void on_writable_changed(bool writable) override {
    side_->writable.push_back(writable);
    tell(writable ? "writable" : "not writable");
  }
  void on_inactive(std::error_code error) override {
    ++side_->inactives;
    side_->error = error;
  }

 private:
  void tell(std::string_view event) {
    if (side_->during) side_->during(event);
  }

  std::shared_ptr<Side> side_;  // the channel may outlive the test's body
};

struct Pair {
  EventLoop& loop;
  std::shared_ptr<Side> here = std::make_shared<Side>();
  std::shared_ptr<Side> there = std::make_shared<Side>();
  Server server;

  explicit Pair(EventLoop& loop_in, bool there_reads = true)
      : loop(loop_in), server(Server::start(loop, options(there_reads)).value_or_throw()) {
    const Client client(loop, [side = here](Channel& channel) {
      return channel.pipeline().append(std::make_unique<Probe>(side));
    });
    here->ref = client.connect(server.local_endpoint());
    run_until(loop, [&] { return here->actives == 1 && there->actives == 1; });
  }
  ~Pair() {
    here->ref.abort();
    there->ref.abort();
    settle(loop);
  }

  ServerOptions options(bool reads) {
    ServerOptions made;
    made.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
    made.channel.auto_read = reads;
    made.initializer = [side = there](Channel& channel) {
      side->ref = channel.ref();
      return channel.pipeline().append(std::make_unique<Probe>(side));
    };
    return made;
  }
};

std::string pattern(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 31 + i / 251) & 0xff);
  return text;
}

Chain chain_of(std::string text) {
  return Chain(Slice::adopt(std::move(text)));
}

}  // namespace

TEST_CASE("what a channel queues for a slow reader stays near the high watermark, told once a crossing") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop);
    const std::string content = pattern(std::size_t{6} << 20);
    constexpr std::size_t kPiece = 16 << 10;
    std::size_t written = 0;
    std::size_t most = 0;
    const auto write_on = [&] {
      Channel& channel = pair.here->channel();
      while (channel.writable() && written < content.size()) {
        channel.write(chain_of(content.substr(written, kPiece)));
        written += kPiece;
        most = std::max(most, channel.queued_bytes());
      }
    };
    // Writes again in the middle of a drain; the other side reads a little, and then not for a while.
    pair.here->during = [&](std::string_view event) {
      if (event == "writable") write_on();
    };
    Timer resume(loop, [&] { pair.there->channel().resume_read(); });
    pair.there->during = [&](std::string_view event) {
      if (event != "read") return;
      pair.there->channel().pause_read();
      resume.start(pair.there->received.size() % 3 == 0 ? std::chrono::milliseconds(1) : Duration::zero());
    };
    write_on();
    run_until(loop, [&] { return pair.there->received.size() == content.size(); });
    CHECK((pair.there->received == content));
    CHECK(most <= Watermarks().high_bytes + kPiece);
    run_until(loop, [&] { return pair.here->channel().queued_bytes() == 0; });
    settle(loop);
    const std::vector<bool>& told = pair.here->writable;
    REQUIRE(told.size() > 2);
    for (std::size_t i = 0; i < told.size(); ++i) CHECK(told[i] == (i % 2 == 1));
    CHECK(told.back());
    resume.cancel();
  });
}

TEST_CASE("what came before a peer's end is read when a paused channel resumes, and then the end, once") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop, false);
    const std::string content = pattern(100'000);
    pair.here->channel().write(chain_of(content));
    pair.here->channel().close();
    settle(loop);
    CHECK(pair.there->received.empty());
    CHECK(pair.there->ends == 0);
    CHECK(pair.there->inactives == 0);
    pair.there->channel().resume_read();
    run_until(loop, [&] { return pair.there->ends == 1; });
    CHECK((pair.there->received == content));
    pair.there->channel().close();
    run_until(loop, [&] { return pair.there->inactives == 1 && pair.here->inactives == 1; });
    CHECK_FALSE(pair.there->error);
    CHECK_FALSE(pair.here->error);
    settle(loop);
    CHECK(pair.there->ends == 1);
    CHECK(pair.there->inactives == 1);
  });
}

TEST_CASE(
    "a paused channel whose peer has ended its side goes on writing, and hears of the end when it reads") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop, false);
    pair.here->channel().shutdown_write();
    settle(loop);
    CHECK(pair.there->ends == 0);
    std::error_code sent = make_error_code(errc::timed_out);
    pair.there->channel().write(chain_of("answer"), [&](std::error_code error) { sent = error; });
    run_until(loop, [&] { return pair.here->received == "answer"; });
    CHECK(sent == std::error_code());
    CHECK(pair.there->ends == 0);
    pair.there->channel().resume_read();
    run_until(loop, [&] { return pair.there->ends == 1; });
    settle(loop);
    CHECK(pair.there->ends == 1);
    CHECK(pair.there->inactives == 0);
  });
}

TEST_CASE("a peer that ends and then resets closes a channel that nobody reads, once and as lost") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop, false);
    pair.here->channel().shutdown_write();
    settle(loop);
    CHECK(pair.there->inactives == 0);
    pair.here->channel().abort();
    run_until(loop, [&] { return pair.there->inactives == 1; });
    CHECK(pair.there->error == errc::connection_lost);
    settle(loop);
    CHECK(pair.there->inactives == 1);
    CHECK(pair.server.connections() == 0);
  });
}

TEST_CASE("memory that is used again when a channel has let it go changes nothing of what was sent") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop);
    constexpr std::size_t kSize = 32 << 10;
    const auto memory = std::make_unique<char[]>(kSize);
    std::string expected;
    int writes = 0;
    bool released = true;
    std::function<void(std::error_code)> write_next = [&](std::error_code error) {
      CHECK_FALSE(error);
      CHECK(released);
      const char fill = static_cast<char>('a' + writes % 26);
      std::memset(memory.get(), fill, kSize);
      if (++writes > 100) return;
      expected.append(kSize, fill);
      released = false;
      const std::span<const char> bytes(memory.get(), kSize);
      pair.here->channel().write(Chain(Slice::borrow(std::as_bytes(bytes), [&] { released = true; })),
                                 [&](std::error_code end) { write_next(end); });
    };
    write_next({});
    run_until(loop, [&] { return writes > 100 && pair.there->received.size() == expected.size(); });
    CHECK((pair.there->received == expected));
  });
}

TEST_CASE("empty writes and chains of thousands of slices arrive whole, and complete in order") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop);
    std::vector<int> ends;
    const auto end = [&](int number) {
      return [&ends, number](std::error_code error) {
        CHECK_FALSE(error);
        ends.push_back(number);
      };
    };
    const std::string content = pattern(15'000);
    Chain many;
    for (std::size_t at = 0; at < content.size(); at += 3) many.append(Slice::copy(content.substr(at, 3)));
    Channel& channel = pair.here->channel();
    channel.write(Chain(), end(0));
    channel.write(chain_of("a"), end(1));
    channel.write(Chain(Slice()), end(2));
    channel.write(std::move(many), end(3));
    channel.write(Chain(), end(4));
    CHECK(ends.empty());
    run_until(loop, [&] { return ends.size() == 5 && pair.there->received.size() == content.size() + 1; });
    CHECK(ends == std::vector<int>{0, 1, 2, 3, 4});
    CHECK((pair.there->received == "a" + content));
    CHECK(pair.there->ends == 0);
  });
}

TEST_CASE("when a peer resets, every write that a channel has queued fails, in order, and then it closes") {
  on_every_own_loop([](EventLoop& loop) {
    Pair pair(loop, false);
    constexpr int kWrites = 12;
    std::vector<int> ends;
    std::size_t failed = 0;
    for (int number = 0; number < kWrites; ++number) {
      pair.here->channel().write(chain_of(pattern(std::size_t{1} << 20)), [&, number](std::error_code error) {
        CHECK(pair.here->inactives == 0);
        ends.push_back(number);
        if (error) CHECK(error == errc::connection_lost);
        if (failed != 0) CHECK(error);  // none gets through behind one that failed
        if (error) ++failed;
      });
    }
    settle(loop);
    pair.there->channel().abort();
    run_until(loop, [&] { return pair.here->inactives == 1; });
    CHECK(pair.here->error == errc::connection_lost);
    CHECK(failed > 1);
    CHECK(ends == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    settle(loop);
    CHECK(pair.here->inactives == 1);
  });
}

TEST_CASE("what is written while connecting fails in order when nobody listens, and the channel is gone") {
  on_every_own_loop([](EventLoop& loop) {
    const auto side = std::make_shared<Side>();
    const Client client(
        loop, [side](Channel& channel) { return channel.pipeline().append(std::make_unique<Probe>(side)); });
    side->ref = client.connect(Endpoint::parse("127.0.0.1:9").value_or_throw());
    std::vector<int> ends;
    for (int number = 0; number < 3; ++number) {
      side->ref.write(chain_of("lost"), [&ends, number](std::error_code error) {
        CHECK(error);
        ends.push_back(number);
      });
    }
    run_until(loop, [&] { return ends.size() == 3 && !side->ref.alive(); });
    CHECK(ends == std::vector<int>{0, 1, 2});
    CHECK(side->actives == 0);
  });
}
