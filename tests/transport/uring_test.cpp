// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What only the io_uring transport has: set-up flags, multishot operations, its buffer ring, its queues; and
// what becomes of a loop where io_uring is not allowed.
#include "lib/transport/uring/uring_transport.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "linkspan/base/log.hpp"
#include "tests/support/refuse_io_uring.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

EngineFactory uring_with(const UringOptions& options) {
  return [options](EventLoop& loop) { return make_uring_transport(loop, options); };
}

class UringWorld : public World {
 public:
  explicit UringWorld(const UringOptions& options, EventLoopOptions loop_options = {},
                      Family family = Family::unix_path)
      : World({"io_uring", family}, uring_with(options), std::move(loop_options)) {}

  [[nodiscard]] bool has(std::string_view capability) {
    const std::vector<std::string> names = transport().capabilities();
    return std::ranges::find(names, capability) != names.end();
  }

  /// `streams` streams that read, and send back nothing.
  std::vector<Connection*> open_reading(std::size_t streams) {
    std::vector<Connection*> opened;
    for (std::size_t i = 0; i < streams; ++i) {
      opened.push_back(&open());
      opened.back()->stream.start_read();
    }
    return opened;
  }
};

EventLoopOptions with_budget(std::size_t bytes) {
  EventLoopOptions options;
  options.pool.budget_bytes = bytes;
  return options;
}

// Accepts, receives, answers, and sees the end.
void check_works(UringWorld& world) {
  Acceptor acceptor;
  Result<Listener> listener = world.transport().listen(world.free_endpoint(), {}, acceptor);
  REQUIRE(listener);
  const std::string request = pattern(300'000);
  for (std::size_t i = 0; i < 3; ++i) {
    Peer peer(world.raw_connect(listener.value().local_endpoint()));
    world.run_until([&] { return acceptor.sockets.size() == i + 1; });
    Recorder events;
    Stream stream = world.transport().open(std::move(acceptor.sockets.back()), {}, events);
    stream.start_read();
    peer.send(request);
    world.run_until([&] {
      peer.pump();
      return events.received.size() == request.size();
    });
    CHECK((events.received == request));
    stream.pause_read();
    world.settle();
    stream.start_read();
    stream.write(in_slices(request, 1000));
    world.run_until([&] {
      peer.pump();
      return peer.received.size() == request.size();
    });
    CHECK((peer.received == request));
    peer.shutdown_write();
    stream.shutdown_write();
    world.run_until([&] { return events.closed(); });
    CHECK_FALSE(events.closed_error);
  }
}

}  // namespace

TEST_CASE("everything this kernel has is in use") {
  UringWorld world({});
  for (const char* name :
       {"buffer_ring", "receive_classes", "multishot_accept", "multishot_receive", "zero_copy_send",
        "registered_ring", "coop_taskrun", "single_issuer", "defer_taskrun"}) {
    if (!world.has(name)) MESSAGE(name, " is not in this kernel");
  }
  CHECK(world.has("buffer_ring"));
  check_works(world);
}

TEST_CASE("set-up flags that the kernel refuses are dropped, and the others stay") {
  UringOptions options;
  SUBCASE("one that no kernel knows") {
    options.setup_flags |= 1U << 31;
    UringWorld world(options);
    CHECK(world.has("defer_taskrun") == UringWorld({}).has("defer_taskrun"));
    check_works(world);
  }
  SUBCASE("one that needs another") {
    options.setup_flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_DEFER_TASKRUN;
    UringWorld world(options);
    CHECK_FALSE(world.has("defer_taskrun"));
    CHECK(world.has("coop_taskrun"));
    check_works(world);
  }
  SUBCASE("none at all") {
    options.setup_flags = 0;
    UringWorld world(options);
    CHECK_FALSE(world.has("coop_taskrun"));
    check_works(world);
  }
}

TEST_CASE("one-shot operations stand in for multishot ones") {
  UringOptions options;
  options.multishot_accept = false;
  options.multishot_receive = false;
  UringWorld world(options);
  CHECK_FALSE(world.has("multishot_accept"));
  CHECK_FALSE(world.has("multishot_receive"));
  check_works(world);
  world.check_quiet();
}

