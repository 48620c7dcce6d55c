// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about resets, shutdown_write, close and abort.
#include <cerrno>
#include <csignal>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

// What is true of every stream that has closed.
void check_closed_once(World& world, Connection& c) {
  world.run_until([&] { return c.events.closed(); });
  world.settle();
  CHECK(c.events.count(Event::closed) == 1);
  CHECK(c.events.events.back() == Event::closed);
  CHECK(c.writes.complete_and_in_order());
  CHECK_FALSE(c.stream);
}

std::size_t bytes_accepted(const WriteLog& writes) {
  std::size_t bytes = 0;
  for (const WriteLog::Entry& entry : writes.entries) bytes += entry.accepted;
  return bytes;
}

}  // namespace

TEST_CASE("a reset with nothing unread closes at once, reading or paused") {
  for_each_mode([](World& world) {
    Connection& paused = world.open_resettable();
    Connection& reading = world.open_resettable();
    reading.stream.start_read();
    world.settle();
    paused.peer.reset();
    reading.peer.reset();
    for (Connection* c : {&paused, &reading}) {
      check_closed_once(world, *c);
      CHECK(c->lost());
      CHECK(c->events.closed_error.value() != 0);
      CHECK(c->events.closed_error.message().size() > 5);
      CHECK(c->events.events == std::vector{Event::open, Event::write_closed, Event::closed});
      CHECK(c->events.write_closed_error == errc::connection_lost);
    }
    world.check_quiet();
  });
}

TEST_CASE("an end and then a reset, with nobody reading: closed exactly once, with connection_lost") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    c.peer.shutdown_write();
    world.check_quiet();
    c.peer.reset();
    check_closed_once(world, c);
    CHECK(c.lost());
    CHECK(c.events.count(Event::end) == 0);
    world.check_quiet();
  });
}

TEST_CASE("a reset is noticed after on_end") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    c.stream.start_read();
    c.peer.shutdown_write();
    world.run_until([&] { return c.events.count(Event::end) == 1; });
    world.check_quiet();
    c.peer.reset();
    check_closed_once(world, c);
    CHECK(c.lost());
    CHECK(c.events.count(Event::write_closed) == 1);
  });
}

TEST_CASE("data, an end and a reset that are seen together are data and then connection_lost") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    c.stream.start_read();
    world.settle();
    c.peer.send("data");
    c.peer.shutdown_write();
    c.peer.reset();
    check_closed_once(world, c);
    CHECK(c.events.received == "data");
    CHECK(c.lost());
    world.check_quiet();
  });
}

TEST_CASE("a reset never overtakes data: what is unread stays until reading resumes") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    c.peer.send("unread");
    world.settle();
    c.peer.reset();
    world.run_until([&] { return c.events.count(Event::write_closed) == 1; });
    world.check_quiet();
    CHECK_FALSE(c.events.closed());
    CHECK(c.events.received.empty());
    c.stream.start_read();
    check_closed_once(world, c);
    CHECK(c.events.received == "unread");
    CHECK(c.lost());
    CHECK(c.events.count(Event::end) == 0);
    CHECK(c.events.count(Event::write_closed) == 1);
  });
}

TEST_CASE("a reset that overtook unread data is reported even when reading pauses in the middle of it") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    const std::string sent = pattern(300'000);
    c.peer.send(sent);
    world.settle();
    c.peer.reset();
    c.events.during = [&](Event event) {
      if (event == Event::read) c.stream.pause_read();
    };
    std::size_t resumed = 0;
    c.stream.start_read();
    world.run_until([&] {
      if (!c.events.closed() && c.events.count(Event::read) > resumed) {
        world.settle();
        ++resumed;
        if (!c.events.closed()) c.stream.start_read();
      }
      return c.events.closed();
    });
    check_closed_once(world, c);
    CHECK((std::string_view(sent).starts_with(c.events.received)));
    CHECK_FALSE(c.events.received.empty());
    CHECK(c.lost());
    CHECK(c.events.count(Event::write_closed) == 1);
  });
}

TEST_CASE("unread data behind a reset is dropped by abort") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    c.peer.send("unread");
    world.settle();
    c.peer.reset();
    world.run_until([&] { return c.events.count(Event::write_closed) == 1; });
    c.stream.abort();
    check_closed_once(world, c);
    CHECK(c.events.received.empty());
  });
}

TEST_CASE("a reset fails all queued writes at once, in order, before on_write_closed and on_closed") {
  for_each_mode([](World& world) {
    for (const bool paused : {true, false}) {
      CAPTURE(paused);
      Connection& c = world.open_resettable();
      if (!paused) c.stream.start_read();
      world.fill(c);
      c.write(Chain());
      c.write("last");
      world.settle();
      const std::size_t done = c.writes.entries.size();
      std::size_t events_at_last_failure = 0;
      c.writes.during = [&](const WriteLog::Entry&) { events_at_last_failure = c.events.events.size(); };
      c.peer.reset();
      check_closed_once(world, c);
      CHECK(c.lost());
      CHECK(c.writes.entries.size() > done + 2);
      for (std::size_t i = done; i < c.writes.entries.size(); ++i) {
        CHECK(c.writes.entries[i].error == errc::connection_lost);
      }
      CHECK(c.events.events[events_at_last_failure] == Event::write_closed);
      CHECK(c.events.progress == bytes_accepted(c.writes));
    }
  });
}

