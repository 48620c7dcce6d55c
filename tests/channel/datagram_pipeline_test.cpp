// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Pipelines of datagrams without a network, the handlers made for them, and channels on several loops.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/channel/channel_group.hpp"
#include "linkspan/channel/datagram_channel.hpp"
#include "linkspan/channel/embedded_datagram_channel.hpp"
#include "linkspan/channel/metrics.hpp"
#include "linkspan/channel/shared_handler.hpp"
#include "linkspan/channel/timeouts.hpp"
#include "linkspan/channel/write_results.hpp"
#include "tests/channel/packets.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

const Endpoint kPeer = Endpoint::parse("192.0.2.1:7").value_or_throw();

class NoteEcho final : public Service<Note> {
 public:
  void on_read(Note&& note) override { write(std::move(note)); }
};

/// Text in lines across chains; gives what it has not decoded to its successor.
class Joiner final : public Codec<Chain, std::string> {
 public:
  void on_read(Chain&& data) override { text_ += data.to_string(); }
  void on_write(std::string&& text) override { write(Chain(Slice::copy(text))); }
  Chain take_unread() override { return Chain(Slice::copy(std::exchange(text_, {}))); }

 private:
  std::string text_;
};

class PausingReader final : public Service<Chain> {
 public:
  explicit PausingReader(std::vector<std::string>& texts) : texts_(texts) {}
  void on_read(Chain&& data) override {
    texts_.push_back(data.to_string());
    channel().pause_read();
  }

 private:
  std::vector<std::string>& texts_;
};

}  // namespace

TEST_CASE("an embedded datagram channel passes packets through its pipeline") {
  EmbeddedDatagramChannel channel;
  CHECK(channel.pipeline().append<NoteCodec, NoteEcho>());
  channel.open();
  channel.receive("one", kPeer);
  channel.receive("", kPeer);
  CHECK(channel.queued_bytes() == 3);
  std::error_code completed = make_error_code(errc::unhandled);
  channel.write(Note{"three", kPeer}, [&](std::error_code error) { completed = error; });
  const std::vector<Packet> sent = channel.take_sent();
  REQUIRE(sent.size() == 3);
  CHECK(sent[0].data == "one");
  CHECK(sent[0].peer == kPeer);
  CHECK(sent[1].data.empty());
  CHECK(sent[2].data == "three");
  CHECK(!completed);
  CHECK(channel.sent_bytes() == 8);
  CHECK(channel.sent_packets() == 3);
  channel.close();
  channel.write(Note{"late", kPeer}, [&](std::error_code error) { completed = error; });
  channel.tick();
  CHECK(completed == errc::shut_down);
  REQUIRE(channel.close_error());
  CHECK(!*channel.close_error());
}

TEST_CASE("an embedded datagram channel pauses, is refused, breaks and fails what is pending") {
  const auto seen = std::make_shared<Seen>();
  EmbeddedDatagramChannel channel({}, false);
  CHECK(channel.pipeline().append(std::make_unique<NoteCodec>(), std::make_unique<NoteProbe>(seen)));
  channel.open();
  channel.receive("one", kPeer);
  channel.receive("two", kPeer);
  CHECK(seen->texts.empty());
  seen->during = [](std::string_view event, Channel& there) {
    if (event == "read") there.pause_read();
  };
  channel.resume_read();
  channel.tick();
  CHECK(seen->texts == std::vector<std::string>{"one"});
  channel.resume_read();
  channel.tick();
  CHECK(seen->texts == std::vector<std::string>{"one", "two"});
  channel.refuse(make_error_code(errc::unavailable), kPeer);
  REQUIRE(seen->refusals.size() == 1);
  CHECK(seen->refusals[0].second == kPeer);
  std::error_code completed;
  channel.write(Note{"x", kPeer}, [&](std::error_code error) { completed = error; });
  channel.break_socket(make_error_code(errc::connection_lost));
  CHECK(completed == errc::connection_lost);
  CHECK(seen->inactive == errc::connection_lost);
}

