// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Every call is legal in every callback but on_closed, and so is destroying the stream: each of them is made
// inside each callback of a connection on which everything happens.
#include <sys/socket.h>

#include <array>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

constexpr std::array kEvents{Event::open,     Event::read,         Event::end,
                             Event::progress, Event::write_closed, Event::writable};

// A connection on which every event comes: it reads, crosses the water marks, hears the peer's end and then
// its reset. `act` runs once, inside the first `when`.
void run_through_everything(World& world, Event when, const std::function<void(Connection&)>& act,
                            const std::function<void(Connection&)>& check) {
  CAPTURE(when);
  StreamOptions options;
  options.high_watermark_bytes = 50'000;
  options.low_watermark_bytes = 10'000;
  const Socket listener = world.raw_listener();
  Connection& c = world.connect(local_endpoint(listener), options);
  bool acted = false;
  c.events.during = [&](Event event) {
    if (event != when || acted) return;
    acted = true;
    act(c);
  };
  c.stream.start_read();
  c.write(pattern(60'000));
  world.run_until([&] { return c.events.count(Event::open) == 1; });
  c.peer = Peer(world.raw_accept(listener));
  REQUIRE(c.peer);
  const auto over = [&] { return !c.stream; };
  c.peer.send(pattern(10'000));
  // Data that a paused stream does not take does not come.
  world.run_until([&] {
    return over() || (c.writes.entries.size() >= 1 && (acted || c.events.received.size() == 10'000));
  });
  world.settle();
  c.peer.reads = false;
  c.peer.shutdown_write();
  world.settle();
  if (!over()) c.write("unread by the peer, so that even a unix socket resets");
  world.settle();
  c.peer.reset();
  world.settle();
  // What a test's own call has paused or closed does not end by the reset alone.
  if (!over()) c.stream.abort();
  world.run_until(over);
  world.run_until([&] { return c.writes.complete_and_in_order(); });
  CHECK(acted);
  check(c);
}

void for_each_event(World& world, const std::function<void(Connection&)>& act,
                    const std::function<void(Connection&)>& check) {
  for (const Event when : kEvents) run_through_everything(world, when, act, check);
}

void closed_once(Connection& c) {
  CHECK(c.events.count(Event::closed) == 1);
  CHECK(c.events.events.back() == Event::closed);
  CHECK(c.events.count(Event::end) <= 1);
  CHECK(c.events.count(Event::write_closed) <= 1);
}

}  // namespace

TEST_CASE("everything happens on one connection, in order") {
  for_each_mode([](World& world) {
    for_each_event(
        world, [](Connection&) {},
        [](Connection& c) {
          closed_once(c);
          CHECK(c.lost());
          CHECK(c.events.events.front() == Event::open);
          for (const Event event : kEvents) CHECK(c.events.count(event) >= 1);
        });
  });
}

TEST_CASE("destroying the stream inside a callback silences it; every write still completes") {
  for_each_mode([](World& world) {
    std::size_t events_then = 0;
    for_each_event(
        world,
        [&](Connection& c) {
          events_then = c.events.events.size();
          c.stream = Stream();
        },
        [&](Connection& c) { CHECK(c.events.events.size() == events_then); });
  });
}

TEST_CASE("abort inside a callback: at most what was accepted before is still reported, then closed") {
  for_each_mode([](World& world) {
    std::size_t events_then = 0;
    for_each_event(
        world,
        [&](Connection& c) {
          events_then = c.events.events.size();
          c.stream.abort();
        },
        [&](Connection& c) {
          closed_once(c);
          for (std::size_t i = events_then; i + 1 < c.events.events.size(); ++i) {
            CHECK(c.events.events[i] == Event::progress);
          }
        });
  });
}

TEST_CASE("close inside a callback: no on_read and no on_end any more") {
  for_each_mode([](World& world) {
    std::size_t events_then = 0;
    for_each_event(
        world,
        [&](Connection& c) {
          events_then = c.events.events.size();
          c.stream.close();
        },
        [&](Connection& c) {
          closed_once(c);
          for (std::size_t i = events_then; i < c.events.events.size(); ++i) {
            CHECK(c.events.events[i] != Event::read);
            CHECK(c.events.events[i] != Event::end);
          }
        });
  });
}

TEST_CASE("pausing inside a callback holds back data and end from then on") {
  for_each_mode([](World& world) {
    std::size_t events_then = 0;
    for_each_event(
        world,
        [&](Connection& c) {
          events_then = c.events.events.size();
          c.stream.pause_read();
        },
        [&](Connection& c) {
          closed_once(c);
          for (std::size_t i = events_then; i < c.events.events.size(); ++i) {
            CHECK(c.events.events[i] != Event::read);
            CHECK(c.events.events[i] != Event::end);
          }
        });
  });
}

TEST_CASE("writing, flushing and shutting down inside a callback: every write completes once, in order") {
  for_each_mode([](World& world) {
    for_each_event(
        world,
        [&](Connection& c) {
          c.write("inside");
          c.stream.flush();
          c.write(Chain());
          c.stream.shutdown_write();
          c.write("refused");
        },
        closed_once);
  });
}

TEST_CASE("a completion may write, abort or destroy the stream") {
  for_each_mode([](World& world) {
    for (const bool destroys : {false, true}) {
      CAPTURE(destroys);
      Connection& c = world.open();
      int again = 3;
      c.writes.during = [&](const WriteLog::Entry&) {
        if (again-- > 0) {
          c.write("again");
        } else if (c.stream && destroys) {
          c.stream = Stream();
        } else if (c.stream) {
          c.stream.abort();
        }
      };
      c.write("first");
      world.run_until([&] { return !c.stream && c.writes.complete_and_in_order(); });
      CHECK(c.writes.entries.size() == 4);
      CHECK(c.events.count(Event::closed) == (destroys ? 0 : 1));
    }
  });
}

TEST_CASE("a completion that always writes again does not keep the stream from closing") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.peer.reads = false;
    world.fill(c);
    int left = 1000;
    c.writes.during = [&](const WriteLog::Entry& entry) {
      if (entry.error && left-- > 0) c.write("again");
    };
    c.stream.abort();
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.writes.complete_and_in_order());
    CHECK(left < 0);
  });
}

TEST_CASE("one stream may close another inside a callback") {
  for_each_mode([](World& world) {
    Connection& first = world.open();
    Connection& second = world.open();
    const auto destroy_the_other = [&](Connection& self, Connection& other) {
      self.events.during = [&](Event event) {
        if (event == Event::read) other.stream = Stream();
      };
    };
    destroy_the_other(first, second);
    destroy_the_other(second, first);
    first.stream.start_read();
    second.stream.start_read();
    world.settle();
    first.peer.send("x");
    second.peer.send("x");
    world.run_until([&] { return !first.stream || !second.stream; });
    world.settle();
    CHECK(first.events.count(Event::read) + second.events.count(Event::read) == 1);
  });
}

TEST_CASE("destroying a stream early aborts it: silence, but completions and borrowed memory come back") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    world.fill(c);
    const std::string memory = pattern(100'000);
    int released = 0;
    c.write(Chain(Slice::borrow(std::as_bytes(std::span(memory)), [&] { ++released; })));
    const std::size_t events = c.events.events.size();
    c.stream = Stream();
    CHECK(released == 0);
    world.run_until([&] { return released == 1 && c.writes.complete_and_in_order(); });
    CHECK(c.writes.entries.back().error == errc::cancelled);
    world.settle();
    CHECK(c.events.events.size() == events);
    CHECK(released == 1);
    c.peer.reads = true;
    world.run_until([&] { return c.peer.ended || c.peer.error != 0; });
  });
}

}  // namespace linkspan::conformance