TEST_CASE("a write after the connection broke fails, later, with the same error") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    c.peer.send("unread");
    world.settle();
    c.peer.reset();
    world.run_until([&] { return c.events.count(Event::write_closed) == 1; });
    c.write("too late");
    CHECK(c.writes.entries.empty());
    world.run_until([&] { return c.writes.entries.size() == 1; });
    CHECK(c.writes.entries[0].error == errc::connection_lost);
    CHECK(c.writes.entries[0].accepted == 0);
    CHECK(c.events.count(Event::write_closed) == 1);
  });
}

TEST_CASE("writing to a peer that is gone never kills the process with SIGPIPE") {
  for_each_mode_name([](const Mode& mode) {
    const ChildResult result = in_child([&] {
      static_cast<void>(std::signal(SIGPIPE, SIG_DFL));
      World world(mode);
      Connection& c = world.open();
      c.peer.close();
      for (int i = 0; i < 1000 && !c.events.closed(); ++i) {
        c.write("into the void");
        c.stream.flush();
        world.settle();
      }
      REQUIRE(c.events.closed());
      REQUIRE(c.lost());
    });
    CHECK(result.signal == 0);
    CHECK(result.exit_code == 0);
  });
}

TEST_CASE("shutdown_write ends the sending side after the last queued byte; later writes fail") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const std::string sent = world.fill(c);
    c.stream.shutdown_write();
    c.write("too late");
    world.settle();
    CHECK_FALSE(c.peer.ended);
    c.peer.reads = true;
    world.run_until([&] { return c.peer.ended; });
    CHECK((c.peer.received == sent));
    world.run_until([&] { return c.writes.complete_and_in_order(); });
    CHECK(c.writes.entries.back().error == errc::shut_down);
    CHECK(c.writes.entries.back().accepted == 0);
    CHECK_FALSE(c.events.closed());
    CHECK(c.events.progress == sent.size());

    c.stream.start_read();
    c.peer.send("still heard");
    world.run_until([&] { return c.events.received == "still heard"; });
  });
}

TEST_CASE("close sends what is queued, ends, and then closes without an error") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    const std::string sent = world.fill(c);
    c.stream.close(std::chrono::seconds(50));
    c.write("too late");
    world.settle();
    CHECK_FALSE(c.events.closed());
    c.peer.reads = true;
    world.run_until([&] { return c.peer.ended; });
    CHECK((c.peer.received == sent));
    c.peer.close();
    check_closed_once(world, c);
    CHECK_FALSE(c.events.closed_error);
    CHECK(c.events.unsent.empty());
    CHECK(c.writes.entries.back().error == errc::shut_down);
  });
}

TEST_CASE("after close there is no on_read and no on_end") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    world.settle();
    c.peer.send("unheard");
    c.peer.shutdown_write();
    c.stream.close();
    check_closed_once(world, c);
    CHECK(c.events.events == std::vector{Event::open, Event::closed});
    CHECK_FALSE(c.events.closed_error);
  });
}

TEST_CASE("close with a peer that keeps sending: the peer reads all that was sent to it") {
  for_each_mode([](World& world) {
    StreamOptions options;
    options.linger = std::chrono::seconds(50);
    Connection& c = world.open(options);
    c.peer.reads = false;
    c.peer.send(pattern(4 << 20));
    world.settle();
    const std::string sent = pattern(200'000);
    c.write(sent);
    c.stream.close(std::chrono::seconds(50));
    world.run_until([&] {
      c.peer.receive_at_most(5'000);
      return c.peer.ended || c.peer.error != 0;
    });
    CHECK(c.peer.error == 0);
    CHECK((c.peer.received == sent));
    world.run_until([&] { return c.peer.all_sent(); });
    CHECK(c.peer.error == 0);
    c.peer.close();
    check_closed_once(world, c);
    CHECK_FALSE(c.events.closed_error);
  });
}

TEST_CASE("close does not wait for ever for a peer that never ends its side") {
  for_each_mode([](World& world) {
    StreamOptions options;
    options.linger = std::chrono::milliseconds(20);
    Connection& c = world.open(options);
    c.write("bye");
    c.stream.close();
    check_closed_once(world, c);
    CHECK_FALSE(c.events.closed_error);
    world.run_until([&] { return c.peer.ended; });
    CHECK(c.peer.received == "bye");
  });
}

TEST_CASE("close after shutdown_write waits for the peer no longer than close alone") {
  for_each_mode([](World& world) {
    StreamOptions options;
    options.linger = std::chrono::milliseconds(20);
    Connection& c = world.open(options);
    c.write("bye");
    c.stream.shutdown_write();
    world.run_until([&] { return c.peer.ended; });
    c.stream.close(std::chrono::hours(1));
    check_closed_once(world, c);
    CHECK_FALSE(c.events.closed_error);
    CHECK(c.peer.received == "bye");
  });
}

TEST_CASE(
    "close becomes abort at its deadline: writes fail, the unsent bytes come back, the peer is cut off") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const std::string sent = world.fill(c);
    c.stream.close(std::chrono::milliseconds(20));
    check_closed_once(world, c);
    CHECK(c.events.closed_error == errc::timed_out);
    CHECK(c.writes.entries.back().error == errc::timed_out);
    CHECK_FALSE(c.events.unsent.empty());
    CHECK((sent.substr(c.events.progress) == c.events.unsent));
    c.peer.reads = true;
    world.run_until([&] { return c.peer.ended || c.peer.error != 0; });
    if (!world.is_unix()) CHECK(c.peer.error == ECONNRESET);
    CHECK((std::string_view(sent).starts_with(c.peer.received)));
  });
}

