// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Channels over datagram sockets, on every transport and kind of socket.
#include "linkspan/channel/datagram_channel.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/channel/channel_group.hpp"
#include "linkspan/loop/loop_group.hpp"
#include "tests/channel/packets.hpp"
#include "tests/support/log_capture.hpp"
#include "tests/transport/datagram_harness.hpp"

namespace linkspan::conformance {
namespace {

using test::LogCapture;
using test::Note;
using test::NoteCodec;
using test::NoteProbe;
using test::Seen;
using test::WordsCodec;

/// A channel under test.
struct Subject {
  std::shared_ptr<Seen> seen = std::make_shared<Seen>();
  ChannelRef ref;
  Endpoint local;

  [[nodiscard]] Channel& channel() const { return *ref.here(); }
};

/// Writes of which each has to complete once, in order.
struct Results {
  std::vector<std::pair<int, std::error_code>> all;
  int issued = 0;
  std::function<void(int)> during;

  WriteDone next() {
    return [this, number = issued++](std::error_code error) {
      all.emplace_back(number, error);
      if (during) during(number);
    };
  }
  [[nodiscard]] bool complete() const { return all.size() == static_cast<std::size_t>(issued); }
  [[nodiscard]] bool in_order() const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].first != static_cast<int>(i)) return false;
    }
    return complete();
  }
  [[nodiscard]] std::error_code error_of(int number) const {
    for (const auto& [each, error] : all) {
      if (each == number) return error;
    }
    return make_error_code(errc::unhandled);
  }
};

template <class Codec = NoteCodec>
Subject open(DatagramWorld& world, DatagramChannelOptions options = {}) {
  Subject subject;
  if (options.local.address_size() == 0) options.local = world.free_endpoint();
  options.initializer = [seen = subject.seen](Channel& channel) {
    return channel.pipeline().append(std::make_unique<Codec>(), std::make_unique<NoteProbe>(seen));
  };
  BoundChannel bound = open_datagram_channel(world.loop(), std::move(options)).value_or_throw();
  subject.ref = bound.channel;
  subject.local = bound.local;
  return subject;
}

std::function<void(std::string_view, Channel&)> echo(const std::shared_ptr<Seen>& seen) {
  return [raw = seen.get()](std::string_view event, Channel& channel) {
    if (event == "read") channel.write(Note{raw->texts.back(), raw->peers.back()});
  };
}

bool is_errno(std::error_code error, int number) {
  return error.value() == number && error.category() == std::system_category();
}

TEST_CASE("a datagram channel answers each message to its sender, through a codec, empty ones too") {
  for_each_datagram_mode([](DatagramWorld& world) {
    Subject subject = open(world);
    subject.seen->during = echo(subject.seen);
    CHECK(subject.seen->events.empty());  // nothing runs inside the call
    RawSocket one = world.raw();
    RawSocket two = world.raw();
    REQUIRE(one.send(subject.local, "first") == 0);
    REQUIRE(two.send(subject.local, "") == 0);
    REQUIRE(one.send(subject.local, pattern(1400)) == 0);
    std::vector<std::string> answers;
    std::vector<std::string> empty;
    world.run_until([&] {
      for (std::string& answer : one.receive_all()) answers.push_back(std::move(answer));
      for (std::string& answer : two.receive_all()) empty.push_back(std::move(answer));
      return answers.size() == 2 && empty.size() == 1;
    });
    CHECK(answers == std::vector<std::string>{"first", pattern(1400)});
    CHECK(empty == std::vector<std::string>{""});
    CHECK(subject.seen->events == std::vector<std::string>{"active"});
    CHECK(subject.channel().local_endpoint() == subject.local);
    CHECK(subject.channel().peer_endpoint().address_size() == 0);
    world.run_until([&] { return subject.channel().sent_packets() == 3; });
    CHECK(subject.channel().sent_bytes() == 1405);
    world.base().check_quiet();
    subject.channel().close();
    world.run_until([&] { return subject.seen->closed(); });
    CHECK(!subject.seen->inactive);
    world.settle();
    CHECK(!subject.ref.alive());
  });
}

