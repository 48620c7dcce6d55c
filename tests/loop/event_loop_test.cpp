// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
// A loop on the test's own thread, tick by tick.
#include "linkspan/loop/event_loop.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/loop/timer.hpp"
#include "support/engines.hpp"
#include "support/fake_clock.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using std::literals::operator""s;
using std::literals::operator""ms;
using linkspan::test::EngineScript;
using linkspan::test::FakeWorld;
using linkspan::test::LogCapture;
using linkspan::test::null_loop;

namespace {

class Deferred final : public DeferredTask {
 public:
  explicit Deferred(std::function<void()> body) : body_(std::move(body)) {}
  void run_deferred() override { body_(); }

 private:
  std::function<void()> body_;
};

using Journal = std::vector<std::string>;

}  // namespace

TEST_CASE("a loop that cannot make its engine says why, and destroys what was posted to it") {
  auto task_alive = std::make_shared<int>(0);
  const auto loop = EventLoop::create([&](EventLoop& made) -> Result<std::unique_ptr<Engine>> {
    CHECK(made.post([task_alive] {}));
    return Error(errc::unavailable, "no such engine here");
  });
  REQUIRE_FALSE(loop.ok());
  CHECK(loop.error().code == errc::unavailable);
  CHECK(loop.error().detail == "no such engine here");
  CHECK(task_alive.use_count() == 1);
}

TEST_CASE("options that would never run anything are refused") {
  EngineScript script;
  EventLoopOptions no_tasks;
  no_tasks.tasks_per_tick = 0;
  EventLoopOptions no_timers;
  no_timers.timers_per_tick = 0;
  EventLoopOptions trims_always;
  trims_always.trim_interval = Duration::zero();
  for (const EventLoopOptions& options : {no_tasks, no_timers, trims_always}) {
    const auto loop = EventLoop::create(
        [&script](EventLoop&) -> Result<std::unique_ptr<Engine>> {
          return std::unique_ptr<Engine>(std::make_unique<test::NullEngine>(script));
        },
        options);
    REQUIRE_FALSE(loop.ok());
    CHECK(loop.error().code == errc::invalid_argument);
  }
}

TEST_CASE("a loop belongs to the thread that made it") {
  EngineScript script;
  const auto loop = null_loop(script);
  CHECK(loop->in_loop_thread());
  bool elsewhere = true;
  std::thread([&] { elsewhere = loop->in_loop_thread(); }).join();
  CHECK_FALSE(elsewhere);
}

TEST_CASE("a tick runs timers, then tasks, then deferred tasks, then the engine") {
  Journal journal;
  EngineScript script;
  FakeWorld world;
  EventLoopOptions options;
  options.environment = &world.environment;
  const auto loop = null_loop(script, std::move(options));
  script.on_poll = [&](Duration) { journal.push_back("engine"); };
  Deferred deferred([&] { journal.push_back("deferred"); });
  Timer timer(*loop, [&] { journal.push_back("timer"); });
  loop->defer(deferred);
  CHECK(loop->post([&] { journal.push_back("task"); }));
  timer.start(Duration::zero());
  loop->run_once(Duration::zero());
  CHECK(journal == Journal{"timer", "task", "deferred", "engine"});
  CHECK(loop->counters().ticks.get() == 1);
  CHECK(loop->counters().tasks.get() == 1);
}

TEST_CASE("the engine may sleep only when nothing waits to run") {
  EngineScript script;
  const auto loop = null_loop(script);
  Deferred again([&] { loop->defer(again); });
  loop->run_once(Duration::max());
  CHECK(script.timeouts.back() == Duration::max());
  CHECK(loop->counters().wake_ups.get() == 1);

  CHECK(loop->post([&] { CHECK(loop->post([] {})); }));
  loop->run_once(Duration::max());
  CHECK(script.timeouts.back() == Duration::zero());
  loop->run_once(5ms);
  CHECK(script.timeouts.back() == 5ms);

  loop->defer(again);
  loop->run_once(Duration::max());
  CHECK(script.timeouts.back() == Duration::zero());
  CHECK(loop->counters().wake_ups.get() == 2);
}

TEST_CASE("a deferred task runs once a tick; deferred by a deferred task, in the next") {
  Journal journal;
  EngineScript script;
  const auto loop = null_loop(script);
  Deferred second([&] { journal.push_back("second"); });
  Deferred first([&] {
    journal.push_back("first");
    loop->defer(first);
    loop->defer(second);
  });
  loop->defer(first);
  loop->defer(first);
  loop->run_once(Duration::zero());
  CHECK(journal == Journal{"first"});
  loop->run_once(Duration::zero());
  CHECK(journal == Journal{"first", "first", "second"});
}

