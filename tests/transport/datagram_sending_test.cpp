// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What datagram sockets promise about sending.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "support/sanitized.hpp"
#include "tests/transport/datagram_harness.hpp"

namespace linkspan::conformance {
namespace {

using Event = DatagramRecorder::Event;

void set_option(int descriptor, int level, int name, int value) {
  REQUIRE(::setsockopt(descriptor, level, name, &value, sizeof(value)) == 0);
}

bool is_system_error(std::error_code error, int system_errno) {
  return error == std::error_code(system_errno, std::system_category());
}

TEST_CASE("messages leave in order, an empty one too, and each completes once") {
  for_each_datagram_mode([](DatagramWorld& world) {
    for (const bool connected : {false, true}) {
      RawSocket peer = world.raw();
      DatagramOptions options;
      if (connected) options.peer = peer.endpoint();
      Party& party = world.open(options);
      CHECK(party.socket.peer_endpoint() == options.peer);
      const std::vector<std::string> sent{"one", "", pattern(1400), pattern(1400), pattern(9000), "last"};
      for (const std::string& message : sent) {
        if (connected) {
          party.send(message);
        } else {
          party.send(peer.endpoint(), message);
        }
      }
      CHECK(party.socket.queued_messages() == sent.size());
      CHECK(party.sends.entries.empty());
      world.run_until([&] { return party.sends.all_completed(); });
      CHECK(party.sends.completed_in_order());
      CHECK(party.sends.failed() == 0);
      CHECK(party.socket.queued_messages() == 0);
      CHECK(party.socket.queued_bytes() == 0);
      CHECK(peer.receive_all() == sent);
    }
  });
}

TEST_CASE("a message of many slices leaves as one") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    const std::string bytes = pattern(3000);
    party.send(peer.endpoint(), in_slices(bytes, 100));
    party.send(peer.endpoint(), in_slices(bytes, 7));
    for (int i = 0; i < 5; ++i) party.send(peer.endpoint(), in_slices(bytes, 50));
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.failed() == 0);
    CHECK(peer.receive_all() == std::vector<std::string>(7, bytes));
  });
}

TEST_CASE("a message that is too long fails alone") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    const std::string large = pattern(std::size_t{1} << 20);
    party.send(peer.endpoint(), "before");
    party.send(peer.endpoint(), large);
    party.send(peer.endpoint(), "between");
    party.send(peer.endpoint(), in_slices(large, 4096));
    party.send(peer.endpoint(), "after");
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.completed_in_order());
    CHECK(party.sends.failed() == 2);
    CHECK(is_system_error(party.sends.error_of(1), EMSGSIZE));
    CHECK(is_system_error(party.sends.error_of(3), EMSGSIZE));
    CHECK(peer.receive_all() == std::vector<std::string>{"before", "between", "after"});
  });
}

TEST_CASE("beyond its bounds the queue refuses, and says when it is writable again") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    DatagramOptions options;
    options.queue_messages = 4;
    options.queue_bytes = 1000;
    Party& party = world.open(options);
    for (int i = 0; i < 4; ++i) party.send(peer.endpoint(), std::to_string(i));
    CHECK(!party.socket.writable());
    party.send(peer.endpoint(), "too many");
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.failed() == 1);
    CHECK(party.sends.error_of(4) == errc::limit_exceeded);
    CHECK(party.events.events == std::vector{Event::writable});
    CHECK(party.socket.writable());

    party.send(peer.endpoint(), pattern(1500));  // an empty queue takes any
    CHECK(!party.socket.writable());
    party.send(peer.endpoint(), "!");
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.error_of(6) == errc::limit_exceeded);
    party.send(peer.endpoint(), pattern(900));
    party.send(peer.endpoint(), pattern(200));
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.error_of(8) == errc::limit_exceeded);
    CHECK(party.events.events == std::vector(3, Event::writable));
    CHECK(peer.receive_all() == std::vector<std::string>{"0", "1", "2", "3", pattern(1500), pattern(900)});
  });
}