TEST_CASE("a connected datagram channel sends to its peer, whoever a packet names, and takes chains") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    RawSocket other = world.raw();
    DatagramChannelOptions options;
    options.datagram.peer = peer.endpoint();
    Subject subject = open(world, options);
    subject.channel().write(Note{"to the peer", other.endpoint()});
    std::string got;
    world.run_until([&] { return peer.receive(got); });
    CHECK(got == "to the peer");
    CHECK(subject.channel().peer_endpoint() == peer.endpoint());

    class Doubler final : public Service<Chain> {
     public:
      void on_read(Chain&& data) override {
        Chain twice = data.share();
        twice.append(std::move(data));
        write(std::move(twice));
      }
    };
    options.local = world.free_endpoint();
    options.datagram.max_receive_bytes = 4;
    options.initializer = [](Channel& channel) { return channel.pipeline().append<PayloadCodec, Doubler>(); };
    const BoundChannel chains = open_datagram_channel(world.loop(), options).value_or_throw();
    REQUIRE(peer.send(chains.local, "too long for it") == 0);  // dropped
    REQUIRE(peer.send(chains.local, "ab") == 0);
    world.run_until([&] { return peer.receive(got); });
    CHECK(got == "abab");
    chains.channel.abort();
  });
}

TEST_CASE("a refusal by the network travels in with its destination, and the channel goes on") {
  for_each_udp_mode([](DatagramWorld& world) {
    LogCapture log;
    RawSocket peer = world.raw();
    const Endpoint dead = world.dead_endpoint();
    Subject subject = open(world);
    Results results;
    subject.channel().write(Note{"nobody", dead}, results.next());
    world.run_until([&] { return !subject.seen->refusals.empty(); });
    CHECK(is_errno(subject.seen->refusals[0].first, ECONNREFUSED));
    CHECK(subject.seen->refusals[0].second == dead);
    CHECK(!results.error_of(0));  // the kernel had taken it
    subject.channel().write(Note{"somebody", peer.endpoint()}, results.next());
    std::string got;
    world.run_until([&] { return peer.receive(got) && results.complete(); });
    CHECK(got == "somebody");
    CHECK(subject.seen->errors.empty());
    subject.channel().abort();

    // Nobody takes it: still no reason to close.
    DatagramChannelOptions options;
    options.local = world.free_endpoint();
    options.initializer = [](Channel& channel) { return channel.pipeline().append<NoteCodec>(); };
    const BoundChannel deaf = open_datagram_channel(world.loop(), options).value_or_throw();
    deaf.channel.write(Note{"nobody", dead}, results.next());
    world.run_until([&] { return results.complete(); });
    world.settle();
    CHECK(deaf.channel.alive());
    CHECK(log.lines().empty());
    deaf.channel.abort();
  });
}

TEST_CASE("a message that cannot be sent fails its write alone, or is told as a refusal") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Subject subject = open(world);
    Results results;
    const std::string large(std::size_t{1} << 20, 'x');
    subject.channel().write(Note{"before", peer.endpoint()}, results.next());
    subject.channel().write(Note{large, peer.endpoint()}, results.next());
    subject.channel().write(Note{large, peer.endpoint()});
    subject.channel().write(Note{"after", peer.endpoint()}, results.next());
    world.run_until([&] { return results.complete(); });
    CHECK(results.in_order());
    CHECK(!results.error_of(0));
    CHECK(is_errno(results.error_of(1), EMSGSIZE));
    CHECK(!results.error_of(2));
    REQUIRE(subject.seen->refusals.size() == 1);
    CHECK(is_errno(subject.seen->refusals[0].first, EMSGSIZE));
    std::vector<std::string> got;
    world.run_until([&] {
      for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
      return got.size() == 2;
    });
    CHECK(got == std::vector<std::string>{"before", "after"});
    subject.channel().abort();
  });
}

TEST_CASE("a write of several messages says the first failure of its own") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    const std::string large(std::size_t{1} << 20, 'x');
    DatagramChannelOptions options;
    options.watermarks = {std::size_t{64} << 20, 0};
    options.datagram.queue_bytes = std::size_t{64} << 20;
    Subject subject = open<WordsCodec>(world, options);
    Results results;
    subject.channel().write(Note{large, peer.endpoint()});
    subject.channel().write(Note{"one two", peer.endpoint()}, results.next());
    subject.channel().write(Note{"three " + large + " four", peer.endpoint()}, results.next());
    subject.channel().write(Note{"", peer.endpoint()}, results.next());  // sends nothing at all
    subject.channel().write(Note{"five", peer.endpoint()}, results.next());
    CHECK(results.all.empty());
    world.run_until([&] { return results.complete(); });
    CHECK(results.in_order());
    CHECK(!results.error_of(0));
    CHECK(is_errno(results.error_of(1), EMSGSIZE));
    CHECK(!results.error_of(2));
    CHECK(!results.error_of(3));
    CHECK(subject.seen->refusals.size() == 1);
    subject.channel().write(Note{"", peer.endpoint()}, results.next());
    CHECK(results.all.size() == 4);
    world.run_until([&] { return results.complete(); });
    CHECK(!results.error_of(4));
    subject.channel().abort();
  });
}

