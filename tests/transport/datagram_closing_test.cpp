// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What datagram sockets promise about their beginning and their end.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/transport/datagram_harness.hpp"

namespace linkspan::conformance {
namespace {

using Event = DatagramRecorder::Event;

TEST_CASE("close sends what is queued, receives no more, and is told once") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    REQUIRE(peer.send(party.endpoint, "not any more") == 0);
    std::vector<std::string> sent;
    for (int i = 0; i < 8; ++i) sent.push_back(std::to_string(i));
    for (const std::string& message : sent) party.send(peer.endpoint(), message);
    party.socket.close();
    party.socket.close();
    party.send(peer.endpoint(), "too late");
    world.run_until([&] { return party.events.closed(); });
    world.settle();
    CHECK(party.events.events == std::vector{Event::closed});
    CHECK(!party.events.closed_error);
    CHECK(!party.socket);
    CHECK(party.sends.all_completed());
    CHECK(party.sends.failed() == 1);
    CHECK(party.sends.error_of(8) == errc::shut_down);
    CHECK(peer.receive_all() == sent);
  });
}

TEST_CASE("what cannot be sent by the deadline of close fails with it") {
  for_each_unix_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    for (int i = 0; i < 50; ++i) party.send(peer.endpoint(), std::to_string(i));
    party.socket.close(std::chrono::milliseconds(20));
    world.run_until([&] { return party.events.closed(); });
    CHECK(party.events.closed_error == errc::timed_out);
    CHECK(party.sends.completed_in_order());
    CHECK(party.sends.error_of(0) == std::error_code());
    CHECK(party.sends.error_of(49) == errc::timed_out);
  });
}

TEST_CASE("abort cancels what is queued, also while it waits for room") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    for (const bool later : {false, true}) {
      Party& party = world.open();
      for (int i = 0; i < 50; ++i) party.send(peer.endpoint(), std::to_string(i));
      if (later) world.settle();
      party.socket.abort();
      party.socket.close();
      world.run_until([&] { return party.events.closed(); });
      CHECK(party.events.closed_error == errc::aborted);
      CHECK(party.events.count(Event::closed) == 1);
      CHECK(party.sends.completed_in_order());
      if (!later) CHECK(party.sends.failed() == 50);
      if (world.is_unix()) CHECK(party.sends.error_of(49) == errc::cancelled);
    }
  });
}

TEST_CASE("a socket may be closed, aborted or destroyed in each of its callbacks") {
  for_each_datagram_mode([](DatagramWorld& world) {
    enum class How { close, abort, destroy };
    for (const How how : {How::close, How::abort, How::destroy}) {
      for (const Event when : {Event::receive, Event::error, Event::writable}) {
        if (when == Event::error && world.is_unix()) continue;
        RawSocket peer = world.raw();
        const Endpoint dead = world.dead_endpoint();
        DatagramOptions options;
        options.queue_messages = 4;
        options.receive_batch = 1;
        Party& party = world.open(options);
        bool done = false;
        party.events.during = [&](Event event) {
          if (event != when || done) return;
          done = true;
          if (how == How::close) party.socket.close();
          if (how == How::abort) party.socket.abort();
          if (how == How::destroy) party.socket = DatagramSocket();
        };
        for (int i = 0; i < 3; ++i) REQUIRE(peer.send(party.endpoint, std::to_string(i)) == 0);
        for (int i = 0; i < 5; ++i) {
          party.send(when == Event::error ? dead : peer.endpoint(), std::to_string(i));
        }
        world.run_until([&] {
          return done && party.sends.all_completed() && (how == How::destroy || party.events.closed());
        });
        world.settle();
        CHECK(party.sends.all_completed());
        CHECK(party.events.count(Event::closed) == (how == How::destroy ? 0 : 1));
        if (when == Event::receive) CHECK(party.events.messages.size() == 1);
      }
    }
  });
}

