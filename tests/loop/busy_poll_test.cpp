// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
// Polling before sleeping, on a clock that only the engine moves.
#include "lib/loop/busy_poll.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/timer.hpp"
#include "support/engines.hpp"
#include "support/fake_clock.hpp"

using namespace linkspan;
using std::literals::operator""us;
using std::literals::operator""ms;
using std::literals::operator""s;
using linkspan::test::EngineScript;
using linkspan::test::FakeWorld;
using linkspan::test::null_loop;

namespace {

constexpr Duration kLimit = 100us;
constexpr Duration kPoll = 10us;  // what a poll that finds nothing takes

// A loop for which an event comes so long after it has become idle, whether it polls or sleeps.
struct BusyLoop {
  explicit BusyLoop(Duration limit = kLimit) {
    script.on_poll = [this](Duration timeout) {
      const Duration left = next_event - world.clock.now().time_since_epoch();
      script.finds_events = left <= timeout + kPoll;
      world.clock.advance(script.finds_events ? std::max(left, Duration::zero()) : timeout + kPoll);
    };
    EventLoopOptions options;
    options.environment = &world.environment;
    options.busy_poll = limit;
    loop = null_loop(script, options);
  }

  void tick(Duration event_after, Duration max_wait = 1s) {
    next_event = world.clock.now().time_since_epoch() + event_after;
    script.timeouts.clear();
    loop->run_once(max_wait);
  }
  [[nodiscard]] bool slept() const { return script.timeouts.back() > Duration::zero(); }
  [[nodiscard]] bool polled() const { return script.timeouts.front() == Duration::zero(); }

  FakeWorld world;
  EngineScript script;
  Duration next_event{};
  std::unique_ptr<EventLoop> loop;
};

}  // namespace

TEST_CASE("without the option a loop that has nothing to do sleeps at once") {
  BusyLoop busy(Duration::zero());
  busy.tick(50us);
  CHECK(busy.script.timeouts == std::vector<Duration>{1s});
  CHECK(busy.loop->counters().busy_polls.get() == 0);
}

TEST_CASE("an event that comes while the loop polls ends the tick without a sleep") {
  BusyLoop busy;
  busy.tick(50us);
  CHECK(busy.polled());
  CHECK_FALSE(busy.slept());
  const LoopCounters& counters = busy.loop->counters();
  CHECK(counters.wake_ups.get() == 0);
  CHECK(counters.busy_polls.get() == 1);
  CHECK(counters.busy_poll_hits.get() == 1);
  CHECK(counters.busy_poll_ns.get() == 50'000);
}

TEST_CASE("a loop polls for no longer than it may, and then sleeps for the rest of the time") {
  BusyLoop busy;
  busy.tick(1ms, 1ms);
  CHECK(busy.script.timeouts.size() == 11);
  CHECK(busy.script.timeouts.back() == 1ms - kLimit);
  CHECK(busy.loop->counters().busy_poll_ns.get() == 100'000);
  CHECK(busy.loop->counters().busy_poll_hits.get() == 0);
  CHECK(busy.loop->counters().wake_ups.get() == 1);
}

TEST_CASE("a loop whose events come late stops polling, and begins again when they come soon") {
  BusyLoop busy;
  for (int i = 0; i < 4; ++i) busy.tick(5ms);
  const std::uint64_t polls = busy.loop->counters().busy_polls.get();
  CHECK(polls <= 2);
  busy.tick(5ms);
  CHECK_FALSE(busy.polled());

  for (int i = 0; i < 2; ++i) {
    busy.tick(50us);
    CHECK_FALSE(busy.polled());
  }
  busy.tick(50us);
  CHECK(busy.polled());
  CHECK_FALSE(busy.slept());
  CHECK(busy.loop->counters().busy_polls.get() == polls + 1);
}

TEST_CASE("a timer that is due soon bounds polling as it bounds sleeping, and fires in time") {
  BusyLoop busy;
  bool fired = false;
  Timer timer(*busy.loop, [&] { fired = true; });
  timer.start(1ms);
  while (!fired) {
    busy.tick(3600s);
    REQUIRE(busy.loop->counters().ticks.get() < 20);
  }
  CHECK(busy.loop->counters().worst_lateness_ns.get() <= 1'000'000);
}

TEST_CASE("a task that is posted while the loop polls needs no wake-up and runs in the next tick") {
  BusyLoop busy;
  bool ran = false;
  const auto poll = busy.script.on_poll;
  busy.script.on_poll = [&](Duration timeout) {
    poll(timeout);
    if (!ran) CHECK(busy.loop->post([&] { ran = true; }));
  };
  busy.tick(3600s);
  CHECK_FALSE(busy.slept());
  CHECK(busy.loop->counters().busy_poll_hits.get() == 1);
  busy.tick(3600s);
  CHECK(ran);
}

TEST_CASE("stop ends polling") {
  BusyLoop busy;
  const auto poll = busy.script.on_poll;
  busy.script.on_poll = [&](Duration timeout) {
    poll(timeout);
    busy.loop->stop();
  };
  busy.tick(3600s);
  CHECK(busy.script.timeouts.size() == 1);
}

TEST_CASE("polling ends on a clock that stands still") {
  BusyLoop busy;
  busy.script.on_poll = nullptr;
  busy.loop->run_once(1s);
  CHECK(busy.slept());
}

TEST_CASE("no more loops poll at a time than there are CPUs") {
  const auto cpus = static_cast<std::size_t>(std::thread::hardware_concurrency());
  std::vector<BusyPoll> loops(cpus + 3, BusyPoll(kLimit));
  std::size_t polling = 0;
  for (BusyPoll& loop : loops) polling += loop.begin() ? 1 : 0;
  CHECK(polling <= cpus);
  CHECK(polling >= 1);
  CHECK_FALSE(loops.back().begin());
  for (std::size_t i = 0; i < polling; ++i) loops[i].finish();
  CHECK(loops.back().begin());
  loops.back().finish();
}

TEST_CASE("a busy_poll below zero or above its bound is refused with the bound") {
  EngineScript script;
  for (const Duration wrong : {Duration(-1us), Duration(11ms)}) {
    EventLoopOptions options;
    options.busy_poll = wrong;
    const auto loop = EventLoop::create(
        [&script](EventLoop&) -> Result<std::unique_ptr<Engine>> {
          return std::unique_ptr<Engine>(std::make_unique<linkspan::test::NullEngine>(script));
        },
        options);
    REQUIRE_FALSE(loop.ok());
    CHECK(loop.error().detail.find("10 ms") != std::string::npos);
  }
}
