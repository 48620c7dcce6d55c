// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
// The timer wheel against a list that is sorted.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/timer.hpp"
#include "support/engines.hpp"
#include "support/fake_clock.hpp"
#include "support/sanitized.hpp"

using namespace linkspan;
using std::literals::operator""h;
using std::literals::operator""s;
using std::literals::operator""ms;
using std::literals::operator""ns;
using linkspan::test::EngineScript;
using linkspan::test::FakeWorld;

namespace {

constexpr Duration kYear = std::chrono::hours(24 * 365);
constexpr Duration kTick = 1ms;

EventLoopOptions options_in(FakeWorld& world) {
  EventLoopOptions options;
  options.environment = &world.environment;
  return options;
}

class Model {
 public:
  Model(std::uint32_t seed, std::size_t timers_per_tick) : generator_(seed), limit_(timers_per_tick) {
    EventLoopOptions options = options_in(world_);
    options.timers_per_tick = timers_per_tick;
    loop_ = test::null_loop(script_, std::move(options));
    origin_ = loop_->now();
    for (std::size_t i = 0; i < 100; ++i) {
      timers_.push_back(std::make_unique<Timer>(*loop_, [this, i] { fired_.push_back(i); }));
    }
    // Time passes while the engine waits, and its callbacks start timers too.
    script_.on_poll = [this](Duration timeout) {
      const Duration bound = next_due() - world_.clock.now();
      late_ = late_ || timeout > std::max(bound, Duration::zero());
      world_.clock.advance(some_jump());
      start_some();
    };
  }

  ~Model() { script_.on_poll = nullptr; }  // the loop polls once more while it is destroyed

  void step() {
    start_some();
    if (below(3) == 0) {
      const std::size_t index = below(timers_.size());
      timers_[index]->cancel();
      std::erase_if(expected_, [index](const Entry& entry) { return entry.index == index; });
    }
    fired_.clear();
    collect_due();
    loop_->run_once(Duration::zero());
  }

  // Compared before the poll's own starts could matter: fired_ is complete when the engine polls.
  [[nodiscard]] bool agrees() const { return fired_ == due_ && !late_; }
  [[nodiscard]] std::uint64_t fired_count() const { return loop_->counters().timers.get(); }

 private:
  struct Entry {
    TimePoint deadline;
    std::uint64_t sequence;
    std::size_t index;
    bool immediate;
  };

  std::size_t below(std::size_t bound) { return generator_() % bound; }