TEST_CASE("a socket may be destroyed in a completion, and the others still come") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    party.sends.during = [&](const SendLog::Entry& entry) {
      if (entry.send == 2) party.socket = DatagramSocket();
    };
    for (int i = 0; i < 6; ++i) party.send(peer.endpoint(), std::to_string(i));
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(party.sends.completed_in_order());
    CHECK(party.events.events.empty());
  });
}

TEST_CASE("a completion may send again, also at the end") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    party.sends.during = [&](const SendLog::Entry& entry) {
      if (entry.send < 3 && party.socket) party.send(peer.endpoint(), "again");
    };
    party.send(peer.endpoint(), "first");
    party.socket.close();
    world.run_until([&] { return party.events.closed(); });
    CHECK(party.sends.all_completed());
    CHECK(party.sends.error_of(1) == errc::shut_down);
    CHECK(peer.receive_all() == std::vector<std::string>{"first"});
  });
}

TEST_CASE("a handle that moves takes its socket along, and one that is replaced aborts") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& first = world.open();
    Party& second = world.open();
    DatagramSocket moved = std::move(first.socket);
    CHECK(!first.socket);
    moved.send(peer.endpoint(), chain_of("moved"), first.sends.next());
    world.run_until([&] { return first.sends.all_completed(); });
    CHECK(peer.receive_all() == std::vector<std::string>{"moved"});
    second.send(peer.endpoint(), "never");
    second.socket = std::move(moved);
    world.run_until([&] { return second.sends.all_completed(); });
    CHECK(second.sends.error_of(0) == errc::cancelled);
    second.socket.close();
    world.run_until([&] { return first.events.closed(); });
    CHECK(!second.events.closed());
  });
}

TEST_CASE("a loop that stops aborts its sockets, and every completion comes") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    Party& party = world.open();
    for (int i = 0; i < 50; ++i) party.send(peer.endpoint(), std::to_string(i));
    world.settle();
    party.send(peer.endpoint(), "last");
    world.base().destroy_loop();
    CHECK(party.events.count(Event::closed) == 1);
    CHECK(party.events.closed_error == errc::aborted);
    CHECK(party.sends.completed_in_order());
    CHECK(party.sends.error_of(50) == errc::cancelled);
    CHECK(!party.socket);
  });
}

TEST_CASE("a socket that was made elsewhere is adopted as it is") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    RawSocket made = world.raw();
    const Endpoint endpoint = made.endpoint();
    REQUIRE(peer.send(endpoint, "early") == 0);
    Party& party = world.adopt(made.take_socket());
    CHECK(party.endpoint == endpoint);
    party.send(peer.endpoint(), "hello");
    world.run_until([&] { return party.events.messages.size() == 1 && party.sends.all_completed(); });
    CHECK(party.events.data() == std::vector<std::string>{"early"});
    CHECK(peer.receive_all() == std::vector<std::string>{"hello"});
    party.socket.close();
    world.run_until([&] { return party.events.closed(); });
    // The path was made by somebody else, who removes it.
    if (world.is_unix()) CHECK(world.base().exists(endpoint));
  });
}

TEST_CASE("what is no datagram socket, and options without sense, are refused with the reason") {
  for_each_datagram_mode([](DatagramWorld& world) {
    DatagramRecorder events;
    const auto refused = [&](Result<DatagramSocket> result, std::string_view reason) {
      REQUIRE(!result);
      CHECK(result.error().code == errc::invalid_argument);
      CHECK(result.error().message().find(reason) != std::string::npos);
    };
    Transport& transport = world.transport();
    const Endpoint free = world.free_endpoint();
    refused(transport.open_datagram(world.base().raw_listener(), {}, events), "no datagram socket");
    refused(transport.open_datagram(Socket(), {}, events), "no datagram socket");
    refused(transport.open_datagram(Endpoint(), {}, events), "an address, a peer, or both");
    DatagramOptions options;
    options.max_receive_bytes = 0;
    refused(transport.open_datagram(free, options, events), "max_receive_bytes is 0 (expected 1 to 65536)");
    options = {};
    options.receive_batch = 0;
    refused(transport.open_datagram(free, options, events), "receive_batch");
    options = {};
    options.queue_messages = 0;
    refused(transport.open_datagram(free, options, events), "queue_messages");
  });
}

