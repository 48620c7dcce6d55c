// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about received bytes, pauses and the peer's end.
#include <csignal>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {

TEST_CASE("a stream starts paused: nothing is read before start_read") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.peer.send("early");
    world.settle();
    CHECK(c.events.count(Event::read) == 0);
    c.stream.start_read();
    world.run_until([&] { return c.events.received == "early"; });
  });
}

TEST_CASE("bytes arrive complete and in order, in chains that are never empty") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    const std::string sent = pattern(3'000'001);
    std::size_t empty = 0;
    c.events.keeps_data = true;
    c.events.during = [&, before = std::size_t{0}](Event event) mutable {
      if (event == Event::read && c.events.kept.size() == std::exchange(before, c.events.kept.size()))
        ++empty;
    };
    c.peer.send(sent);
    world.run_until([&] { return c.events.kept.size() == sent.size(); });
    CHECK(empty == 0);
    CHECK((c.events.kept == sent));
    CHECK(world.loop().counters().bytes_received.get() == sent.size());
  });
}

TEST_CASE("received memory belongs to the handler, also after the stream and the loop are gone") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.events.keeps_data = true;
    c.stream.start_read();
    const std::string sent = pattern(200'000);
    c.peer.send(sent);
    world.run_until([&] { return c.events.kept.size() == sent.size(); });
    c.stream = Stream();
    world.destroy_loop();
    CHECK((c.events.kept == sent));
  });
}

TEST_CASE("pauses are counted: each needs a start_read") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.pause_read();
    c.stream.start_read();
    c.peer.send("x");
    world.settle();
    CHECK(c.events.count(Event::read) == 0);
    c.stream.start_read();
    world.run_until([&] { return c.events.received == "x"; });
  });
}

TEST_CASE("one start_read too many asserts") {
  for_each_mode_name([](const Mode& mode) {
    const ChildResult result = in_child([&] {
      World world(mode);
      Connection& c = world.open();
      c.stream.start_read();
      c.stream.start_read();
    });
    CHECK(result.signal == SIGABRT);
    CHECK(result.errors.find("each start_read answers one pause") != std::string::npos);
  });
}

TEST_CASE("after pause_read there is no on_read and no on_end, even from inside on_read") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    bool paused = false;
    std::size_t after_pause = 0;
    c.events.during = [&](Event event) {
      if (paused) ++after_pause;
      if (event != Event::read || paused) return;
      paused = true;
      c.stream.pause_read();
    };
    c.stream.start_read();
    c.peer.send(pattern(1'000'000));
    world.run_until([&] { return paused; });
    c.peer.shutdown_write();
    world.settle();
    CHECK(after_pause == 0);
  });
}

TEST_CASE("what has arrived while paused is delivered in order after resuming, then the end") {
  for_each_roomy_mode([](World& world) {
    Connection& c = world.open();
    const std::string sent = pattern(100'000);
    c.peer.send(sent);
    world.run_until([&] { return c.peer.all_sent(); });
    c.peer.close();
    world.settle();
    CHECK(c.events.events == std::vector{Event::open});
    c.stream.start_read();
    world.run_until([&] { return c.events.count(Event::end) == 1; });
    CHECK((c.events.received == sent));
    CHECK(c.events.events.back() == Event::end);
  });
}

TEST_CASE("pausing and resuming with every chain loses nothing") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const std::string sent = pattern(1'500'000);
    c.events.during = [&](Event event) {
      if (event == Event::read) c.stream.pause_read();
    };
    c.stream.start_read();
    c.peer.send(sent);
    std::size_t resumed = 0;
    world.run_until([&] {
      if (c.events.count(Event::read) > resumed) {
        ++resumed;
        c.stream.start_read();
      }
      return c.events.received.size() == sent.size();
    });
    CHECK((c.events.received == sent));
  });
}

TEST_CASE("a paused stream bounds what it takes from the kernel") {
  for_each_roomy_mode([](World& world) {
    Connection& c = world.open();
    // Received once, so that a transport that receives ahead has begun to.
    c.stream.start_read();
    c.peer.send("x");
    world.run_until([&] { return c.events.received == "x"; });
    c.stream.pause_read();
    const std::string much = pattern(32 << 20);
    c.peer.send(much);
    world.settle();
    CHECK_FALSE(c.peer.all_sent());
    CHECK(world.loop().pool().statistics().live_bytes <= (8 << 20));
    world.check_quiet();
    c.stream.start_read();
    world.run_until([&] { return c.events.received.size() == much.size() + 1; });
    CHECK((std::string_view(c.events.received).substr(1) == much));
  });
}

TEST_CASE("the end comes once, after all data; writing stays possible") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    c.peer.send("last words");
    c.peer.shutdown_write();
    world.run_until([&] { return c.events.count(Event::end) != 0; });
    CHECK(c.events.received == "last words");
    c.write("answer");
    world.run_until([&] { return c.peer.received == "answer"; });
    world.check_quiet();
    CHECK(c.events.count(Event::end) == 1);
    CHECK_FALSE(c.events.closed());
  });
}

TEST_CASE("a pause costs epoll a call only when something comes in it, and never two for one message") {
  for_each_mode([](World& world) {
    if (world.loop().engine().name() != "epoll") return;
    Connection& c = world.open();
    c.stream.start_read();
    world.check_quiet();
    const LoopCounters& counters = world.loop().counters();
    const auto calls_besides_waiting = [&] { return counters.system_calls.get() - counters.ticks.get(); };
    const std::uint64_t before = calls_besides_waiting();
    for (int i = 0; i < 10; ++i) {
      c.stream.pause_read();
      world.turn(Duration::zero());
      c.stream.start_read();
      world.turn(Duration::zero());
    }
    CHECK(calls_besides_waiting() == before);

    c.stream.pause_read();
    c.peer.send("held back");
    world.settle();
    CHECK(calls_besides_waiting() == before + 1);
    CHECK(c.events.received.empty());
    c.stream.start_read();
    world.run_until([&] { return c.events.received == "held back"; });
  });
}

TEST_CASE("an end that arrives while paused neither spins nor stops writing, and is reported on resuming") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.peer.shutdown_write();
    world.check_quiet();
    c.write("still open");
    world.run_until([&] { return c.peer.received == "still open"; });
    CHECK(c.events.count(Event::end) == 0);
    c.stream.start_read();
    world.run_until([&] { return c.events.count(Event::end) == 1; });
    world.check_quiet();
    CHECK(c.events.count(Event::end) == 1);
  });
}

TEST_CASE("a peer that closes behind a paused stream does not make the loop spin") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.peer.send("unread");
    world.settle();
    c.peer.close();
    world.check_quiet();
    c.stream.shutdown_write();
    world.check_quiet();
    CHECK_FALSE(c.events.closed());
    c.stream.start_read();
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.received == "unread");
    CHECK(c.events.count(Event::end) == 1);
    CHECK_FALSE(c.events.closed_error);
  });
}

TEST_CASE("both sides ended: the stream closes itself, without an error") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    c.write("bye");
    c.stream.shutdown_write();
    c.peer.shutdown_write();
    world.run_until([&] { return c.events.closed(); });
    CHECK_FALSE(c.events.closed_error);
    CHECK(c.events.unsent.empty());
    world.run_until([&] { return c.peer.ended; });
    CHECK(c.peer.received == "bye");
    CHECK_FALSE(c.stream);
  });
}

}  // namespace linkspan::conformance