  Duration some_delay() {
    const auto number = static_cast<std::int64_t>(generator_());
    switch (below(8)) {
      case 0: return Duration::zero();
      case 1: return Duration(-number);
      case 2: return Duration(number % 2'000'000);
      case 3: return kTick * (number % 70);
      case 4: return Duration(number);
      case 5: return std::chrono::seconds(number % 5000);
      case 6: return std::chrono::hours(number % 50);
      default: return kYear * (number % 3) + std::chrono::seconds(number % 100'000);
    }
  }
  Duration some_jump() {
    const auto number = static_cast<std::int64_t>(generator_());
    switch (below(6)) {
      case 0: return Duration::zero();
      case 1: return Duration(number % 3'000'000);
      case 2: return kTick * (number % 100);
      case 3: return std::chrono::seconds(number % 100);
      case 4: return below(10) == 0 ? Duration(std::chrono::hours(number % 50)) : kTick;
      default: return below(500) == 0 ? kYear : Duration(number);
    }
  }
  void start_some() {
    for (std::size_t i = below(6); i > 0; --i) {
      const std::size_t index = below(timers_.size());
      const Duration delay = some_delay();
      std::erase_if(expected_, [index](const Entry& entry) { return entry.index == index; });
      const bool immediate = delay <= Duration::zero();
      expected_.push_back({immediate ? loop_->now() : loop_->now() + delay, ++sequence_, index, immediate});
      timers_[index]->start(delay);
    }
  }
  // The time at which an entry may fire: its deadline on the wheel's grid.
  [[nodiscard]] TimePoint grid_time(const Entry& entry) const {
    if (entry.immediate) return entry.deadline;
    return origin_ + std::chrono::ceil<std::chrono::milliseconds>(entry.deadline - origin_);
  }
  [[nodiscard]] TimePoint next_due() const {
    TimePoint next = TimePoint::max();
    for (const Entry& entry : expected_) next = std::min(next, grid_time(entry));
    return next;
  }
  void collect_due() {
    const TimePoint now = world_.clock.now();
    std::ranges::sort(expected_, {},
                      [](const Entry& entry) { return std::tuple(entry.deadline, entry.sequence); });
    due_.clear();
    std::erase_if(expected_, [&](const Entry& entry) {
      if (grid_time(entry) > now || due_.size() == limit_) return false;
      due_.push_back(entry.index);
      return true;
    });
  }

  std::mt19937 generator_;
  std::size_t limit_;
  FakeWorld world_;
  EngineScript script_;
  std::unique_ptr<EventLoop> loop_;
  TimePoint origin_;
  std::deque<std::unique_ptr<Timer>> timers_;
  std::vector<Entry> expected_;
  std::uint64_t sequence_ = 0;
  std::vector<std::size_t> due_;
  std::vector<std::size_t> fired_;
  bool late_ = false;
};

}  // namespace

TEST_CASE("timers fire never early, never late, and in the order of their deadlines and starts") {
  constexpr int kSteps = test::kSanitized ? 5'000 : 40'000;
  for (const std::size_t timers_per_tick : {std::size_t{1000}, std::size_t{3}}) {
    for (const std::uint32_t seed : {1u, 2u, 3u}) {
      CAPTURE(timers_per_tick);
      CAPTURE(seed);
      Model model(seed, timers_per_tick);
      for (int i = 0; i < kSteps; ++i) {
        CAPTURE(i);
        model.step();
        REQUIRE(model.agrees());
      }
      CHECK(model.fired_count() > static_cast<std::uint64_t>(kSteps) / 10);
    }
  }
}

TEST_CASE("a loop that sleeps as long as it may wakes seldom, and exactly when a timer is due") {
  for (const Duration delay : {Duration(1ms), Duration(63ms), Duration(64ms), Duration(5s), Duration(1h),
                               Duration(1h) * 24 * 40, kYear * 3, kYear * 100, Duration(123'456'789)}) {
    CAPTURE(delay.count());
    FakeWorld world;
    EngineScript script;
    script.on_poll = [&world](Duration timeout) { world.clock.advance(timeout); };
    const auto loop = test::null_loop(script, options_in(world));
    const TimePoint start = loop->now();
    TimePoint fired;
    Timer timer(*loop, [&] { fired = loop->now(); });
    timer.start(delay);
    int ticks = 0;
    for (; timer.active() && ticks < 10; ++ticks) loop->run_once(Duration::max());
    CHECK(ticks <= 8);  // at most one stop on each of the 7 levels
    CHECK(fired - start == std::chrono::ceil<std::chrono::milliseconds>(delay));
  }
}

TEST_CASE("ten thousand timers with one deadline fire in the order of their starts") {
  FakeWorld world;
  EngineScript script;
  EventLoopOptions options = options_in(world);
  options.timers_per_tick = 100'000;
  const auto loop = test::null_loop(script, std::move(options));
  std::vector<int> fired;
  std::deque<Timer> timers;
  for (int i = 0; i < 10'000; ++i) {
    timers.emplace_back(*loop, [&fired, i] { fired.push_back(i); });
    timers.back().start(std::chrono::hours(3));
  }
  world.clock.advance(std::chrono::hours(3) - 1ns);
  loop->run_once(Duration::zero());
  CHECK(fired.empty());
  world.clock.advance(1ns);
  loop->run_once(Duration::zero());
  CHECK(fired.size() == 10'000);
  CHECK(std::ranges::is_sorted(fired));
}

TEST_CASE("deadlines beyond the wheel's end fire there, and the wheel goes on") {
  constexpr Duration kWheel = std::chrono::milliseconds((std::int64_t{1} << 42) - 1);
  FakeWorld world;
  EngineScript script;
  const auto loop = test::null_loop(script, options_in(world));
  int fired = 0;
  Timer farthest(*loop, [&fired] { ++fired; });
  Timer far(*loop, [&fired] { ++fired; });
  farthest.start(Duration::max());
  far.start(kWheel + 1h);
  world.clock.advance(kWheel - 1ms);
  loop->run_once(Duration::zero());
  CHECK(fired == 0);
  world.clock.advance(1ms);
  loop->run_once(Duration::zero());
  CHECK(fired == 2);
  CHECK(loop->counters().worst_lateness_ns.get() == 0);
  world.clock.advance(1h);
  loop->run_once(Duration::zero());
  farthest.start(1ms);
  world.clock.advance(1ms);
  loop->run_once(Duration::zero());
  CHECK(fired == 3);
}
