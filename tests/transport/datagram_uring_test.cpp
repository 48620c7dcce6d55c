// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What only io_uring's datagram sockets have: multishot receives that end, rings of blocks that run out, and
// the rest from the large ring.
#include <chrono>
#include <string>
#include <vector>

#include "lib/transport/uring/uring_transport.hpp"
#include "tests/transport/datagram_harness.hpp"

namespace linkspan::conformance {
namespace {

class UringDatagramWorld : public DatagramWorld {
 public:
  explicit UringDatagramWorld(const UringOptions& options, EventLoopOptions loop_options = {},
                              Family family = Family::tcp4)
      : DatagramWorld(
            {"io_uring", family}, [options](EventLoop& loop) { return make_uring_transport(loop, options); },
            std::move(loop_options)) {}
};

// Messages of several sizes, more at once than the ring has blocks, empty ones among them.
void check_receives(UringDatagramWorld& world, const DatagramOptions& options, std::size_t largest) {
  Party& party = world.open(options);
  RawSocket peer = world.raw();
  std::vector<std::string> sent;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{600}, std::size_t{1400},
                                   std::size_t{0}, largest, std::size_t{3}, largest / 2}) {
      sent.push_back(pattern(size));
      REQUIRE(peer.send(party.endpoint, sent.back()) == 0);
    }
    world.run_until([&] { return party.events.messages.size() >= sent.size(); });
  }
  CHECK(party.events.data() == sent);
  for (const DatagramRecorder::Message& message : party.events.messages) {
    CHECK(message.from == peer.endpoint());
    CHECK(!message.truncated);
  }
  world.base().check_quiet();
}

DatagramOptions small_messages() {
  DatagramOptions options;
  options.max_receive_bytes = 3000;
  options.coalesce_receives = false;
  return options;
}

}  // namespace

TEST_CASE("datagrams: receives go on when they end for want of blocks, or with an empty message") {
  for (const Family family : {Family::tcp4, Family::unix_path}) {
    for (const unsigned blocks : {1U, 2U, 32U}) {
      UringOptions options;
      options.small_buffers = options.bulk_buffers = blocks;
      UringDatagramWorld world(options, {}, family);
      check_receives(world, {}, 65'507);
      check_receives(world, small_messages(), 3000);
    }
  }
}

TEST_CASE("datagrams: one-shot receives stand in for multishot ones") {
  for (const Family family : {Family::tcp4, Family::unix_path}) {
    UringOptions options;
    options.multishot_receive = false;
    UringDatagramWorld world(options, {}, family);
    check_receives(world, {}, 65'507);
    check_receives(world, small_messages(), 3000);
    if (family == Family::unix_path) continue;
    Party& party = world.open();
    RawSocket peer = world.raw();
    REQUIRE(peer.send_in_segments(party.endpoint, pattern(2500), 1000) == 0);
    world.run_until([&] { return party.events.messages.size() == 3; });
  }
}

TEST_CASE("datagrams: one ring of blocks serves all where there are no two") {
  UringOptions only_small;
  only_small.bulk_buffers = 0;
  UringDatagramWorld small(only_small);
  check_receives(small, {}, 3500);
  Party& party = small.open();
  RawSocket peer = small.raw();
  REQUIRE(peer.send(party.endpoint, pattern(9000)) == 0);  // the ring's blocks are 4 KiB
  REQUIRE(peer.send_in_segments(party.endpoint, pattern(9000), 1000) == 0);
  small.run_until([&] { return party.events.messages.size() == 10; });
  CHECK(party.events.messages[0].truncated);
  CHECK(!party.events.messages[9].truncated);

  UringOptions only_bulk;
  only_bulk.small_buffers = 0;
  UringDatagramWorld bulk(only_bulk);
  check_receives(bulk, {}, 65'507);
  check_receives(bulk, small_messages(), 3000);
}

TEST_CASE(
    "datagrams: the large ring's blocks go back while nothing comes, and are there again when it does") {
  UringOptions options;
  options.bulk_idle = std::chrono::milliseconds(5);
  EventLoopOptions loop_options;
  loop_options.pool.cache_bytes = 0;
  UringDatagramWorld world(options, loop_options);
  const auto large_blocks = [&] { return world.loop().pool().statistics().classes.back().live_blocks; };
  Party& party = world.open();
  RawSocket peer = world.raw();
  world.settle();
  CHECK(large_blocks() == 0);
  for (std::size_t i = 1; i <= 3; ++i) {
    REQUIRE(peer.send(party.endpoint, pattern(60'000)) == 0);
    world.run_until([&] { return party.events.messages.size() == i; });
    CHECK(large_blocks() > 0);
    world.run_until([&] { return large_blocks() == 0; });
  }
  world.base().check_quiet();
  party.socket.close();
  world.run_until([&] { return party.events.closed(); });
}

TEST_CASE("datagrams: streams and sockets that share the large ring do not disturb each other") {
  UringDatagramWorld world({});
  Connection& connection = world.base().open();
  connection.stream.start_read();
  Party& party = world.open();
  RawSocket peer = world.raw();
  const std::string bulk = pattern(std::size_t{4} << 20);
  connection.peer.send(bulk);
  std::vector<std::string> sent;
  world.run_until([&] {
    if (sent.size() < 200 && sent.size() == party.events.messages.size()) {
      sent.push_back(pattern(65'507 - sent.size()));
      REQUIRE(peer.send(party.endpoint, sent.back()) == 0);
    }
    return connection.events.received.size() == bulk.size() && party.events.messages.size() == 200;
  });
  CHECK((connection.events.received == bulk));
  CHECK(party.events.data() == sent);
}

}  // namespace linkspan::conformance
