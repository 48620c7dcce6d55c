// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about memory: whose it is, when it comes back, and what happens without it.
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "linkspan/buffer/mapped_file.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

EventLoopOptions with_budget(std::size_t bytes) {
  EventLoopOptions options;
  options.pool.budget_bytes = bytes;
  options.pool.cache_bytes = bytes / 4;
  return options;
}

// Enough for each transport to receive at all, and little against what is sent.
constexpr std::size_t kBudget = 4 << 20;
constexpr std::size_t kMuch = 10 << 20;

}  // namespace

TEST_CASE("borrowed memory comes back once, and not before the kernel has taken all of it") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    world.fill(c);
    const std::string memory = pattern(300'000);
    int released = 0;
    c.write(Chain(Slice::borrow(std::as_bytes(std::span(memory)), [&] { ++released; })));
    c.stream.flush();
    world.settle();
    CHECK(released == 0);
    c.peer.reads = true;
    world.run_until([&] { return c.writes.complete_and_in_order(); });
    world.settle();
    CHECK(released == 1);
  });
}

TEST_CASE("borrowed memory comes back when its write is refused, fails or is handed back unsent") {
  for_each_mode([](World& world) {
    const std::string memory = pattern(1000);
    int released = 0;
    const auto borrowed = [&] {
      return Chain(Slice::borrow(std::as_bytes(std::span(memory)), [&] { ++released; }));
    };
    Connection& refused = world.open();
    refused.stream.shutdown_write();
    refused.write(borrowed());
    world.run_until([&] { return refused.writes.entries.size() == 1; });
    CHECK(released == 1);

    Connection& reset = world.open_resettable();
    world.fill(reset);
    reset.write(borrowed());
    reset.peer.reset();
    world.run_until([&] { return reset.events.closed(); });
    CHECK(released == 2);

    Connection& aborted = world.open();
    world.fill(aborted);
    aborted.write(borrowed());
    aborted.stream.abort();
    world.run_until([&] { return aborted.events.closed(); });
    CHECK(released == 3);
  });
}

TEST_CASE("large data is neither copied out nor in by the library") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.events.keeps_data = true;
    c.stream.start_read();
    const std::string sent = pattern(4 << 20);
    const CopyScope scope;
    c.write(Chain(Slice::borrow(std::as_bytes(std::span(sent)), [] {})));
    world.run_until([&] { return c.peer.received.size() == sent.size(); });
    CHECK(scope.copied()[CopyPlace::write] == 0);
    CHECK((c.peer.received == sent));
  });
}

TEST_CASE("memory that is gone when it is sent: the write fails with EFAULT, the connection is reset") {
  for_each_kernel_mode([](World& world) {
    Connection& c = world.open();
    Connection& other = world.open();
    c.events.keeps_data = true;  // what was not sent cannot be read here either
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    char path[] = "/tmp/linkspan-file-XXXXXX";
    const Socket file(::mkstemp(path));
    REQUIRE(file);
    REQUIRE(::unlink(path) == 0);
    REQUIRE(::ftruncate(file.descriptor(), static_cast<off_t>(4 * page)) == 0);
    const Slice mapped = map_file(file.descriptor(), 0, 4 * page).value_or_throw();
    REQUIRE(::ftruncate(file.descriptor(), 0) == 0);
    c.write("before");
    c.write(Chain(mapped));
    c.write("behind");
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error == std::errc::bad_address);
    CHECK(c.events.write_closed_error == std::errc::bad_address);
    REQUIRE(c.writes.complete_and_in_order());
    CHECK(c.writes.entries[1].error == std::errc::bad_address);
    CHECK(c.writes.entries[2].error == std::errc::bad_address);
    if (!world.is_unix()) {
      world.run_until([&] { return c.peer.error != 0; });
      CHECK(c.peer.error == ECONNRESET);
    }
    other.write("the loop goes on");
    world.run_until([&] { return other.peer.received == "the loop goes on"; });
  });
}

TEST_CASE("an exhausted pool pauses receiving, without spinning; it goes on when memory comes back") {
  for_each_mode_name([](const Mode& mode) {
    for (const bool on_another_thread : {false, true}) {
      CAPTURE(on_another_thread);
      World world(mode, with_budget(kBudget));
      Connection& c = world.open();
      c.events.keeps_data = true;
      c.stream.start_read();
      const std::string sent = pattern(kMuch);
      c.peer.send(sent);
      std::size_t checked = 0;
      int pauses = 0;
      const auto goes_on = [&, before = std::size_t{0}]() mutable {
        return c.events.kept.size() == std::exchange(before, c.events.kept.size());
      };
      while (checked < sent.size()) {
        auto standing = goes_on;
        world.run_until([&] {
          world.settle();
          return standing();
        });
        Chain kept = std::move(c.events.kept);
        REQUIRE(kept.size() > 0);
        CHECK(world.loop().pool().statistics().live_bytes <= kBudget);
        if (checked + kept.size() < sent.size()) {
          ++pauses;
          world.check_quiet();
        }
        kept.append(std::move(c.events.kept));
        bool same = true;
        for (const Slice& slice : kept) {
          same = same && std::string_view(sent).substr(checked, slice.size()) == slice.view();
          checked += slice.size();
        }
        CHECK(same);
        if (on_another_thread) {
          std::thread([moved = std::move(kept)]() mutable { moved.clear(); }).join();
        } else {
          kept.clear();
        }
      }
      CHECK(checked == sent.size());
      CHECK(pauses >= 1);
      CHECK(world.loop().pool().statistics().refusals > 0);
    }
  });
}

TEST_CASE("a stream that waits for memory can be written to, closed and destroyed") {
  for_each_mode_name([](const Mode& mode) {
    World world(mode, with_budget(kBudget));
    Connection& hungry = world.open();
    hungry.events.keeps_data = true;
    hungry.stream.start_read();
    hungry.peer.send(pattern(kMuch));
    world.run_until([&] { return world.loop().pool().statistics().refusals > 0; });
    hungry.write("answer");
    world.run_until([&] { return hungry.peer.received == "answer"; });

    Connection& destroyed = world.open();
    destroyed.events.keeps_data = true;
    destroyed.stream.start_read();
    destroyed.peer.send(pattern(kMuch));
    world.settle();
    destroyed.stream = Stream();

    hungry.stream.abort();
    world.run_until([&] { return hungry.events.closed(); });
    hungry.events.kept.clear();
    destroyed.events.kept.clear();
    world.check_quiet();
  });
}

TEST_CASE("idle streams hold no receive memory of their own") {
  for_each_mode([](World& world) {
    const auto live = [&] { return world.loop().pool().statistics().live_bytes; };
    Connection& first = world.open();
    first.stream.start_read();
    first.peer.send("x");
    world.run_until([&] { return first.events.received == "x"; });
    world.settle();
    const std::uint64_t with_one = live();
    for (int i = 0; i < 50; ++i) {
      Connection& c = world.open();
      c.stream.start_read();
      c.peer.send("x");
      world.run_until([&] { return c.events.received == "x"; });
    }
    world.settle();
    CHECK(live() <= with_one + 256 * 1024);
  });
}

}  // namespace linkspan::conformance