TEST_CASE("a completion that a handler asks for is told of its own message") {
  for_each_datagram_mode([](DatagramWorld& world) {
    // Each note is answered by a large packet with a completion, then by the note's own.
    class Both final : public Handler<Packet, Packet, Note, Packet> {
     public:
      explicit Both(std::vector<std::error_code>* inner) : inner_(inner) {}
      void on_write(Note&& note) override {
        write({Chain(Slice::adopt(std::string(std::size_t{1} << 20, 'x'))), note.peer},
              [inner = inner_](std::error_code error) { inner->push_back(error); });
        write({Chain(Slice::copy(note.text)), note.peer},
              [inner = inner_](std::error_code error) { inner->push_back(error); });
      }

     private:
      std::vector<std::error_code>* inner_;
    };
    RawSocket peer = world.raw();
    std::vector<std::error_code> inner;
    DatagramChannelOptions options;
    options.local = world.free_endpoint();
    options.initializer = [&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<Both>(&inner));
    };
    const BoundChannel bound = open_datagram_channel(world.loop(), options).value_or_throw();
    Results results;
    bound.channel.write(Note{"small", peer.endpoint()}, results.next());
    world.run_until([&] { return results.complete(); });
    REQUIRE(inner.size() == 2);
    CHECK(is_errno(inner[0], EMSGSIZE));
    CHECK(!inner[1]);
    CHECK(is_errno(results.error_of(0), EMSGSIZE));
    bound.channel.abort();
    world.settle();
  });
}

TEST_CASE("a message that was cut says so in the pipeline") {
  for_each_datagram_mode([](DatagramWorld& world) {
    class Keep final : public Service<Packet> {
     public:
      explicit Keep(std::shared_ptr<std::vector<Packet>> packets) : packets_(std::move(packets)) {}
      void on_read(Packet&& packet) override { packets_->push_back(std::move(packet)); }

     private:
      std::shared_ptr<std::vector<Packet>> packets_;
    };
    const auto packets = std::make_shared<std::vector<Packet>>();
    DatagramChannelOptions options;
    options.local = world.free_endpoint();
    options.datagram.max_receive_bytes = 10;
    options.initializer = [&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<Keep>(packets));
    };
    const BoundChannel bound = open_datagram_channel(world.loop(), options).value_or_throw();
    RawSocket peer = world.raw();
    REQUIRE(peer.send(bound.local, "0123456789") == 0);
    REQUIRE(peer.send(bound.local, "0123456789a") == 0);
    world.run_until([&] { return packets->size() == 2; });
    CHECK(!(*packets)[0].truncated);
    CHECK((*packets)[1].truncated);
    CHECK((*packets)[1].data == "0123456789");
    CHECK((*packets)[1].peer == peer.endpoint());
    bound.channel.abort();
  });
}

TEST_CASE("after a pause no message comes until reading resumes, and then they come in order") {
  for_each_datagram_mode([](DatagramWorld& world) {
    DatagramChannelOptions options;
    options.auto_read = false;
    Subject subject = open(world, options);
    RawSocket peer = world.raw();
    std::vector<std::string> sent;
    for (int i = 0; i < 8; ++i) sent.push_back(std::to_string(i));
    for (const std::string& text : sent) REQUIRE(peer.send(subject.local, text) == 0);
    world.settle();
    CHECK(subject.seen->texts.empty());
    subject.seen->during = [](std::string_view event, Channel& channel) {
      if (event == "read") channel.pause_read();
    };
    for (std::size_t i = 1; i <= sent.size(); ++i) {
      subject.channel().resume_read();
      CHECK(subject.seen->texts.size() == i - 1);
      world.run_until([&] { return subject.seen->texts.size() == i; });
      world.settle();
      CHECK(subject.seen->texts.size() == i);
    }
    CHECK(subject.seen->texts == sent);
    CHECK(subject.seen->count("resumed") == sent.size());
    subject.channel().abort();
  });
}