TEST_CASE("a deferred task that is destroyed does not run, also when another one destroys it") {
  Journal journal;
  EngineScript script;
  const auto loop = null_loop(script);
  auto victim = std::make_unique<Deferred>([&] { journal.push_back("victim"); });
  Deferred killer([&] {
    journal.push_back("killer");
    victim.reset();
  });
  loop->defer(killer);
  loop->defer(*victim);
  {
    Deferred gone([&] { journal.push_back("gone"); });
    loop->defer(gone);
  }
  loop->run_once(Duration::zero());
  CHECK(journal == Journal{"killer"});
}

TEST_CASE("work in a tick is bounded") {
  EngineScript script;
  EventLoopOptions options;
  options.tasks_per_tick = 10;
  options.timers_per_tick = 4;
  const auto loop = null_loop(script, std::move(options));
  int tasks = 0;
  for (int i = 0; i < 25; ++i) CHECK(loop->post([&] { ++tasks; }));
  int fired = 0;
  std::vector<std::unique_ptr<Timer>> timers;
  for (int i = 0; i < 10; ++i) {
    timers.push_back(std::make_unique<Timer>(*loop, [&fired] { ++fired; }));
    timers.back()->start(Duration::zero());
  }
  std::vector<std::pair<int, int>> seen;
  for (int i = 0; i < 3; ++i) {
    loop->run_once(Duration::max());
    seen.emplace_back(tasks, fired);
    CHECK((script.timeouts.back() == Duration::zero()) == (i < 2));
  }
  CHECK(seen == std::vector<std::pair<int, int>>{{10, 4}, {20, 8}, {25, 10}});
}

TEST_CASE("a task that posts itself again leaves the engine its turn") {
  EngineScript script;
  auto owner = null_loop(script);
  EventLoop& loop = *owner;
  int runs = 0;
  std::function<void()> again = [&] {
    ++runs;
    static_cast<void>(loop.post([&] { again(); }));
  };
  again();
  for (int i = 0; i < 5; ++i) loop.run_once(Duration::max());
  CHECK(runs == 6);
  CHECK(script.timeouts.size() == 5);
  owner.reset();  // runs what is posted already, and refuses the rest
  CHECK(runs == 8);
}

TEST_CASE("tasks and deferred tasks that throw are logged and counted, and the others run") {
  const LogCapture captured;
  EngineScript script;
  const auto loop = null_loop(script);
  bool ran = false;
  Deferred deferred([] { throw std::runtime_error("deferred trouble"); });
  loop->defer(deferred);
  CHECK(loop->post([] { throw std::runtime_error("trouble"); }));
  CHECK(loop->post([&] { ran = true; }));
  loop->run_once(Duration::zero());
  CHECK(ran);
  CHECK(loop->counters().failed_callbacks.get() == 2);
  CHECK(captured.contains("a task threw: trouble"));
  CHECK(captured.contains("a deferred task threw: deferred trouble"));
}

TEST_CASE("post refuses beyond the bound, destroys the task, and takes more when some have run") {
  EngineScript script;
  EventLoopOptions options;
  options.max_pending_tasks = 2;
  const auto loop = null_loop(script, std::move(options));
  auto alive = std::make_shared<int>(0);
  CHECK(loop->post([] {}));
  CHECK(loop->post([] {}));
  CHECK_FALSE(loop->post([alive] {}));
  CHECK(alive.use_count() == 1);
  loop->run_once(Duration::zero());
  CHECK(loop->post([] {}));
}

TEST_CASE("a loop stops in the order that it promises") {
  Journal journal;
  EngineScript script;
  script.journal = &journal;
  script.idle = false;
  FakeWorld world;
  EventLoopOptions options;
  options.environment = &world.environment;
  const auto loop = null_loop(script, std::move(options));
  Timer timer(*loop, [&] { journal.push_back("timer"); });
  timer.start(1ms);
  Deferred deferred([&] { journal.push_back("deferred"); });

  CHECK(loop->post([&] {
    world.clock.advance(1s);  // the timer is due, and yet does not fire any more
    loop->stop();
    loop->stop();
    CHECK(loop->post([&] { journal.push_back("posted before stop"); }));
  }));
  int polls = 0;
  script.on_poll = [&](Duration) {
    switch (++polls) {
      case 1: break;  // the tick in which stop() was called
      case 2:
        journal.push_back("completion");
        CHECK(loop->post([&] {
          journal.push_back("posted by a completion");
          loop->defer(deferred);
        }));
        break;
      default:
        script.idle = true;
        CHECK(loop->post([&] {
          journal.push_back("posted at the end");
          CHECK_FALSE(loop->post([] {}));
        }));
    }
  };
  loop->run();
  CHECK(journal == Journal{"stop", "posted before stop", "completion", "posted by a completion", "deferred",
                           "posted at the end"});
  CHECK(loop->stopping());
  CHECK_FALSE(timer.active());
  CHECK_FALSE(loop->post([] {}));
}

