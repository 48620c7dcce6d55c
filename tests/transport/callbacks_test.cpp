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

TEST_CASE("on_open comes first, even of a stream that is written to and flushed before") {
  for_each_mode([](World& world) {
    const Socket listener = world.raw_listener();
    for (const bool connects : {false, true}) {
      CAPTURE(connects);
      Connection c;
      std::size_t completed_before_open = 0;
      c.writes.during = [&](const WriteLog::Entry&) {
        completed_before_open += c.events.count(Event::open) == 0 ? 1 : 0;
      };
      const Endpoint address = local_endpoint(listener);
      c.stream = connects ? world.transport().connect(address, {}, c.events)
                          : world.transport().open(world.raw_connect(address), {}, c.events);
      c.write(Chain());
      c.write("early");
      c.write(Chain());
      c.stream.flush();
      world.accept_raw(listener, c);
      world.run_until([&] { return c.writes.entries.size() == 3; });
      CHECK(c.writes.complete_and_in_order());
      CHECK(c.events.events == std::vector{Event::open, Event::progress});
      CHECK(completed_before_open == 0);
      c.stream.abort();
      world.run_until([&] { return c.events.closed(); });
    }
  });
}

TEST_CASE("a completion that always asks again does not keep the loop") {
  for_each_mode([](World& world) {
    constexpr int kTooOften = 10'000;
    Connection& writes = world.open();
    Connection& is_refused = world.open();
    Connection& reads = world.open();
    int empty_writes = 0;
    const std::function<void()> write_nothing = [&] {
      writes.stream.write(Chain(), [&](std::error_code error, std::size_t) {
        if (!error && ++empty_writes < kTooOften) write_nothing();
      });
    };
    int refusals = 0;
    const std::function<void()> write_too_late = [&] {
      is_refused.stream.write(chain_of("late"), [&](std::error_code error, std::size_t) {
        if (error == errc::shut_down && ++refusals < kTooOften) write_too_late();
      });
    };
    int empty_receives = 0;
    const std::function<void()> receive_nothing = [&] {
      reads.stream.receive_into(Block(), 0, [&](std::error_code error, Block&&, std::size_t) {
        if (!error && ++empty_receives < kTooOften) receive_nothing();
      });
    };
    write_nothing();
    is_refused.stream.shutdown_write();
    write_too_late();
    reads.stream.start_read();
    receive_nothing();
    for (int turn = 0; turn < 10; ++turn) world.turn(Duration::zero());
    CHECK(empty_writes > 0);
    CHECK(empty_writes < kTooOften);
    CHECK(refusals > 0);
    CHECK(refusals < kTooOften);
    CHECK(empty_receives > 0);
    CHECK(empty_receives < kTooOften);
    reads.peer.send("goes on");
    for (Connection* c : {&writes, &is_refused, &reads}) c->stream.abort();
    world.run_until(
        [&] { return writes.events.closed() && is_refused.events.closed() && reads.events.closed(); });
  });
}

TEST_CASE("a write that a release asks for at the very end completes as well") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    world.fill(c);
    const std::string memory = "borrowed";
    int released = 0;
    int completed = 0;
    int closed_before = 0;
    c.stream.write(chain_of("waits"), [&](std::error_code, std::size_t) {
      // Refused by now, and without a completion: only its release is told.
      c.stream.write(Chain(Slice::borrow(std::as_bytes(std::span(memory)), [&] {
        ++released;
        c.stream.write(chain_of("the last"), [&](std::error_code error, std::size_t) {
          completed += error == errc::cancelled ? 1 : 0;
          closed_before += c.events.closed() ? 1 : 0;
        });
      })));
    });
    c.stream.abort();
    world.run_until([&] { return c.events.closed(); });
    CHECK(released == 1);
    CHECK(completed == 1);
    CHECK(closed_before == 0);
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