TEST_CASE("a datagram channel may be closed or aborted in each of its events") {
  for_each_datagram_mode([](DatagramWorld& world) {
    for (const bool abort : {false, true}) {
      for (const std::string_view when :
           {"active", "read", "refused", "not writable", "writable", "completion", "drain", "inactive"}) {
        CAPTURE(abort);
        CAPTURE(when);
        RawSocket peer = world.raw();
        DatagramChannelOptions options;
        options.watermarks = {2000, 1000};
        Subject subject = open(world, options);
        const auto end = [abort](Channel& channel) {
          abort ? channel.abort() : channel.close();
          channel.write(Note{"too late", {}});
        };
        subject.seen->during = [&](std::string_view event, Channel& channel) {
          if (event == when) end(channel);
        };
        Results results;
        results.during = [&](int) {
          if (when == "completion" && subject.ref.here() != nullptr) end(subject.channel());
        };
        for (int i = 0; i < 20; ++i) {
          subject.ref.write(Note{std::string(100, 'x'), peer.endpoint()}, results.next());
        }
        subject.ref.write(Note{std::string(std::size_t{1} << 20, 'x'), peer.endpoint()});
        REQUIRE(peer.send(subject.local, "hello") == 0);
        world.settle();
        if (when == "drain") subject.channel().drain(std::chrono::seconds(5));
        if (when == "inactive") subject.channel().close();
        static_cast<void>(peer.receive_all());
        world.run_until([&] {
          static_cast<void>(peer.receive_all());
          return subject.seen->closed() && results.complete();
        });
        world.settle();
        CHECK(subject.seen->count("inactive") == 1);
        CHECK(results.in_order());
        CHECK(!subject.ref.alive());
      }
    }
  });
}

TEST_CASE("a handler of datagrams that throws closes its channel, and what was queued is sent") {
  for_each_datagram_mode([](DatagramWorld& world) {
    LogCapture log;
    RawSocket peer = world.raw();
    Subject subject = open(world);
    Results results;
    subject.seen->during = [&](std::string_view event, Channel& channel) {
      if (event != "read") return;
      channel.write(Note{"the last", peer.endpoint()}, results.next());
      throw std::runtime_error("not this one");
    };
    REQUIRE(peer.send(subject.local, "hello") == 0);
    world.run_until([&] { return subject.seen->closed(); });
    CHECK(subject.seen->inactive == errc::handler_failed);
    REQUIRE(subject.seen->errors.size() == 1);
    CHECK(subject.seen->errors[0] == errc::handler_failed);
    CHECK(results.in_order());
    CHECK(!results.error_of(0));
    CHECK(peer.receive_all() == std::vector<std::string>{"the last"});

    // And so does a completion.
    Subject other = open(world);
    other.channel().write(Note{"x", peer.endpoint()},
                          [](std::error_code) { throw std::runtime_error("no"); });
    world.run_until([&] { return other.seen->closed(); });
    CHECK(other.seen->inactive == errc::handler_failed);
  });
}

TEST_CASE("each write of a datagram channel completes once when it ends with writes pending") {
  for_each_unix_mode([](DatagramWorld& world) {
    enum class How { close, deadline, abort, drain, stop };
    for (const How how : {How::close, How::deadline, How::abort, How::drain}) {
      CAPTURE(static_cast<int>(how));
      RawSocket peer = world.raw();  // which does not read, and has room for a few
      Subject subject = open(world);
      Results results;
      for (int i = 0; i < 200; ++i) {
        subject.channel().write(Note{std::to_string(i), peer.endpoint()}, results.next());
      }
      world.settle();
      CHECK(!results.complete());
      if (how == How::close) subject.channel().close();
      if (how == How::deadline) subject.channel().close(std::chrono::milliseconds(20));
      if (how == How::abort) subject.channel().abort();
      if (how == How::drain) subject.channel().drain(std::chrono::seconds(5));
      subject.channel().write(Note{"too late", peer.endpoint()}, results.next());
      std::vector<std::string> got;
      world.run_until([&] {
        if (how == How::close || how == How::drain) {
          for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
        }
        return subject.seen->closed();
      });
      CHECK(results.in_order());
      const std::error_code last = results.error_of(199);
      if (how == How::close || how == How::drain) {
        CHECK(!last);
        for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
        CHECK(got.size() == 200);
        CHECK(!subject.seen->inactive);
        CHECK(results.error_of(200) == errc::shut_down);
      }
      if (how == How::deadline) {
        CHECK(last == errc::timed_out);
        CHECK(subject.seen->inactive == errc::timed_out);
      }
      if (how == How::abort) {
        CHECK(last == errc::cancelled);
        CHECK(subject.seen->inactive == errc::aborted);
      }
    }
  });
}