TEST_CASE("an address that is taken is an error that names it") {
  for_each_datagram_mode([](DatagramWorld& world) {
    const RawSocket owner = world.raw();
    DatagramRecorder events;
    const Result<DatagramSocket> second = world.transport().open_datagram(owner.endpoint(), {}, events);
    REQUIRE(!second);
    CHECK(second.error().code == std::errc::address_in_use);
    CHECK(second.error().message().find(owner.endpoint().to_string()) != std::string::npos);
  });
}

TEST_CASE("a socket with a peer alone needs no address") {
  for_each_datagram_mode([](DatagramWorld& world) {
    RawSocket peer = world.raw();
    DatagramOptions options;
    options.peer = peer.endpoint();
    Party& party = world.open(Endpoint(), options);
    party.send("hello");
    world.run_until([&] { return party.sends.all_completed(); });
    CHECK(peer.receive_all() == std::vector<std::string>{"hello"});
    if (!world.is_unix()) {
      REQUIRE(peer.send(party.socket.local_endpoint(), "back") == 0);
      world.run_until([&] { return party.events.messages.size() == 1; });
      RawSocket stranger = world.raw();
      REQUIRE(stranger.send(party.socket.local_endpoint(), "stranger") == 0);
      world.settle();
      CHECK(party.events.messages.size() == 1);
    }
  });
}

TEST_CASE("a unix path is taken over from the dead, and removed at the end") {
  for_each_unix_mode([](DatagramWorld& world) {
    const Endpoint stale = world.dead_endpoint();
    REQUIRE(world.base().exists(stale));
    Party& party = world.open(stale, {});
    CHECK(party.endpoint == stale);
    party.socket.close();
    world.run_until([&] { return party.events.closed(); });
    CHECK(!world.base().exists(stale));
  });
}

TEST_CASE("a file in the way of a unix socket is left alone") {
  for_each_kernel_unix_mode([](DatagramWorld& world) {
    const Endpoint file = world.free_endpoint();
    std::ofstream(file.unix_path()) << "precious";
    DatagramRecorder events;
    CHECK(!world.transport().open_datagram(file, {}, events));
    CHECK(std::filesystem::file_size(file.unix_path()) == 8);
  });
}

TEST_CASE("a descriptor that a peer passes is not let in") {
  for_each_kernel_unix_mode([](DatagramWorld& world) {
    Party& party = world.open();
    RawSocket peer = world.raw();
    const auto open_descriptors = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    };
    REQUIRE(peer.send(party.endpoint, "before") == 0);
    world.run_until([&] { return party.events.messages.size() == 1; });
    const auto before = open_descriptors();
    const int passed = peer.descriptor();
    iovec vector{const_cast<char*>("gift"), 4};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(party.endpoint.address());
    message.msg_namelen = static_cast<socklen_t>(party.endpoint.address_size());
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(passed));
    std::memcpy(CMSG_DATA(header), &passed, sizeof(passed));
    REQUIRE(::sendmsg(peer.descriptor(), &message, 0) == 4);
    world.run_until([&] { return party.events.messages.size() == 2; });
    CHECK(party.events.messages[1].data == "gift");
    CHECK(!party.events.messages[1].truncated);
    CHECK(open_descriptors() == before);
  });
}

TEST_CASE("a sender without an address has an unnamed one") {
  for_each_unix_mode([](DatagramWorld& world) {
    Party& party = world.open();
    RawSocket unnamed = RawSocket::connected(world.base(), party.endpoint);
    REQUIRE(unnamed.send(Endpoint(), "hi") == 0);
    world.run_until([&] { return party.events.messages.size() == 1; });
    CHECK(party.events.messages[0].data == "hi");
    CHECK(party.events.messages[0].from.unix_path().empty());
  });
}

}  // namespace
}  // namespace linkspan::conformance