TEST_CASE("packets that come while a removed handler's bytes wait keep their order") {
  std::vector<std::string> texts;
  EmbeddedDatagramChannel channel;
  CHECK(channel.pipeline().append(std::make_unique<PayloadCodec>(), std::make_unique<Joiner>()));
  channel.open();
  channel.receive("first", kPeer);
  Joiner* const joiner = channel.pipeline().find<Joiner>();
  REQUIRE(joiner != nullptr);
  CHECK(channel.pipeline().replace(*joiner, std::make_unique<PausingReader>(texts)));
  channel.receive("second", kPeer);  // the first one pauses reading while this is on its way
  CHECK(texts == std::vector<std::string>{"first"});
  channel.resume_read();
  channel.tick();
  CHECK(texts == std::vector<std::string>{"first", "second"});
}

TEST_CASE("bytes that come while a removed handler's bytes wait keep to a pause") {
  std::vector<std::string> texts;
  EmbeddedChannel channel;
  CHECK(channel.pipeline().append(std::make_unique<Joiner>()));
  channel.open();
  channel.receive("first");
  Joiner* const joiner = channel.pipeline().find<Joiner>();
  REQUIRE(joiner != nullptr);
  CHECK(channel.pipeline().replace(*joiner, std::make_unique<PausingReader>(texts)));
  channel.receive("second");
  CHECK(texts == std::vector<std::string>{"first"});
  channel.resume_read();
  channel.tick();
  CHECK(texts == std::vector<std::string>{"first", "second"});
}

TEST_CASE("a payload codec drops what was cut and tells of it") {
  std::vector<std::string> texts;
  EmbeddedDatagramChannel channel;
  class Teller final : public Service<Chain> {
   public:
    explicit Teller(std::vector<std::string>& texts) : texts_(texts) {}
    void on_read(Chain&& data) override { texts_.push_back(data.to_string()); }
    void on_refused(std::error_code error, const Endpoint& peer) override {
      texts_.push_back(error.message() + " " + peer.to_string());
    }

   private:
    std::vector<std::string>& texts_;
  };
  CHECK(channel.pipeline().append(std::make_unique<PayloadCodec>(), std::make_unique<Teller>(texts)));
  channel.open();
  channel.receive({Chain(Slice::copy("cut")), kPeer, true});
  channel.receive("whole", kPeer);
  CHECK(texts ==
        std::vector<std::string>{make_error_code(errc::truncated).message() + " 192.0.2.1:7", "whole"});
}

TEST_CASE("a shared handler hears of refusals") {
  class Counts final : public SharedHandler<Packet, Packet, Packet, Packet> {
   public:
    explicit Counts(int& refused) : refused_(refused) {}
    void on_refused(Place& place, std::error_code error, const Endpoint& peer) const override {
      ++refused_;
      place.pass_refused(error, peer);
    }

   private:
    int& refused_;
  };
  int refused = 0;
  LogCapture log(LogLevel::debug);
  EmbeddedDatagramChannel channel;
  CHECK(channel.pipeline().append(share_handler(std::make_shared<const Counts>(refused))));
  channel.open();
  channel.refuse(make_error_code(errc::unavailable), kPeer);
  CHECK(refused == 1);
  CHECK(log.contains("192.0.2.1:7"));
  CHECK(!channel.close_error());
}

TEST_CASE("a packet meter counts messages, empty ones too, and refusals") {
  LogCapture log;
  const auto counters = std::make_shared<ChannelCounters>();
  EmbeddedDatagramChannel channel;
  CHECK(channel.pipeline().append(std::make_unique<PacketMeter>(counters)));
  CHECK(channel.pipeline().append<NoteCodec, NoteEcho>());
  channel.open();
  channel.receive("four", kPeer);
  channel.receive("", kPeer);
  channel.refuse(make_error_code(errc::unavailable), kPeer);
  CHECK(channel.take_sent().size() == 2);
  CHECK(counters->reads == 2);
  CHECK(counters->bytes_read == 4);
  CHECK(counters->writes == 2);
  CHECK(counters->bytes_written == 4);
  CHECK(counters->refused == 1);
  channel.close();
  channel.tick();
  CHECK(counters->closed == 1);
  Metrics metrics;
  metrics.add("echo", *counters);
  CHECK(metrics.text().find("linkspan_channel_refused_total{channel=\"echo\"} 1\n") != std::string::npos);
}