TEST_CASE("a loop that stops closes its datagram channels, and their writes complete before") {
  for_each_datagram_mode_name({Family::tcp4, Family::unix_path}, [](const Mode& mode) {
    const auto results = std::make_shared<Results>();
    std::shared_ptr<Seen> seen;
    ChannelRef ref;
    {
      DatagramWorld world(mode);
      RawSocket peer = world.raw();
      Subject subject = open(world);
      seen = subject.seen;
      ref = subject.ref;
      world.settle();
      for (int i = 0; i < 200; ++i) {
        subject.channel().write(Note{std::to_string(i), peer.endpoint()}, results->next());
      }
    }
    CHECK(seen->count("inactive") == 1);
    CHECK(results->in_order());
    CHECK(!ref.alive());
    ref.write(Note{"gone", {}}, results->next());
    CHECK(results->error_of(200) == errc::cancelled);
  });
}

TEST_CASE("above the high watermark writes of datagrams wait, and leave in order when there is room") {
  for_each_unix_mode([](DatagramWorld& world) {
    for (const bool waits : {true, false}) {
      CAPTURE(waits);
      RawSocket peer = world.raw();
      DatagramChannelOptions options;
      options.datagram.queue_messages = 30;
      options.pending.when_full = waits ? WhenFull::wait : WhenFull::refuse;
      Subject subject = open(world, options);
      Results results;
      for (int i = 0; i < 200; ++i) {
        subject.channel().write(Note{std::to_string(i), peer.endpoint()}, results.next());
      }
      CHECK(!subject.channel().writable());
      CHECK(!subject.ref.writable());
      world.settle();
      CHECK(subject.seen->count("not writable") == 1);
      std::vector<std::string> got;
      world.run_until([&] {
        for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
        return results.complete() && subject.channel().writable();
      });
      for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
      world.settle();
      CHECK(subject.seen->count("writable") >= 1);
      CHECK(subject.channel().queued_bytes() == 0);
      const std::size_t refused = static_cast<std::size_t>(std::ranges::count_if(
          results.all, [](const auto& each) { return each.second == errc::limit_exceeded; }));
      CHECK(refused == (waits ? 0 : 170));
      REQUIRE(got.size() == 200 - refused);
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == std::to_string(i));
      subject.channel().abort();
      world.settle();
    }
  });
}

TEST_CASE("what a datagram channel holds back when it closes is sent, too") {
  for_each_unix_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    DatagramChannelOptions options;
    options.datagram.queue_messages = 10;
    options.pending.when_full = WhenFull::wait;
    Subject subject = open(world, options);
    Results results;
    for (int i = 0; i < 100; ++i) {
      subject.channel().write(Note{std::to_string(i), peer.endpoint()}, results.next());
    }
    subject.channel().close();
    std::vector<std::string> got;
    world.run_until([&] {
      for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
      return subject.seen->closed();
    });
    for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
    CHECK(results.in_order());
    CHECK(got.size() == 100);
  });
}

TEST_CASE("what a handler writes beyond all bounds fails alone, and the channel goes on") {
  for_each_unix_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    DatagramChannelOptions options;
    options.datagram.queue_messages = 10;
    options.pending.max_waiting = 10;
    Subject subject = open<WordsCodec>(world, options);
    std::string words;
    for (int i = 0; i < 500; ++i) words += std::to_string(i) + " ";
    Results results;
    subject.channel().write(Note{words, peer.endpoint()}, results.next());
    std::vector<std::string> got;
    world.run_until([&] {
      for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
      return results.complete();
    });
    CHECK(results.error_of(0) == errc::limit_exceeded);
    for (std::string& each : peer.receive_all()) got.push_back(std::move(each));
    CHECK(got.size() == 20);
    CHECK(subject.channel().writable());
    CHECK(subject.seen->errors.empty());
    subject.channel().abort();
  });
}

