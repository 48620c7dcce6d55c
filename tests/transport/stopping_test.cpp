// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises when its loop stops.
#include <csignal>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {

TEST_CASE("stopping with tasks, writes, timers and peers that never read: every completion comes") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    Connection& writing = world.open();
    writing.stream.start_read();
    world.fill(writing);
    const std::string memory = pattern(500'000);
    int released = 0;
    writing.write(Chain(Slice::borrow(std::as_bytes(std::span(memory)), [&] { ++released; })));
    Connection& closing = world.open();
    world.fill(closing);
    closing.stream.close(std::chrono::hours(1));
    const Socket nobody = world.raw_listener();
    Connection& connecting = world.connect(local_endpoint(nobody));
    connecting.write("queued");
    int tasks = 0;
    for (int i = 0; i < 100; ++i) REQUIRE(world.loop().post([&] { ++tasks; }));
    bool fired = false;
    Timer timer(world.loop(), [&] { fired = true; });
    timer.start(std::chrono::hours(1));

    world.loop().stop();
    world.run();

    CHECK(tasks == 100);
    CHECK_FALSE(fired);
    CHECK_FALSE(timer.active());
    CHECK(released == 1);
    for (Connection* c : {&writing, &closing, &connecting}) {
      CHECK(c->events.count(Event::closed) == 1);
      CHECK(c->events.closed_error == errc::aborted);
      CHECK(c->writes.complete_and_in_order());
      CHECK(c->writes.entries.back().error == errc::cancelled);
    }
    CHECK(world.loop().engine().idle());
    CHECK_FALSE(world.loop().post([] {}));
    CHECK_FALSE(world.transport().listen(world.free_endpoint(), {}, acceptor).ok());
  });
}

TEST_CASE("destroying a loop that was never stopped completes everything too") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    world.fill(c);
    world.destroy_loop();
    CHECK(c.events.count(Event::closed) == 1);
    CHECK(c.writes.complete_and_in_order());
    CHECK_FALSE(c.stream);
    c.peer.reads = true;
    c.peer.pump();
    CHECK((c.peer.ended || c.peer.error == ECONNRESET));
  });
}

TEST_CASE("a stream that is opened while the loop stops is closed like the others") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const Socket nobody = world.raw_listener();
    Recorder late;
    Stream stream;
    c.events.during = [&](Event event) {
      if (event == Event::closed) {
        stream = world.transport().connect(local_endpoint(nobody), {}, late);
      }
    };
    world.loop().stop();
    world.run();
    CHECK(c.events.closed());
    CHECK(late.events == std::vector{Event::closed});
    CHECK(late.closed_error == errc::aborted);
  });
}

TEST_CASE(
    "a forked child that destroys or runs the loop is ended with the reason, and the parent's loop goes on") {
  for_each_transport([](World& world) {
    Connection& connection = world.open();
    connection.stream.start_read();
    std::size_t exchanged = 0;
    for (const bool destroys : {true, false}) {
      if (world.is_guest() && !destroys) continue;  // in a child, its context waits for what never comes
      const ChildResult child = in_child([&] {
        if (destroys) {
          world.destroy_loop();
        } else {
          world.run();
        }
      });
      CHECK(child.signal == SIGABRT);
      CHECK(child.errors.find("does not survive a fork") != std::string::npos);
      connection.write("hello");
      connection.peer.send("hello");
      exchanged += 5;
      world.run_until([&] {
        return connection.events.received.size() == exchanged && connection.peer.received.size() == exchanged;
      });
    }
  });
}

TEST_CASE("an idle loop with open connections sleeps") {
  for_each_mode([](World& world) {
    for (int i = 0; i < 10; ++i) {
      Connection& c = world.open();
      if (i % 2 == 0) c.stream.start_read();
    }
    world.check_quiet();
  });
}

}  // namespace linkspan::conformance
