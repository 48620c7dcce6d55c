// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/timer.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/engines.hpp"
#include "support/fake_clock.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using std::literals::operator""h;
using std::literals::operator""s;
using std::literals::operator""ms;
using linkspan::test::EngineScript;
using linkspan::test::FakeWorld;
using linkspan::test::LogCapture;

namespace {

struct Fixture {
  Fixture() {
    EventLoopOptions options;
    options.environment = &world.environment;
    loop = test::null_loop(script, std::move(options));
  }
  void run_after(Duration delay) {
    world.clock.advance(delay);
    loop->run_once(Duration::zero());
  }

  FakeWorld world;
  EngineScript script;
  std::unique_ptr<EventLoop> loop;
  std::string journal;
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a timer fires once, and can be started again") {
  Timer timer(*loop, [this] { journal += "x"; });
  CHECK_FALSE(timer.active());
  timer.start(5ms);
  CHECK(timer.active());
  run_after(4ms);
  CHECK(journal.empty());
  run_after(1ms);
  CHECK(journal == "x");
  CHECK_FALSE(timer.active());
  run_after(1h);
  CHECK(journal == "x");
  timer.start(1ms);
  run_after(1ms);
  CHECK(journal == "xx");
  CHECK(loop->counters().timers.get() == 2);
}

TEST_CASE_FIXTURE(Fixture, "a loop says when its next timer is due, and that there is none") {
  CHECK(loop->next_timer() == TimePoint::max());
  Timer late(*loop, [] {});
  late.start(1h);
  CHECK(loop->next_timer() > loop->now());
  CHECK(loop->next_timer() <= loop->now() + 1h + 1ms);
  Timer early(*loop, [] {});
  early.start(5ms);
  CHECK(loop->next_timer() <= loop->now() + 6ms);
  early.cancel();
  late.cancel();
  CHECK(loop->next_timer() == TimePoint::max());
}

TEST_CASE_FIXTURE(Fixture, "starting a running timer moves it, and cancel stops it") {
  Timer timer(*loop, [this] { journal += "x"; });
  timer.start(5ms);
  timer.start(10ms);
  run_after(6ms);
  CHECK(journal.empty());
  run_after(4ms);
  CHECK(journal == "x");
  timer.start(1ms);
  timer.cancel();
  timer.cancel();
  run_after(1s);
  CHECK(journal == "x");
}

TEST_CASE_FIXTURE(Fixture, "a delay of zero or less fires in the next tick, not in the one that runs") {
  Timer zero(*loop, [this] { journal += "0"; });
  Timer again(*loop, [&, this] {
    journal += "a";
    zero.start(Duration::zero());
  });
  again.start(Duration::min());
  run_after(Duration::zero());
  CHECK(journal == "a");
  run_after(Duration::zero());
  CHECK(journal == "a0");
  CHECK(script.timeouts == std::vector<Duration>{Duration::zero(), Duration::zero()});
}

TEST_CASE_FIXTURE(Fixture, "a timer that restarts itself without a delay leaves the engine its turn") {
  int fired = 0;
  std::optional<Timer> timer;
  timer.emplace(*loop, [&] {
    ++fired;
    timer->start(Duration::zero());
  });
  timer->start(Duration::zero());
  for (int i = 0; i < 5; ++i) loop->run_once(Duration::max());
  CHECK(fired == 5);
  CHECK(script.timeouts.size() == 5);
}

TEST_CASE_FIXTURE(Fixture, "a timer may destroy itself and others from its callback") {
  auto victim = std::make_unique<Timer>(*loop, [this] { journal += "victim"; });
  auto self = std::make_unique<Timer>(*loop, [] {});
  self = std::make_unique<Timer>(*loop, [&, text = std::string("a closure that has to stay alive")] {
    victim.reset();
    self.reset();
    journal += text;
  });
  self->start(1ms);
  victim->start(1ms);
  run_after(1ms);
  CHECK(journal == "a closure that has to stay alive");
}

TEST_CASE_FIXTURE(Fixture, "a timer that is due may be cancelled or moved by one that fires before it") {
  Timer cancelled(*loop, [this] { journal += "cancelled"; });
  Timer moved(*loop, [this] { journal += "m"; });
  Timer first(*loop, [&, this] {
    journal += "f";
    cancelled.cancel();
    moved.start(1ms);
  });
  first.start(1ms);
  cancelled.start(1ms);
  moved.start(1ms);
  run_after(1ms);
  CHECK(journal == "f");
  run_after(1ms);
  CHECK(journal == "fm");
}

TEST_CASE_FIXTURE(Fixture,
                  "a timer that the engine's events start counts from the event, not from the tick") {
  Timer timer(*loop, [this] { journal += "x"; });
  script.on_poll = [&](Duration) {
    world.clock.advance(10s);  // the engine slept
    timer.start(5s);
  };
  loop->run_once(Duration::max());
  script.on_poll = nullptr;
  loop->run_once(Duration::zero());
  CHECK(journal.empty());
  run_after(5s);
  CHECK(journal == "x");
}

TEST_CASE_FIXTURE(Fixture, "lateness is counted against the deadline") {
  Timer timer(*loop, [] {});
  timer.start(5ms);
  run_after(7ms);
  CHECK(loop->counters().worst_lateness_ns.get() == 2'000'000);
}

TEST_CASE_FIXTURE(Fixture, "a timer that throws is logged and counted, and may be started again") {
  const LogCapture captured;
  Timer timer(*loop, [this] {
    journal += "x";
    throw std::runtime_error("no luck");
  });
  Timer odd(*loop, [] { throw 1; });
  timer.start(1ms);
  odd.start(1ms);
  run_after(1ms);
  CHECK(loop->counters().failed_callbacks.get() == 2);
  CHECK(captured.contains("a timer threw: no luck"));
  CHECK(captured.contains("not a std::exception"));
  timer.start(1ms);
  run_after(1ms);
  CHECK(journal == "xx");
}