TEST_CASE("what only streams have is refused on a datagram channel") {
  for_each_datagram_mode([](DatagramWorld& world) {
    LogCapture log;
    Subject subject = open(world);
    world.settle();
    Results results;
    subject.channel().write(FileRange{}, results.next());
    subject.channel().write(WithDescriptors{}, results.next());
    std::error_code received;
    bool memory_back = false;
    subject.channel().receive_into(world.loop().pool().allocate(100), 100,
                                   [&](std::error_code error, Block&& memory, std::size_t) {
                                     received = error;
                                     memory_back = static_cast<bool>(memory);
                                   });
    CHECK(results.all.empty());
    world.run_until([&] { return results.complete() && memory_back; });
    CHECK(results.error_of(0) == errc::unavailable);
    CHECK(results.error_of(1) == errc::unavailable);
    CHECK(received == errc::unavailable);
    CHECK(subject.channel().active());
    subject.channel().shutdown_write();
    world.run_until([&] { return subject.seen->closed(); });
    CHECK(subject.seen->inactive == errc::unavailable);
    REQUIRE(subject.seen->errors.size() == 1);
    CHECK(log.contains("a datagram channel sends no ends of its sending side"));
  });
}

TEST_CASE("a datagram pipeline takes packets at its wire end, and checks what is joined") {
  for_each_datagram_mode([](DatagramWorld& world) {
    LogCapture log;
    Subject subject = open(world);
    class Bytes final : public Handler<Chain, Chain, Chain, Chain> {};
    const Status status = subject.channel().pipeline().prepend(std::make_unique<Bytes>());
    REQUIRE(!status);
    CHECK(status.error().detail.find("the wire passes on Packet, but") != std::string::npos);
    Results results;
    subject.channel().write(std::string("not a note"), results.next());
    world.run_until([&] { return subject.seen->closed(); });
    CHECK(subject.seen->inactive == errc::unhandled);
    CHECK(results.in_order());
    CHECK(results.error_of(0) == errc::shut_down);
  });
}

TEST_CASE("opening a datagram channel fails with what was wrong") {
  for_each_datagram_mode([](DatagramWorld& world) {
    LogCapture log;
    DatagramChannelOptions options;
    options.local = world.free_endpoint();
    CHECK(open_datagram_channel(world.loop(), options).error().code == errc::invalid_argument);
    options.initializer = [](Channel&) -> Status { return Error(errc::malformed, "not today"); };
    CHECK(open_datagram_channel(world.loop(), options).error().code == errc::malformed);
    world.settle();  // its address is free again
    options.initializer = [](Channel&) -> Status { return std::monostate(); };
    options.datagram.queue_messages = 0;
    CHECK(open_datagram_channel(world.loop(), options).error().code == errc::invalid_argument);
    options.datagram.queue_messages = 1;
    const BoundChannel bound = open_datagram_channel(world.loop(), options).value_or_throw();
    options.local = bound.local;
    CHECK(open_datagram_channel(world.loop(), options).error().code.value() == EADDRINUSE);
    options.local = {};
    CHECK(open_datagram_channel(world.loop(), options).error().code == errc::invalid_argument);
    bound.channel.abort();
    world.settle();
  });
}

TEST_CASE("a datagram socket that was made elsewhere becomes a channel") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    RawSocket made = world.raw();
    const Endpoint local = made.endpoint();
    const auto seen = std::make_shared<Seen>();
    seen->during = echo(seen);
    DatagramChannelOptions options;
    options.initializer = [&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<NoteCodec>(), std::make_unique<NoteProbe>(seen));
    };
    const BoundChannel bound =
        open_datagram_channel(world.loop(), made.take_socket(), options).value_or_throw();
    CHECK(bound.local == local);
    REQUIRE(peer.send(local, "hello") == 0);
    std::string got;
    world.run_until([&] { return peer.receive(got); });
    CHECK(got == "hello");
    bound.channel.abort();
  });
}

TEST_CASE("datagram channels of a group end together") {
  for_each_datagram_mode([](DatagramWorld& world) {
    ChannelGroup group;
    Subject one = open(world);
    Subject two = open(world);
    CHECK(group.add(one.channel()));
    CHECK(group.add(two.channel()));
    bool done = false;
    group.drain(std::chrono::seconds(5), [&] { done = true; });
    world.run_until([&] { return done; });
    CHECK(one.seen->count("drain") == 1);
    CHECK(two.seen->closed());
    CHECK(!two.seen->inactive);
  });
}

}  // namespace
}  // namespace linkspan::conformance