TEST_CASE("no callback and no completion runs inside a call") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    DatagramOptions options;
    options.queue_messages = 1;
    Party& party = world.open(options);
    bool inside = false;
    int wrong = 0;
    int returned = 0;
    party.sends.during = [&](const SendLog::Entry&) { wrong += inside ? 1 : 0; };
    const std::string memory = "borrowed";
    const auto borrowed = [&] {
      return Chain(Slice::borrow(std::as_bytes(std::span(memory)), [&]() noexcept {
        ++returned;
        wrong += inside ? 1 : 0;
      }));
    };
    inside = party.events.inside_call = true;
    party.send(peer.endpoint(), borrowed());
    party.send(peer.endpoint(), borrowed());  // refused
    party.socket.pause_read();
    party.socket.start_read();
    inside = party.events.inside_call = false;
    world.run_until([&] { return party.sends.all_completed(); });
    inside = party.events.inside_call = true;
    party.send(peer.endpoint(), borrowed());
    party.socket.close();
    party.send(peer.endpoint(), borrowed());  // refused
    party.socket.abort();
    inside = party.events.inside_call = false;
    world.run_until([&] { return party.events.closed(); });
    CHECK(wrong == 0);
    CHECK(party.events.calls_inside_calls == 0);
    CHECK(returned == 4);
  });
}

TEST_CASE("borrowed memory comes back once, before the completion of its send") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    const std::string memory = pattern(2000);
    std::vector<std::string> order;
    for (const Endpoint& to : {peer.endpoint(), Endpoint()}) {  // the second one fails
      party.socket.send(to,
                        Chain(Slice::borrow(std::as_bytes(std::span(memory)),
                                            [&]() noexcept { order.emplace_back("memory"); })),
                        [&](std::error_code error) { order.emplace_back(error ? "failed" : "sent"); });
    }
    world.run_until([&] { return order.size() == 4; });
    CHECK(order == std::vector<std::string>{"memory", "sent", "memory", "failed"});
    CHECK(peer.receive_all() == std::vector{memory});
  });
}

TEST_CASE("messages of one size leave in one send where the system can, and arrive the same either way") {
  for_each_kernel_udp_mode([](DatagramWorld& world) {
    for (const bool segments : {true, false}) {
      RawSocket peer = world.raw();
      set_option(peer.descriptor(), SOL_SOCKET, SO_RCVBUF, 1 << 20);
      set_option(peer.descriptor(), IPPROTO_UDP, 104, 1);  // UDP_GRO
      DatagramOptions options;
      options.segment_sends = segments;
      Party& party = world.open(options);
      std::string all;
      std::vector<std::size_t> sizes;
      for (int i = 0; i < 100; ++i) sizes.push_back(1000);
      for (const std::size_t size : {300U, 0U, 1000U, 1000U, 1200U, 1U, 40'000U, 40'000U})
        sizes.push_back(size);
      for (const std::size_t size : sizes) {
        const std::string message = pattern(size + 7).substr(7);
        all += message;
        party.send(peer.endpoint(), message);
      }
      world.run_until([&] { return party.sends.all_completed(); });
      CHECK(party.sends.completed_in_order());
      CHECK(party.sends.failed() == 0);

      std::string received;
      std::vector<std::size_t> received_sizes;
      std::size_t calls = 0;
      for (std::string data; peer.receive(data); ++calls) {
        received += data;
        const std::size_t segment =
            peer.segment_bytes != 0 ? static_cast<std::size_t>(peer.segment_bytes) : data.size();
        std::size_t at = 0;
        do {
          received_sizes.push_back(std::min(segment, data.size() - at));
          at += segment;
        } while (at < data.size());
      }
      CHECK(received == all);
      CHECK(received_sizes == sizes);
      if (segments) CHECK(calls < 12);
    }
  });
}