TEST_CASE("small queues and small turns lose nothing") {
  UringOptions options;
  SUBCASE("a full submission queue is submitted early") {
    options.submission_entries = 2;
  }
  SUBCASE("the completion queue overflows, which ends multishot receives") {
    options.submission_entries = 2;
    options.completion_entries = 4;
  }
  SUBCASE("one completion a poll") {
    options.completions_per_poll = 1;
  }
  UringWorld world(options);
  const std::vector<Connection*> streams = world.open_reading(20);
  const std::string message = pattern(50'000);
  for (int round = 0; round < 2; ++round) {
    for (Connection* c : streams) {
      c->events.received.clear();
      c->peer.received.clear();
      c->peer.send(message);
      c->write(message);
    }
    world.run_until([&] {
      return std::ranges::all_of(streams, [&](const Connection* c) {
        return c->events.received.size() == message.size() && c->peer.received.size() == message.size();
      });
    });
    for (const Connection* c : streams) {
      CHECK((c->events.received == message));
      CHECK((c->peer.received == message));
    }
  }
  world.check_quiet();
}

TEST_CASE("a stream waits for blocks without turning round, and goes on when they are back") {
  // Too little for a bulk ring.
  UringWorld world({}, with_budget(256 * 1024));
  std::vector<Connection*> streams = world.open_reading(3);
  const std::string message = pattern(400'000);
  for (Connection* c : streams) {
    c->events.keeps_data = true;
    c->peer.send(message);
  }
  const auto kept_bytes = [&] {
    std::size_t bytes = 0;
    for (const Connection* c : streams) bytes += c->events.kept.size();
    return bytes;
  };
  world.settle();
  CHECK(kept_bytes() > 0);
  CHECK(kept_bytes() <= 256 * 1024);
  world.check_quiet();

  std::size_t arrived = 0;
  std::vector<std::string> received(streams.size());
  world.run_until([&] {
    for (std::size_t i = 0; i < streams.size(); ++i) {
      Chain kept = std::move(streams[i]->events.kept);
      received[i] += kept.to_string();
      arrived += kept.size();
    }
    return arrived == streams.size() * message.size();
  });
  for (const std::string& bytes : received) CHECK((bytes == message));
  world.check_quiet();
}

TEST_CASE("a reset is seen by a stream that waits for blocks") {
  UringWorld world({}, with_budget(256 * 1024), Family::tcp4);
  Connection& hoarder = *world.open_reading(1).front();
  hoarder.events.keeps_data = true;
  hoarder.peer.send(pattern(400'000));
  world.settle();
  Connection& waiting = *world.open_reading(1).front();
  world.settle();
  waiting.peer.reset();
  world.run_until([&] { return waiting.events.closed(); });
  CHECK(waiting.lost());
}

TEST_CASE("a send that fails does not overtake data whose completions come after its own") {
  UringWorld world({}, {}, Family::tcp4);
  Connection& c = *world.open_reading(1).front();
  world.settle();
  const std::string message = pattern(1000);
  c.peer.send(message);
  c.peer.reset();
  c.write("refused");
  world.run_until([&] { return c.events.closed(); });
  CHECK((c.events.received == message));
  CHECK(c.lost());
}

TEST_CASE("a block that was handed out is not written to again while somebody holds it") {
  UringOptions options;
  options.small_buffers = 2;
  options.bulk_buffers = 2;
  UringWorld world(options);
  const std::vector<Connection*> streams = world.open_reading(8);
  std::string message = pattern(500'000);
  for (Connection* c : streams) {
    c->events.keeps_data = true;
    c->peer.send(message);
    std::rotate(message.begin(), message.begin() + 1, message.end());  // each stream's bytes are its own
  }
  message = pattern(500'000);
  for (Connection* c : streams) {
    world.run_until([&] { return c->events.kept.size() == message.size(); });
  }
  for (Connection* c : streams) {
    CHECK((c->events.kept == message));
    std::rotate(message.begin(), message.begin() + 1, message.end());
  }
}

TEST_CASE("small receives are copied out and their blocks stay in the ring") {
  UringOptions options;
  options.small_buffers = 1;
  UringWorld world(options);
  Connection& c = *world.open_reading(1).front();
  c.events.keeps_data = true;
  world.settle();
  const CopyScope scope;
  const std::uint64_t allocations = world.loop().pool().statistics().allocations;
  for (std::size_t i = 1; i <= 100; ++i) {
    c.peer.send("0123456789");
    world.run_until([&] { return c.events.kept.size() == i * 10; });
  }
  CHECK(scope.copied()[CopyPlace::receive] == 1000);
  CHECK(world.loop().pool().statistics().allocations - allocations == 100);  // those of the copies
}

TEST_CASE("large receives are not copied") {
  UringWorld world({});
  Connection& c = *world.open_reading(1).front();
  c.events.keeps_data = true;
  const std::string message = pattern(4'000'000);
  const CopyScope scope;
  c.peer.send(message);
  world.run_until([&] { return c.events.kept.size() == message.size(); });
  // Pieces below the threshold may come wherever the kernel cuts.
  CHECK(scope.copied()[CopyPlace::receive] < message.size() / 100);
  CHECK((c.events.kept == message));
}

// --- receive classes

namespace {

// Takes a stream from small to bulk and back to small, twice, and looks at every byte.
void check_changing_classes(UringWorld& world) {
  Connection& c = *world.open_reading(1).front();
  std::string sent;
  const auto send_and_await = [&](std::size_t size) {
    const std::string bytes = pattern(size);
    sent += bytes;
    c.peer.send(bytes);
    world.run_until([&] { return c.events.received.size() == sent.size(); });
  };
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 40; ++i) send_and_await(10 + i);
    send_and_await(500'000);
  }
  CHECK((c.events.received == sent));
}

std::uint64_t live_bytes(UringWorld& world) {
  return world.loop().pool().statistics().live_bytes;
}

}  // namespace

TEST_CASE("one buffer ring serves all streams where there are no two") {
  UringOptions options;
  EventLoopOptions loop_options;
  SUBCASE("no small one") {
    options.small_buffers = 0;
  }
  SUBCASE("no bulk one") {
    options.bulk_buffers = 0;
  }
  SUBCASE("neither: there is one block at least") {
    options.small_buffers = 0;
    options.bulk_buffers = 0;
  }
  SUBCASE("a budget that is too small for a bulk one") {
    loop_options.pool.budget_bytes = 100'000;
  }
  UringWorld world(options, loop_options);
  CHECK(world.has("buffer_ring"));
  CHECK_FALSE(world.has("receive_classes"));
  check_works(world);
  check_changing_classes(world);
  world.check_quiet();
}

TEST_CASE("classes change while receives end early for other reasons") {
  UringOptions options;
  SUBCASE("the completion queue overflows") {
    options.submission_entries = 2;
    options.completion_entries = 4;
  }
  SUBCASE("receives are one-shot") {
    options.multishot_receive = false;
  }
  SUBCASE("one completion a poll") {
    options.completions_per_poll = 1;
  }
  SUBCASE("each ring has one block") {
    options.small_buffers = 1;
    options.bulk_buffers = 1;
  }
  SUBCASE("the bulk ring is idle all the time") {
    options.bulk_idle = Duration::zero();
  }
  UringWorld world(options);
  check_changing_classes(world);
  world.check_quiet();
}

TEST_CASE("a loop whose streams are quiet or interactive has a few small blocks in its rings") {
  UringWorld world({});
  for (Connection* c : world.open_reading(100)) {
    c->peer.send("x");
    world.run_until([&] { return c->events.received == "x"; });
  }
  CHECK(live_bytes(world) <= 64 * 1024);
}

TEST_CASE("the bulk ring's blocks go back when it is idle, and come again when they are needed") {
  UringOptions options;
  options.bulk_idle = std::chrono::milliseconds(1);
  UringWorld world(options);
  const std::vector<Connection*> streams = world.open_reading(100);  // more than leave the ring in one tick
  const std::string message = pattern(200'000);
  for (int round = 0; round < 3; ++round) {
    for (Connection* c : streams) {
      c->events.received.clear();
      c->peer.send(message);
    }
    world.run_until([&] {
      return std::ranges::all_of(
          streams, [&](const Connection* c) { return c->events.received.size() == message.size(); });
    });
    for (const Connection* c : streams) CHECK((c->events.received == message));
    world.run_until([&] { return live_bytes(world) <= 512 * 1024; });  // the small ring's at most
  }
  world.check_quiet();
}

TEST_CASE("the rings grow when the kernel runs out of blocks, up to their bounds") {
  UringOptions options;
  options.small_buffers = 16;
  UringWorld world(options);
  const std::vector<Connection*> streams = world.open_reading(50);
  for (std::size_t round = 1; round <= 5; ++round) {
    for (Connection* c : streams) c->peer.send("ping");
    world.run_until([&] {
      return std::ranges::all_of(streams,
                                 [&](const Connection* c) { return c->events.received.size() == 4 * round; });
    });
  }
  CHECK(live_bytes(world) == 16 * 4096);
}

TEST_CASE("a tick makes one system call") {
  UringWorld world({});
  const std::vector<Connection*> streams = world.open_reading(10);
  world.settle();
  const LoopCounters& counters = world.loop().counters();
  const std::uint64_t ticks = counters.ticks.get();
  const std::uint64_t system_calls = counters.system_calls.get();
  for (Connection* c : streams) {
    c->peer.send("ping");
    c->write("pong");
    c->write("pong");
  }
  world.run_until([&] {
    return std::ranges::all_of(streams, [](const Connection* c) {
      return c->events.received.size() == 4 && c->peer.received.size() == 8;
    });
  });
  CHECK(counters.system_calls.get() - system_calls == counters.ticks.get() - ticks);
}

TEST_CASE("a transport can be destroyed while the kernel holds its operations") {
  EventLoopOptions options;
  options.stop_deadline = Duration::zero();
  Acceptor acceptor;
  Recorder connecting;
  UringWorld world({}, options);
  Result<Listener> listener = world.transport().listen(world.free_endpoint(), {}, acceptor);
  REQUIRE(listener);
  for (Connection* c : world.open_reading(5)) {
    c->peer.reads = false;
    c->write(pattern(1'000'000));
    c->write(in_slices(pattern(1'000'000), 100));
    c->peer.send(pattern(1'000'000));
  }
  world.settle();
  const Stream stream = world.transport().connect(listener.value().local_endpoint(), {}, connecting);
  world.destroy_loop();
  CHECK_FALSE(listener.value());
}

// --- where io_uring is not allowed

namespace {

struct Log {
  Log() {
    set_log_level(LogLevel::info);
    set_log_callback(
        [](void* context, const LogRecord& record) {
          static_cast<Log*>(context)->text.append(record.message).append("\n");
        },
        this);
  }
  std::string text;
};

// In a child process: an explicit choice fails, auto goes on to the next transport; both say why.
void check_refusal(const std::string& reason) {
  const Log log;
  Result<std::unique_ptr<EventLoop>> chosen = EventLoop::create(transport_engine("io_uring").value());
  REQUIRE_FALSE(chosen);
  REQUIRE(chosen.error().message().find(reason) != std::string::npos);
  REQUIRE(::unsetenv("LINKSPAN_TRANSPORT") == 0);
  Result<std::unique_ptr<EventLoop>> any = EventLoop::create(transport_engine("auto").value());
  REQUIRE(any);
  REQUIRE(any.value()->engine().name() != "io_uring");
  REQUIRE(log.text.find("io_uring passed over: " + reason) != std::string::npos);
}

}  // namespace

TEST_CASE("where io_uring is refused, auto takes another transport and an explicit choice fails") {
  SUBCASE("forbidden") {
    const ChildResult result = in_child([] {
      test::refuse_io_uring(EPERM);
      check_refusal("io_uring is forbidden");
    });
    CHECK(result.exit_code == 0);
  }
  SUBCASE("missing") {
    const ChildResult result = in_child([] {
      test::refuse_io_uring(ENOSYS);
      check_refusal("this kernel has no io_uring");
    });
    CHECK(result.exit_code == 0);
  }
  SUBCASE("no memory may be locked") {
    if (::geteuid() != 0) {
      MESSAGE("only root can become a user whose memory is limited: left out");
      return;
    }
    const ChildResult result = in_child([] {
      constexpr uid_t kNobody = 65534;
      const rlimit nothing{0, 0};
      REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &nothing) == 0);
      REQUIRE(::setuid(kNobody) == 0);
      check_refusal("too little memory may be locked");
    });
    CHECK(result.exit_code == 0);
  }
}

TEST_CASE("a ring fits into 64 KiB of locked memory") {
  if (::geteuid() != 0) {
    MESSAGE("only root can become a user whose memory is limited: left out");
    return;
  }
  const ChildResult result = in_child([] {
    constexpr uid_t kUserWithoutProcesses = 65533;
    const rlimit little{64 * 1024, 64 * 1024};
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &little) == 0);
    REQUIRE(::setuid(kUserWithoutProcesses) == 0);
    Result<std::unique_ptr<EventLoop>> loop = EventLoop::create(transport_engine("io_uring").value());
    REQUIRE(loop);
    const std::vector<std::string> names = Transport::of(*loop.value()).capabilities();
    REQUIRE(std::ranges::find(names, "receive_classes") != names.end());
  });
  CHECK(result.exit_code == 0);
}

}  // namespace linkspan::conformance