TEST_CASE("a packet idle timeout counts empty messages as something that happens") {
  FakeWorld world;
  EventLoopOptions options;
  options.environment = &world.environment;
  EmbeddedDatagramChannel channel({}, true, {}, options);
  CHECK(channel.pipeline().append(std::make_unique<PacketIdleTimeout>(std::chrono::seconds(4))));
  CHECK(channel.pipeline().append<NoteCodec, NoteEcho>());
  channel.open();
  const auto pass_seconds = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      world.clock.advance(std::chrono::seconds(1));
      channel.tick();
    }
  };
  for (int i = 0; i < 4; ++i) {
    pass_seconds(3);
    CHECK(!channel.close_error());
    channel.write(Note{"", kPeer});
    CHECK(channel.take_sent().size() == 1);
  }
  pass_seconds(6);
  REQUIRE(channel.close_error());
  CHECK(!*channel.close_error());
}

TEST_CASE("a packet read timeout and a packet write timeout are error events") {
  LogCapture log;
  FakeWorld world;
  EventLoopOptions options;
  options.environment = &world.environment;
  for (const bool reads : {true, false}) {
    EmbeddedDatagramChannel channel({}, true, {}, options);
    if (reads) {
      CHECK(channel.pipeline().append(std::make_unique<PacketReadTimeout>(std::chrono::seconds(4))));
    } else {
      CHECK(channel.pipeline().append(std::make_unique<PacketWriteTimeout>(std::chrono::seconds(4))));
    }
    CHECK(channel.pipeline().append<NoteCodec>());
    channel.open();
    if (!reads) channel.write(Note{"stuck", kPeer});
    for (int i = 0; i < 6; ++i) {
      world.clock.advance(std::chrono::seconds(1));
      channel.tick();
    }
    static_cast<void>(channel.take_sent());
    REQUIRE(channel.close_error());
    CHECK(*channel.close_error() == errc::timed_out);
  }
}

TEST_CASE("a completion whose handler throws says so") {
  class Thrower final : public Handler<Chain, Chain, Chain, Chain> {
   public:
    void on_write(Chain&&) override { throw std::runtime_error("no"); }
  };
  class Writer final : public Service<Chain> {
   public:
    explicit Writer(std::vector<std::error_code>& results) : results_(results) {}
    void on_read(Chain&& data) override {
      write(std::move(data), [this](std::error_code error) { results_.push_back(error); });
    }

   private:
    std::vector<std::error_code>& results_;
  };
  LogCapture log;
  std::vector<std::error_code> results;
  {
    EmbeddedChannel channel;
    CHECK(channel.pipeline().append(std::make_unique<Thrower>(), std::make_unique<Writer>(results)));
    channel.open();
    channel.receive("x");
    CHECK(channel.close_error() == make_error_code(errc::handler_failed));
  }
  REQUIRE(results.size() == 1);
  CHECK(results[0] == errc::handler_failed);
}