TEST_CASE("where the system refuses segments, messages leave singly and none is lost") {
  for_each_kernel_udp_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    RawSocket made = world.raw();
    set_option(made.descriptor(), SOL_SOCKET, SO_NO_CHECK, 1);  // without a checksum there are none
    Party& party = world.adopt(made.take_socket());
    std::vector<std::string> sent;
    for (std::size_t i = 0; i < 50; ++i) sent.push_back(pattern(i < 20 ? 1400 : 500));
    for (const std::string& message : sent) party.send(peer.endpoint(), message);
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.completed_in_order());
    CHECK(party.sends.failed() == 0);
    CHECK(peer.receive_all() == sent);
  });
}

TEST_CASE("a refusal of the network is told, and the socket goes on") {
  for_each_udp_mode([](DatagramWorld& world) {
    for (const bool connected : {false, true}) {
      for (const bool reads : {true, false}) {
        const Endpoint dead = world.dead_endpoint();
        DatagramOptions options;
        if (connected) options.peer = dead;
        Party& party = world.open(options);
        if (!reads) party.socket.pause_read();
        for (std::size_t i = 1; i <= 3; ++i) {
          party.send(connected ? Endpoint() : dead, "nobody is there");
          world.run_until([&] { return party.events.failures.size() == i; });
        }
        world.base().check_quiet();
        CHECK(party.events.failures.size() == 3);
        for (const DatagramRecorder::Failure& failure : party.events.failures) {
          CHECK(is_system_error(failure.error, ECONNREFUSED));
          CHECK(failure.to == dead);
        }
        CHECK(party.sends.failed() == 0);
        RawSocket late = world.raw_at(dead);
        party.send(connected ? Endpoint() : dead, "somebody is");
        world.run_until([&] { return party.sends.all_completed(); });
        CHECK(late.receive_all() == std::vector<std::string>{"somebody is"});
        if (reads) {
          REQUIRE(late.send(party.endpoint, "yes") == 0);
          world.run_until([&] { return !party.events.messages.empty(); });
        }
      }
    }
  });
}

TEST_CASE("refusals of many messages at once cost no other message") {
  for_each_udp_mode([](DatagramWorld& world) {
    const Endpoint dead = world.dead_endpoint();
    RawSocket alive = world.raw();
    Party& party = world.open();
    std::vector<std::string> expected;
    for (int i = 0; i < 200; ++i) {
      party.send(dead, "nobody " + std::to_string(i));
      party.send(alive.endpoint(), std::to_string(i));
      expected.push_back(std::to_string(i));
    }
    world.run_until([&] { return party.sends.all_completed() && party.events.failures.size() >= 200; });
    CHECK(party.sends.failed() == 0);
    CHECK(alive.receive_all() == expected);
    CHECK(party.events.failures.size() == 200);
    world.base().check_quiet();
  });
}

TEST_CASE("a unix path without a socket is the error of that message alone") {
  for_each_unix_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    party.send(peer.endpoint(), "before");
    party.send(world.free_endpoint(), "no file");
    party.send(world.dead_endpoint(), "no socket");
    party.send(peer.endpoint(), "after");
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.completed_in_order());
    CHECK(is_system_error(party.sends.error_of(1), ENOENT));
    CHECK(is_system_error(party.sends.error_of(2), ECONNREFUSED));
    CHECK(party.sends.failed() == 2);
    CHECK(peer.receive_all() == std::vector<std::string>{"before", "after"});
  });
}

TEST_CASE("a unix peer that is full is waited for, without spinning") {
  for_each_unix_mode([](DatagramWorld& world) {
    for (const bool connected : {false, true}) {
      RawSocket peer = world.raw();
      DatagramOptions options;
      if (connected) options.peer = peer.endpoint();
      Party& party = world.open(options);
      std::vector<std::string> sent;
      for (int i = 0; i < 100; ++i) sent.push_back(std::to_string(i));
      for (const std::string& message : sent) party.send(connected ? Endpoint() : peer.endpoint(), message);
      world.base().check_quiet();
      CHECK(!party.sends.all_completed());
      std::vector<std::string> received;
      world.run_until([&] {
        for (std::string data; peer.receive(data);) received.push_back(data);
        return received.size() == sent.size();
      });
      CHECK(received == sent);
      world.run_until([&] { return party.sends.all_completed(); });
      CHECK(party.sends.completed_in_order());
      CHECK(party.sends.failed() == 0);
    }
  });
}

