// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Cancels that miss: the kernel does not find an operation that is between two of its states, and has it all
// the same. Here it is withheld until its cancel has missed.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "lib/loop/file_call.hpp"
#include "lib/transport/uring/uring_transport.hpp"
#include "tests/transport/datagram_harness.hpp"
#include "tests/transport/harness.hpp"
#include "tests/transport/withheld_operation.hpp"

namespace linkspan::conformance {
namespace {

struct UringWorld : World {
  explicit UringWorld(Family family = Family::tcp4)
      : World({"io_uring", family}, [](EventLoop& loop) { return make_uring_transport(loop); }, {}) {}
};

struct UringDatagramWorld : DatagramWorld {
  explicit UringDatagramWorld(Family family)
      : DatagramWorld({"io_uring", family}, [](EventLoop& loop) { return make_uring_transport(loop); }) {}
};

// The cancel misses; then the kernel has the operation.
void miss(World& world, WithheldOperation& operation) {
  world.settle();
  operation.arrive();
  world.settle();
}

// Takes all the room that sends have.
void fill(int descriptor) {
  const std::string bytes = pattern(100'000);
  while (::send(descriptor, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  REQUIRE(errno == EAGAIN);
}

}  // namespace

TEST_CASE("a cancel that misses is made again: the receive of a stream that pauses") {
  UringWorld world;
  Connection& c = world.open();
  world.settle();
  c.stream.start_read();
  WithheldOperation receive(world);
  REQUIRE(receive.operation() == IORING_OP_RECV);
  c.stream.pause_read();
  miss(world, receive);
  const std::uint64_t received = world.loop().counters().bytes_received.get();
  c.peer.send("hello");
  world.check_quiet();
  CHECK(world.loop().counters().bytes_received.get() == received);
  CHECK_FALSE(receive.in_kernel());
  c.stream.start_read();
  world.run_until([&] { return c.events.received == "hello"; });
}

TEST_CASE("a cancel that misses is made again, once a tick, for as long as it does") {
  UringWorld world;
  Connection& c = world.open();
  world.settle();
  c.stream.start_read();
  WithheldOperation receive(world);
  c.stream.pause_read();
  const LoopCounters& counters = world.loop().counters();
  const std::uint64_t ticks = counters.ticks.get();
  const std::uint64_t system_calls = counters.system_calls.get();
  for (int i = 0; i < 10; ++i) world.settle();
  CHECK(counters.ticks.get() - ticks <= 100);
  CHECK(counters.system_calls.get() - system_calls == counters.ticks.get() - ticks);
  SUBCASE("until the operation is there") {
    receive.arrive();
  }
  SUBCASE("until the operation has ended by itself") {
    receive.complete(-ECANCELED);
  }
  world.check_quiet();
  c.stream.abort();
  world.run_until([&] { return c.events.closed(); });
}

TEST_CASE("a cancel that misses is made again: the poll of a stream that has something to write no more") {
  UringWorld world;
  Connection& c = world.open();
  world.settle();
  serve_another(world);
  c.write("hello");
  WithheldOperation send(world);
  REQUIRE(send.operation() == IORING_OP_SEND);
  send.complete(-EAGAIN);
  WithheldOperation poll(world);
  REQUIRE(poll.operation() == IORING_OP_POLL_ADD);
  poll.complete(POLLOUT, IORING_CQE_F_MORE);
  miss(world, poll);
  CHECK(c.peer.received == "hello");
  CHECK_FALSE(poll.in_kernel());
  c.stream.abort();
  world.run_until([&] { return c.events.closed(); });
}

TEST_CASE("a cancel that misses is made again: the send of a stream that is aborted") {
  for (const bool zero_copy : {false, true}) {
    CAPTURE(zero_copy);
    UringWorld world;
    StreamOptions options;
    if (zero_copy) options.zero_copy_bytes = 1;
    Connection& c = world.open(options);
    world.settle();
    c.peer.reads = false;
    serve_another(world);
    c.write(pattern(1'000'000));
    WithheldOperation send(world);
    REQUIRE(send.operation() == (zero_copy ? IORING_OP_SENDMSG_ZC : IORING_OP_SEND));
    c.stream.abort();
    world.settle();
    CHECK_FALSE(c.events.closed());
    fill(send.descriptor());
    send.arrive();
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error == errc::aborted);
    CHECK(c.writes.complete_and_in_order());
  }
}

TEST_CASE("a cancel that misses is made again: the accept of a listener that is closed") {
  UringWorld world;
  Acceptor acceptor;
  Result<Listener> listener = world.transport().listen(world.free_endpoint(), {}, acceptor);
  REQUIRE(listener);
  WithheldOperation accept(world);
  REQUIRE(accept.operation() == IORING_OP_ACCEPT);
  listener.value().close();
  miss(world, accept);
  CHECK_FALSE(accept.in_kernel());
  world.check_quiet();
}

TEST_CASE("a cancel that misses is made again: an attempt that nobody wants any more") {
  UringWorld world;
  const FullListener full(world);
  Connection& c = world.connect(full.endpoint);
  WithheldOperation attempt(world);
  REQUIRE(attempt.operation() == IORING_OP_CONNECT);
  c.stream.abort();
  miss(world, attempt);
  world.run_until([&] { return c.events.closed(); });
  CHECK(c.events.closed_error == errc::aborted);
}

TEST_CASE("a cancel that misses is made again: the receive of a datagram socket that pauses or is aborted") {
  for (const Family family : {Family::tcp4, Family::unix_path}) {
    for (const bool resting : {false, true}) {
      for (const bool pauses : {false, true}) {
        CAPTURE(resting);
        CAPTURE(pauses);
        UringDatagramWorld world(family);
        DatagramOptions options;
        options.coalesce_receives = false;
        if (!resting) options.max_receive_bytes = 1000;
        Party& party = world.open(options);
        party.socket.pause_read();
        world.settle();
        party.socket.start_read();
        WithheldOperation receive(world.base());
        REQUIRE(receive.operation() == (resting ? IORING_OP_POLL_ADD : IORING_OP_RECVMSG));
        if (pauses) {
          party.socket.pause_read();
        } else {
          party.socket.abort();
        }
        miss(world.base(), receive);
        CHECK(party.events.closed() != pauses);
        CHECK_FALSE(receive.in_kernel());
      }
    }
  }
}

TEST_CASE("a cancel that misses is made again: a datagram socket that is aborted while it waits for room") {
  UringDatagramWorld world(Family::unix_path);
  const RawSocket full = world.raw();
  RawSocket other = world.raw();
  while (other.send(full.endpoint(), "x") == 0) {
  }
  Party& party = world.open();
  world.settle();
  party.send(full.endpoint(), "y");
  WithheldOperation room(world.base());
  REQUIRE(room.operation() == IORING_OP_POLL_ADD);
  party.socket.abort();
  miss(world.base(), room);
  CHECK(party.events.closed());
  CHECK(party.sends.all_completed());
}

TEST_CASE("a cancel that misses is made again: the watch of a datagram socket that is aborted") {
  UringDatagramWorld world(Family::tcp4);
  DatagramRecorder events;
  Result<DatagramSocket> socket = world.transport().open_datagram(world.free_endpoint(), {}, events);
  REQUIRE(socket);
  WithheldOperation watch(world.base());
  REQUIRE(watch.operation() == IORING_OP_POLL_ADD);
  socket.value().abort();
  miss(world.base(), watch);
  CHECK(events.closed());
}

// --- files

namespace {

// A read of a pipe, which is withheld until finish_all waits for the first time.
class PipeRead final : public FileCall, public CompletionTarget {
 public:
  PipeRead(UringTransport& transport, int pipe) : FileCall(Kind::read), ring_(transport.ring()) {
    descriptor = pipe;
    into = memory_;
    transport.file_calls()->start(*this);
    io_uring_sqe& next = ring_.next_entry();
    io_uring_sqe& read = *(&next - 1);
    entry_ = std::make_unique<io_uring_sqe>(read);
    for (io_uring_sqe* entry : {&next, &read}) {
      io_uring_prep_nop(entry);
      entry->user_data = key(0);
    }
  }

  void on_completion(unsigned, int, unsigned) override {
    if (std::exchange(arrived_, true)) return;
    ring_.next_entry() = *entry_;
  }
  void on_result(int completion) noexcept override { result = completion; }

  std::optional<int> result;

 private:
  Ring& ring_;
  std::unique_ptr<io_uring_sqe> entry_;
  std::array<std::byte, 16> memory_;
  bool arrived_ = false;
};

}  // namespace

TEST_CASE("a cancel that misses is made again: a file call when the loop stops") {
  UringWorld world;
  std::array<int, 2> pipe;
  REQUIRE(::pipe(pipe.data()) == 0);
  const Socket reading(pipe[0]);
  Socket writing(pipe[1]);
  PipeRead read(static_cast<UringTransport&>(world.transport()), reading.descriptor());
  std::promise<void> finished;
  // Lest it waits for ever.
  std::thread closing([&, wait = finished.get_future()] {
    static_cast<void>(wait.wait_for(std::chrono::seconds(10)));
    writing.close();
  });
  world.transport().file_calls()->finish_all();
  finished.set_value();
  closing.join();
  CHECK(read.result == -ECANCELED);
}

}  // namespace linkspan::conformance