TEST_CASE("a datagram channel is opened, written to and closed from other threads") {
  on_every_transport(2, [](LoopGroup& group) {
    std::vector<BoundChannel> bound;
    Mailbox mailbox;
    for (EventLoop* loop : group.loops()) {
      DatagramChannelOptions options;
      options.local = loopback();
      options.initializer = [&](Channel& channel) {
        class Reporter final : public Service<Note> {
         public:
          explicit Reporter(Mailbox& box) : box_(box) {}
          void on_read(Note&& note) override { box_.put(note.text); }

         private:
          Mailbox& box_;
        };
        return channel.pipeline().append(std::make_unique<NoteCodec>(), std::make_unique<Reporter>(mailbox));
      };
      bound.push_back(open_datagram_channel(*loop, std::move(options)).value_or_throw());
    }
    for (int i = 0; i < 10; ++i) {
      auto [done, result] = write_future();
      bound[0].channel.write(Note{std::to_string(i), bound[1].local}, std::move(done));
      CHECK(!result.get());
    }
    CHECK(mailbox.wait(10).back() == "9");
    for (const BoundChannel& each : bound) {
      each.channel.close();
      while (each.channel.alive()) std::this_thread::yield();
    }
    group.stop();
    group.wait();
    DatagramChannelOptions options;
    options.local = loopback();
    options.initializer = [](Channel&) -> Status { return std::monostate(); };
    for (EventLoop* loop : group.loops()) {
      const auto refused = open_datagram_channel(*loop, options);
      REQUIRE(!refused);
      CHECK(refused.error().code == errc::stopped);
    }
  });
}

namespace {

// One channel on each loop, at one address.
std::vector<BoundChannel> open_on_each_loop(LoopGroup& loops, DatagramChannelOptions options) {
  options.datagram.socket.reuse_port = true;
  std::vector<BoundChannel> bound;
  for (EventLoop* loop : loops.loops()) {
    bound.push_back(open_datagram_channel(*loop, options).value_or_throw());
    options.local = bound.front().local;  // with the port that was free
  }
  return bound;
}

// Answers each message with its text and the number of its channel's loop.
class NumberedEcho final : public Service<Note> {
 public:
  NumberedEcho(std::size_t loop, std::atomic<std::size_t>& messages) : loop_(loop), messages_(messages) {}
  void on_read(Note&& note) override {
    ++messages_;
    write({note.text + " " + std::to_string(loop_), note.peer});
  }

 private:
  std::size_t loop_;
  std::atomic<std::size_t>& messages_;
};

}  // namespace

TEST_CASE("datagram channels on several loops share a port: each peer is served by one of them, once") {
  on_every_transport(3, [](LoopGroup& loops) {
    ChannelGroup group;
    std::array<std::atomic<std::size_t>, 3> messages{};
    std::atomic<std::size_t> opened{0};
    DatagramChannelOptions options;
    options.local = loopback();
    options.initializer = [&](Channel& channel) -> Status {
      const std::size_t loop = opened++;
      if (Status status = group.add(channel); !status) return status;
      return channel.pipeline().append(std::make_unique<NoteCodec>(),
                                       std::make_unique<NumberedEcho>(loop, messages[loop]));
    };
    const std::vector<BoundChannel> bound = open_on_each_loop(loops, options);
    REQUIRE(bound.size() == 3);
    for (const BoundChannel& each : bound) CHECK(each.local == bound.front().local);
    const Endpoint& to = bound.front().local;
    int peers = 0;
    std::set<std::string> used;
    std::size_t sent = 0;
    while (used.size() < 3 && ++peers < 500) {  // the system spreads them by a hash
      const int descriptor = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      REQUIRE(::connect(descriptor, to.address(), static_cast<socklen_t>(to.address_size())) == 0);
      test::Peer peer(descriptor);
      std::set<std::string> answered_by;
      for (int i = 0; i < 4; ++i) {
        const std::string text = std::to_string(sent++);
        peer.send(text);
        const std::string answer = peer.receive(100);
        REQUIRE(answer.substr(0, text.size()) == text);
        answered_by.insert(answer.substr(text.size()));
      }
      CHECK(answered_by.size() == 1);
      used.merge(answered_by);
      char more;
      CHECK(::recv(descriptor, &more, 1, MSG_DONTWAIT) < 0);  // no second answer
    }
    CHECK(used.size() == 3);
    CHECK(messages[0] + messages[1] + messages[2] == sent);
    Mailbox mailbox;
    group.drain(std::chrono::seconds(5), [&] { mailbox.put("done"); });
    mailbox.wait(1);
    for (const BoundChannel& each : bound) CHECK_FALSE(each.channel.alive());
  });
}