TEST_CASE("a unix peer that has not read what fills our own buffer is waited for, without spinning") {
  for_each_unix_mode([](DatagramWorld& world) {
    for (const bool connected : {false, true}) {
      RawSocket peer = world.raw();
      DatagramOptions options;
      if (connected) options.peer = peer.endpoint();
      Party& party = world.open(options);
      const std::vector<std::string> sent(20, pattern(30'000));  // fewer fill it than the peer's queue holds
      for (const std::string& message : sent) party.send(connected ? Endpoint() : peer.endpoint(), message);
      world.base().check_quiet();
      CHECK(party.sends.entries.size() < 11);
      std::vector<std::string> received;
      world.run_until([&] {
        for (std::string data; peer.receive(data);) received.push_back(data);
        return received.size() == sent.size();
      });
      CHECK((received == sent));
      world.run_until([&] { return party.sends.all_completed(); });
      CHECK(party.sends.failed() == 0);
    }
  });
}

TEST_CASE("messages to a unix peer that never reads fail after a while, and others get their turn") {
  for_each_unix_mode([](DatagramWorld& world) {
    RawSocket full = world.raw();
    RawSocket peer = world.raw();
    DatagramOptions options;
    options.send_timeout = std::chrono::milliseconds(20);
    Party& party = world.open(options);
    for (int i = 0; i < 20; ++i) party.send(full.endpoint(), std::to_string(i));
    party.send(peer.endpoint(), "in time");
    for (int i = 0; i < 3; ++i) party.send(full.endpoint(), std::to_string(i));
    party.send(peer.endpoint(), "too");
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.completed_in_order());
    CHECK(party.sends.error_of(0) == std::error_code());
    CHECK(party.sends.error_of(19) == errc::timed_out);
    CHECK(party.sends.error_of(22) == errc::timed_out);
    CHECK(peer.receive_all() == std::vector<std::string>{"in time", "too"});
    CHECK(!full.receive_all().empty());
    party.send(full.endpoint(), "again");
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(full.receive_all() == std::vector<std::string>{"again"});
  });
}

TEST_CASE("100,000 messages arrive with their content, all of them where the system loses none") {
  for_each_datagram_mode([](DatagramWorld& world) {
    constexpr std::uint32_t kMessages = test::kSanitized ? 10'000 : 100'000;
    Party& from = world.open();
    Party& to = world.open();
    const std::string body = pattern(1200);
    to.events.keeps_data = true;
    std::uint32_t sent = 0;
    std::uint32_t expected = 0;
    std::uint32_t wrong = 0;
    const auto check_received = [&] {
      for (const Slice& message : to.events.kept) {
        std::uint32_t number = 0;
        if (message.size() < sizeof(number)) {
          ++wrong;
          continue;
        }
        std::memcpy(&number, message.data(), sizeof(number));
        if (number < expected || message.view().substr(sizeof(number)) != body.substr(0, number % 1200))
          ++wrong;
        expected = number + 1;
      }
      to.events.kept.clear();
    };
    to.events.during = [&](Event event) {
      if (event == Event::receive) check_received();
    };
    world.run_until([&] {
      // UDP loses what the receiver has no room for, so no more is under way than that.
      while (sent < kMessages && from.socket.writable() && sent - expected < 50) {
        std::string message(sizeof(sent), '\0');
        std::memcpy(message.data(), &sent, sizeof(sent));
        from.send(to.endpoint, message + body.substr(0, sent % 1200));
        ++sent;
      }
      return expected == kMessages;
    });
    CHECK(wrong == 0);
    CHECK(to.events.messages.size() == kMessages);
    CHECK(from.sends.completed_in_order());
    CHECK(from.sends.failed() == 0);
  });
}

}  // namespace
}  // namespace linkspan::conformance