TEST_CASE("abort cancels what is queued, hands back what was not sent, and resets") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    const std::string sent = world.fill(c);
    const std::size_t done = c.writes.entries.size();
    c.stream.abort();
    CHECK(c.writes.entries.size() == done);
    c.write("refused");
    check_closed_once(world, c);
    CHECK(c.events.closed_error == errc::aborted);
    for (std::size_t i = done; i < c.writes.entries.size(); ++i) {
      CHECK(c.writes.entries[i].error == errc::cancelled);
    }
    CHECK(c.events.progress == bytes_accepted(c.writes));
    CHECK(c.events.progress + c.events.unsent.size() == sent.size());
    CHECK((sent.substr(c.events.progress) == c.events.unsent));
    c.peer.reads = true;
    world.run_until([&] { return c.peer.ended || c.peer.error != 0; });
    if (!world.is_unix()) CHECK(c.peer.error == ECONNRESET);
    CHECK((std::string_view(sent).starts_with(c.peer.received)));
  });
}

TEST_CASE("abort after flush accounts for what flush has sent") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.write("abc");
    c.stream.flush();
    c.write("def");
    c.stream.abort();
    check_closed_once(world, c);
    CHECK(c.events.progress + c.events.unsent.size() == 6);
    CHECK(c.events.progress == bytes_accepted(c.writes));
  });
}

TEST_CASE("close after close, abort after close and abort after abort are allowed") {
  for_each_mode([](World& world) {
    Connection& twice = world.open();
    twice.stream.close();
    twice.stream.close(Duration::zero());
    twice.peer.shutdown_write();
    check_closed_once(world, twice);
    CHECK_FALSE(twice.events.closed_error);

    Connection& aborted = world.open();
    world.fill(aborted);
    aborted.stream.close();
    world.settle();
    aborted.stream.abort();
    aborted.stream.abort();
    aborted.stream.close();
    check_closed_once(world, aborted);
    CHECK(aborted.events.closed_error == errc::aborted);
  });
}

TEST_CASE("both sides close at once: both end without an error") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    c.write("crossing");
    c.peer.send("crossing");
    c.stream.close();
    c.peer.shutdown_write();
    check_closed_once(world, c);
    CHECK_FALSE(c.events.closed_error);
    world.run_until([&] { return c.peer.ended; });
    CHECK(c.peer.received == "crossing");
  });
}

TEST_CASE("calls after on_closed assert") {
  for_each_mode_name([](const Mode& mode) {
    for (const bool inside : {false, true}) {
      CAPTURE(inside);
      const ChildResult result = in_child([&] {
        World world(mode);
        Connection& c = world.open();
        if (inside) {
          c.events.during = [&](Event event) {
            if (event == Event::closed) c.stream.write(chain_of("x"));
          };
        }
        c.stream.abort();
        while (!c.events.closed()) world.settle();
        c.stream.write(chain_of("x"));
      });
      CHECK(result.signal == SIGABRT);
      CHECK(result.errors.find("on_closed") != std::string::npos);
    }
  });
}

TEST_CASE("the handle is empty from on_closed on") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    bool empty = false;
    c.events.during = [&](Event event) {
      if (event == Event::closed) empty = !c.stream;
    };
    c.stream.abort();
    check_closed_once(world, c);
    CHECK(empty);
  });
}

TEST_CASE("a handle can be moved, and follows its stream") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    Stream moved = std::move(c.stream);
    CHECK_FALSE(c.stream);
    moved.write(chain_of("moved"));
    c.stream = std::move(moved);
    world.run_until([&] { return c.peer.received == "moved"; });
    c.stream.abort();
    check_closed_once(world, c);
  });
}

TEST_CASE("endpoints name both ends") {
  for_each_mode([](World& world) {
    const Socket listener = world.raw_listener();
    const Endpoint endpoint = local_endpoint(listener);
    Connection& c = world.connect(endpoint);
    world.accept_raw(listener, c);
    CHECK(c.stream.peer_endpoint() == endpoint);
    CHECK(c.stream.peer_endpoint().to_string() == endpoint.to_string());
    CHECK(c.stream.local_endpoint().family() == endpoint.family());
    if (!world.is_unix()) CHECK(c.stream.local_endpoint().port() != 0);
    CHECK(&c.stream.loop() == &world.loop());
  });
}

}  // namespace linkspan::conformance