TEST_CASE("a loop whose engine does not come to rest gives up at the stop deadline") {
  const LogCapture captured;
  EngineScript script;
  script.idle = false;
  FakeWorld world;
  EventLoopOptions options;
  options.name = "stubborn";
  options.environment = &world.environment;
  options.stop_deadline = 100ms;
  const auto loop = null_loop(script, std::move(options));
  script.on_poll = [&](Duration timeout) { world.clock.advance(timeout); };
  const TimePoint begin = world.clock.now();
  loop->stop();
  loop->run();
  CHECK(world.clock.now() - begin >= 100ms);
  CHECK(world.clock.now() - begin <= 120ms);
  CHECK(captured.contains("stubborn: stopped with operations still open"));
  script.idle = true;
}

TEST_CASE("a stop deadline without end waits for the engine") {
  EngineScript script;
  script.idle = false;
  EventLoopOptions options;
  options.stop_deadline = Duration::max();
  const auto loop = null_loop(script, std::move(options));
  script.on_poll = [&](Duration) { script.idle = script.timeouts.size() == 5; };
  loop->stop();
  loop->run();
  CHECK(script.timeouts.size() == 5);
}

TEST_CASE("a loop with nothing open stops without waiting") {
  EngineScript script;
  {
    const auto loop = null_loop(script);
    loop->stop();
    loop->run();
  }
  { const auto destroyed_only = null_loop(script); }
  CHECK(script.timeouts == std::vector<Duration>{Duration::zero(), Duration::zero()});
}

TEST_CASE("a loop that is destroyed without run still runs what was posted") {
  EngineScript script;
  bool ran = false;
  {
    const auto loop = null_loop(script);
    CHECK(loop->post([&] { ran = true; }));
  }
  CHECK(ran);
}

TEST_CASE("the engine hears of memory that comes back after a refusal, from any thread") {
  EngineScript script;
  EventLoopOptions options;
  options.pool.budget_bytes = 512;
  const auto loop = null_loop(script, std::move(options));
  Block block = loop->pool().allocate(1);
  REQUIRE_FALSE(loop->pool().allocate(1));
  std::thread([gone = std::move(block)]() mutable { gone.reset(); }).join();
  CHECK(script.memory_available == 1);
}

TEST_CASE("what the loop's thread copies is the loop's count") {
  EngineScript script;
  const auto loop = null_loop(script);
  const CopyCounts before = loop->copy_counts();
  static_cast<void>(Slice::copy("12345"));
  CHECK((loop->copy_counts() - before)[CopyPlace::user] == 5);
}

TEST_CASE("memory that the pool has kept and nobody needs goes back while the loop idles, in two intervals") {
  test::FakeWorld world;
  EngineScript script;
  EventLoopOptions options;
  options.environment = &world.environment;
  options.trim_interval = std::chrono::seconds(10);
  const auto loop = null_loop(script, std::move(options));
  const auto cached = [&loop] { return loop->pool().statistics().cached_bytes; };
  const auto sleep_through = [&] {
    loop->run_once(Duration::max());
    const Duration wait = script.timeouts.back();
    if (wait != Duration::max()) world.clock.advance(wait);
    return wait;
  };
  CHECK(sleep_through() == Duration::max());
  loop->pool().allocate(4096).reset();
  CHECK(cached() == 4096);
  const TimePoint begin = world.clock.now();
  while (sleep_through() != Duration::max() && cached() != 0) continue;
  CHECK(cached() == 0);
  CHECK(world.clock.now() - begin <= std::chrono::milliseconds(20'002));
  CHECK(sleep_through() == Duration::max());
}

TEST_CASE(
    "blocks that other threads release while the loop sleeps are taken home when it wakes, and go back") {
  test::FakeWorld world;
  EngineScript script;
  EventLoopOptions options;
  options.environment = &world.environment;
  const auto loop = null_loop(script, std::move(options));
  Block block = loop->pool().allocate(4096);
  std::thread([gone = std::move(block)]() mutable { gone.reset(); }).join();
  loop->run_once(Duration::zero());
  CHECK(loop->pool().statistics().live_bytes == 0);
  for (int i = 0; i < 3; ++i) {
    world.clock.advance(EventLoopOptions().trim_interval + std::chrono::milliseconds(2));
    loop->run_once(Duration::zero());
  }
  CHECK(loop->pool().statistics().cached_bytes == 0);
}

TEST_CASE("a loop that uses what its pool keeps does not give it back") {
  test::FakeWorld world;
  EngineScript script;
  EventLoopOptions options;
  options.environment = &world.environment;
  const auto loop = null_loop(script, std::move(options));
  for (int i = 0; i < 10; ++i) {
    loop->pool().allocate(4096).reset();
    loop->run_once(Duration::zero());
    world.clock.advance(std::chrono::milliseconds(600));
  }
  CHECK(loop->pool().statistics().cached_bytes == 4096);
}
