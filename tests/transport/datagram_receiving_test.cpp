// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What datagram sockets promise about receiving.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

#include "linkspan/buffer/copy_ledger.hpp"
#include "tests/transport/datagram_harness.hpp"

namespace linkspan::conformance {
namespace {

using Event = DatagramRecorder::Event;

TEST_CASE("a message arrives as it was sent, with its sender, an empty one too") {
  for_each_datagram_mode([](DatagramWorld& world) {
    Party& party = world.open();
    RawSocket peer = world.raw();
    const std::vector<std::string> sent{"one", "", pattern(1400), pattern(9000), "last"};
    for (const std::string& message : sent) REQUIRE(peer.send(party.endpoint, message) == 0);
    world.run_until([&] { return party.events.messages.size() == sent.size(); });
    CHECK(party.events.data() == sent);
    for (const DatagramRecorder::Message& message : party.events.messages) {
      CHECK(message.from == peer.endpoint());
      CHECK(!message.truncated);
    }
    world.base().check_quiet();
  });
}

TEST_CASE("messages of every size up to the largest arrive whole by default") {
  for_each_datagram_mode([](DatagramWorld& world) {
    Party& party = world.open();
    RawSocket peer = world.raw();
    for (const std::size_t size : {1U, 511U, 512U, 3000U, 4096U, 20'000U, 65'000U, 65'507U}) {
      const std::size_t before = party.events.messages.size();
      REQUIRE(peer.send(party.endpoint, pattern(size)) == 0);
      world.run_until([&] { return party.events.messages.size() == before + 1; });
      CHECK(party.events.messages.back().data == pattern(size));
      CHECK(!party.events.messages.back().truncated);
    }
  });
}

TEST_CASE("a message that is too long is cut and flagged, its neighbours are not") {
  for_each_datagram_mode([](DatagramWorld& world) {
    for (const bool coalesces : {true, false}) {
      DatagramOptions options;
      options.max_receive_bytes = 100;
      options.coalesce_receives = coalesces;
      Party& party = world.open(options);
      RawSocket peer = world.raw();
      REQUIRE(peer.send(party.endpoint, pattern(100)) == 0);
      REQUIRE(peer.send(party.endpoint, pattern(101)) == 0);
      REQUIRE(peer.send(party.endpoint, pattern(99)) == 0);
      world.run_until([&] { return party.events.messages.size() == 3; });
      CHECK(party.events.data() == std::vector{pattern(100), pattern(101).substr(0, 100), pattern(99)});
      CHECK(!party.events.messages[0].truncated);
      CHECK(party.events.messages[1].truncated);
      CHECK(!party.events.messages[2].truncated);
    }
  });
}

TEST_CASE("many senders come in batches, each message with its own sender") {
  for_each_datagram_mode([](DatagramWorld& world) {
    Party& party = world.open();
    constexpr std::size_t kSenders = 8;  // the queue of a unix socket holds eleven messages
    std::vector<RawSocket> peers;
    for (std::size_t i = 0; i < kSenders; ++i) peers.push_back(world.raw());
    for (std::size_t round = 1; round <= 5; ++round) {
      for (std::size_t i = 0; i < kSenders; ++i) {
        REQUIRE(peers[i].send(party.endpoint, std::to_string(i)) == 0);
      }
      world.run_until([&] { return party.events.messages.size() == round * kSenders; });
    }
    for (const DatagramRecorder::Message& message : party.events.messages) {
      CHECK(message.from == peers[static_cast<std::size_t>(std::stoi(message.data))].endpoint());
    }
    CHECK(std::ranges::max(party.events.batches) > 1);
  });
}

TEST_CASE("no batch is larger than asked for") {
  for_each_datagram_mode([](DatagramWorld& world) {
    DatagramOptions options;
    options.receive_batch = 3;
    Party& party = world.open(options);
    RawSocket peer = world.raw();
    for (int i = 0; i < 10; ++i) REQUIRE(peer.send(party.endpoint, std::to_string(i)) == 0);
    world.run_until([&] { return party.events.messages.size() == 10; });
    CHECK(std::ranges::max(party.events.batches) <= 3);
  });
}

TEST_CASE("after pause_read returns no message comes, and all come in order after start_read") {
  for_each_datagram_mode([](DatagramWorld& world) {
    DatagramOptions options;
    options.receive_batch = 1;
    Party& party = world.open(options);
    RawSocket peer = world.raw();
    std::vector<std::string> sent;
    for (int i = 0; i < 10; ++i) sent.push_back(std::to_string(i));
    party.events.during = [&](Event) { party.socket.pause_read(); };
    for (const std::string& message : sent) REQUIRE(peer.send(party.endpoint, message) == 0);
    for (std::size_t i = 1; i <= sent.size(); ++i) {
      world.run_until([&] { return party.events.messages.size() == i; });
      world.settle();
      CHECK(party.events.messages.size() == i);
      party.socket.start_read();
    }
    CHECK(party.events.data() == sent);
  });
}

TEST_CASE("an idle or paused socket does not spin, with or without messages") {
  for_each_datagram_mode([](DatagramWorld& world) {
    Party& party = world.open();
    RawSocket peer = world.raw();
    world.base().check_quiet();
    party.socket.pause_read();
    REQUIRE(peer.send(party.endpoint, "waits") == 0);
    world.base().check_quiet();
    CHECK(party.events.messages.empty());
    party.socket.start_read();
    world.run_until([&] { return party.events.messages.size() == 1; });
    world.base().check_quiet();
  });
}

TEST_CASE("what the network coalesced comes out as the messages that were sent") {
  for_each_kernel_udp_mode([](DatagramWorld& world) {
    for (const bool coalesces : {true, false}) {
      DatagramOptions options;
      options.coalesce_receives = coalesces;
      Party& party = world.open(options);
      RawSocket peer = world.raw();
      const std::string all = pattern(64 * 1000 - 300);
      REQUIRE(peer.send_in_segments(party.endpoint, all, 1000) == 0);
      REQUIRE(peer.send(party.endpoint, "single") == 0);
      REQUIRE(peer.send_in_segments(party.endpoint, all.substr(0, 2500), 1250) == 0);
      std::vector<std::string> expected;
      for (std::size_t at = 0; at < all.size(); at += 1000) expected.push_back(all.substr(at, 1000));
      expected.emplace_back("single");
      expected.push_back(all.substr(0, 1250));
      expected.push_back(all.substr(1250, 1250));
      world.run_until([&] { return party.events.messages.size() == expected.size(); });
      CHECK(party.events.data() == expected);
      for (const DatagramRecorder::Message& message : party.events.messages) {
        CHECK(message.from == peer.endpoint());
      }
    }
  });
}

TEST_CASE("each of the messages that were coalesced is cut by itself") {
  for_each_kernel_udp_mode([](DatagramWorld& world) {
    DatagramOptions options;
    options.max_receive_bytes = 700;
    Party& party = world.open(options);
    RawSocket peer = world.raw();
    const std::string all = pattern(2500);
    REQUIRE(peer.send_in_segments(party.endpoint, all, 1000) == 0);
    world.run_until([&] { return party.events.messages.size() == 3; });
    CHECK(party.events.data() ==
          std::vector{all.substr(0, 700), all.substr(1000, 700), all.substr(2000, 500)});
    CHECK(party.events.messages[0].truncated);
    CHECK(party.events.messages[1].truncated);
    CHECK(!party.events.messages[2].truncated);
  });
}

TEST_CASE("a small message that is kept pins little, and its copy is counted") {
  for_each_datagram_mode([](DatagramWorld& world) {
    Party& party = world.open();
    party.events.keeps_data = true;
    RawSocket peer = world.raw();
    const CopyScope scope;
    REQUIRE(peer.send(party.endpoint, "little") == 0);
    REQUIRE(peer.send(party.endpoint, pattern(1400)) == 0);
    REQUIRE(peer.send(party.endpoint, pattern(30'000)) == 0);
    world.run_until([&] { return party.events.messages.size() == 3; });
    CHECK(party.events.kept[0].pinned_size() <= 512);
    CHECK(party.events.kept[1].pinned_size() <= 2048);
    CHECK(party.events.kept[2].pinned_size() <= 256 * 1024);
    CHECK(scope.copied()[CopyPlace::receive] == 6 + 1400);
  });
}

TEST_CASE("an exhausted pool pauses receiving, which goes on when blocks are back") {
  for_each_datagram_mode_name({Family::tcp4, Family::tcp6, Family::unix_path}, [](const Mode& mode) {
    EventLoopOptions options;
    options.pool.budget_bytes = std::size_t{2} << 20;
    options.pool.cache_bytes = 0;
    DatagramWorld world(mode, options);
    Party& party = world.open();
    RawSocket peer = world.raw();
    std::vector<Block> hoard;
    world.settle();
    for (const std::size_t size : {std::size_t{256} * 1024, std::size_t{4096}, std::size_t{512}}) {
      while (Block block = world.loop().pool().allocate(size)) hoard.push_back(std::move(block));
    }
    for (int i = 0; i < 10; ++i) REQUIRE(peer.send(party.endpoint, pattern(3000)) == 0);
    world.settle();
    hoard.clear();
    world.run_until([&] { return party.events.messages.size() == 10; });
    for (const DatagramRecorder::Message& message : party.events.messages) {
      CHECK(message.data == pattern(3000));
    }
    world.base().check_quiet();
  });
}

TEST_CASE("one message a call does the same where the system has no batches") {
  for_each_datagram_mode([](DatagramWorld& world) {
    DatagramOptions options;
    options.batched_calls = false;
    options.segment_sends = false;
    options.coalesce_receives = false;
    Party& left = world.open(options);
    Party& right = world.open(options);
    std::vector<std::string> sent;
    world.run_until([&] {
      // UDP loses what the receiver has no room for.
      while (sent.size() < 300 && sent.size() - right.events.messages.size() < 50) {
        sent.push_back(pattern(sent.size() * 7 % 1500));
        left.send(right.endpoint, sent.back());
      }
      return right.events.messages.size() == 300;
    });
    CHECK(right.events.data() == sent);
    CHECK(left.sends.completed_in_order());
    CHECK(left.sends.failed() == 0);
  });
}

// A peer that nobody here wrote: Python's sockets, in a process of their own.
int run_python(const std::string& script, const std::vector<std::string>& arguments) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::vector<char*> words{const_cast<char*>("python3"), const_cast<char*>("-c"),
                             const_cast<char*>(script.c_str())};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    ::execvp("python3", words.data());
    ::_exit(127);
  }
  return child;
}

TEST_CASE("Python's sockets and ours understand each other") {
  for_each_kernel_datagram_mode([](DatagramWorld& world) {
    Party& party = world.open();
    // Sends messages of several sizes, expects each one back from where it was sent to.
    const std::string script = R"(
import socket, sys
kind, at, to = sys.argv[1:4]
family = {'4': socket.AF_INET, '6': socket.AF_INET6, 'u': socket.AF_UNIX}[kind]
s = socket.socket(family, socket.SOCK_DGRAM)
s.settimeout(20)
if kind == 'u':
    s.bind(at)
else:
    to = ({'4': '127.0.0.1', '6': '::1'}[kind], int(to))
for size in (0, 1, 1400, 9000, 60000):
    message = bytes(i * 31 % 251 for i in range(size))
    s.sendto(message, to)
    answer, sender = s.recvfrom(65536)
    if answer != message or (sender if kind == 'u' else sender[:2]) != to:
        sys.exit(1)
)";
    const bool is_v6 = world.base().mode().family == Family::tcp6;
    const pid_t child = run_python(
        script, {world.is_unix() ? "u" : (is_v6 ? "6" : "4"), world.free_endpoint().unix_path(),
                 world.is_unix() ? party.endpoint.unix_path() : std::to_string(party.endpoint.port())});
    std::size_t echoed = 0;
    int status = -1;
    world.run_until([&] {
      for (; echoed < party.events.messages.size(); ++echoed) {
        const DatagramRecorder::Message& message = party.events.messages[echoed];
        party.send(message.from, message.data);
      }
      return ::waitpid(child, &status, WNOHANG) == child;
    });
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
      MESSAGE("python3 is not installed: left out");
      return;
    }
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(party.events.messages.size() == 5);
  });
}

}  // namespace
}  // namespace linkspan::conformance
