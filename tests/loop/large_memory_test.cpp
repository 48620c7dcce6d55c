// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/large_memory.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/loop/timer.hpp"
#include "support/engines.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using std::literals::operator""ms;
using std::literals::operator""us;
using linkspan::test::EngineScript;
using linkspan::test::LogCapture;
using linkspan::test::make_sleeping_engine;
using linkspan::test::null_loop;
using Place = LargeAllocation::Place;

namespace {

constexpr std::size_t kGrain = 64 << 10;  // the least that a step prepares
constexpr std::size_t kMiB = 1 << 20;
const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

std::unique_ptr<LargeMemory> large_memory(std::size_t budget_bytes = 256 * kMiB) {
  LargeMemoryOptions options;
  options.pages.budget_bytes = budget_bytes;
  return LargeMemory::create(std::move(options)).value_or_throw();
}

bool all_zero(Block& block) {
  return std::ranges::all_of(block.writable(), [](std::byte byte) { return byte == std::byte{0}; });
}

// Returns when the helper thread has given all memory back.
void wait_until_unmapped(LargeMemory& memory) {
  for (;;) {
    const PageAllocatorStatistics statistics = memory.pages().statistics();
    if (statistics.live_bytes + statistics.released_bytes == 0) return;
    std::this_thread::yield();
  }
}

// A loop on this thread that never sleeps.
struct AwakeLoop {
  AwakeLoop(EventLoopOptions options = {}) : loop(null_loop(script, std::move(options))) {}

  template <class Done>
  void run_until(Done done) {
    for (; !done(); std::this_thread::yield()) loop->run_once(Duration::zero());
  }
  void finish(const LargeAllocation& allocation) {
    run_until([&allocation] { return !allocation.active(); });
  }

  EngineScript script;
  std::unique_ptr<EventLoop> loop;
};

// What the completion was given; outlives the allocation.
struct Outcome {
  int calls = 0;
  std::error_code error;
  Block block;

  LargeAllocation::Completion completion() {
    return [this](Block given, std::error_code why) {
      ++calls;
      CHECK(static_cast<bool>(given) != static_cast<bool>(why));
      block = std::move(given);
      error = why;
    };
  }
};

// Each look at the clock takes `tick`.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(Duration tick) noexcept : tick_(tick) {}
  [[nodiscard]] TimePoint now() const noexcept override {
    return TimePoint(tick_ * looks_.fetch_add(1, std::memory_order_relaxed));
  }
  [[nodiscard]] TimePoint peek() const noexcept { return TimePoint(tick_ * looks_.load()); }

 private:
  Duration tick_;
  mutable std::atomic<int> looks_{1};
};

// A loop on the test's thread in a world where each look at the clock takes `look`. With kSlow a tick is late
// as soon as it has begun, and a step does the least it can; with zero time stands still.
struct Ticks {
  explicit Ticks(Duration look) : clock(look) {
    EventLoopOptions options;
    options.environment = &environment;
    loop = null_loop(script, std::move(options));
  }

  void run(std::size_t ticks) {
    for (; ticks != 0; --ticks) loop->run_once(Duration::zero());
  }

  static constexpr Duration kSlow = 1ms;

  TickingClock clock;
  const Environment& system = Environment::system();
  Environment environment{clock, system.random, system.threads, system.resolver, system.files};
  EngineScript script;
  std::unique_ptr<EventLoop> loop;
};

class NoThreads final : public Threads {
 public:
  Result<std::unique_ptr<Thread>> start(const std::string& name, std::optional<int>,
                                        unique_function<void()>) override {
    return Error(errc::unavailable, "no thread for " + name);
  }
};

}  // namespace

TEST_CASE("a step without time, and a helper without a thread, are refused") {
  for (const Duration step : {Duration::zero(), Duration(-1)}) {
    LargeMemoryOptions options;
    options.step = step;
    CHECK(LargeMemory::create(std::move(options)).error().code == errc::invalid_argument);
  }
  NoThreads threads;
  const Environment& system = Environment::system();
  const Environment environment{system.clock, system.random, threads, system.resolver, system.files};
  LargeMemoryOptions options;
  options.environment = &environment;
  options.thread_name = "helper";
  CHECK(LargeMemory::create(std::move(options)).error().detail == "no thread for helper");
}

TEST_CASE("a block of any size is whole pages, all zero, wherever it was prepared") {
  AwakeLoop awake;
  const auto memory = large_memory();
  for (const Place place : {Place::on_loop, Place::off_loop}) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPage - 1, kPage, kPage + 1, kGrain + 1,
                                   2 * kMiB + 3, 9 * kMiB - 1, 40 * kMiB + 1}) {
      CAPTURE(size);
      Outcome outcome;
      LargeAllocation allocation(*memory, *awake.loop, size, place, outcome.completion());
      CHECK(outcome.calls == 0);
      awake.finish(allocation);
      CHECK(outcome.calls == 1);
      REQUIRE(outcome.block);
      CHECK(outcome.block.size() == std::max<std::size_t>((size + kPage - 1) / kPage, 1) * kPage);
      CHECK(all_zero(outcome.block));
      std::ranges::fill(outcome.block.writable(), std::byte{0xff});  // the next one is zero nevertheless
    }
  }
  wait_until_unmapped(*memory);
}

TEST_CASE("more than the budget, or than there can be, is refused") {
  AwakeLoop awake;
  const auto memory = large_memory(4 * kPage);
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  for (const Place place : {Place::on_loop, Place::off_loop}) {
    for (const std::size_t size : {4 * kPage + 1, kMax / 2, kMax - kPage, kMax}) {
      Outcome outcome;
      LargeAllocation allocation(*memory, *awake.loop, size, place, outcome.completion());
      awake.finish(allocation);
      CHECK(outcome.calls == 1);
      CHECK(outcome.error == errc::pool_exhausted);
    }
  }
  CHECK(memory->pages().statistics().live_bytes == 0);
}

TEST_CASE("a step ends when the tick has had its time, and everything else on the loop gets its turn") {
  Ticks world(100us);
  TickingClock& clock = world.clock;
  EventLoop* const loop = world.loop.get();
  Duration longest_tick{};
  TimePoint tick_begin = clock.peek();
  world.script.on_poll = [&](Duration timeout) {
    CHECK(timeout == Duration::zero());
    longest_tick = std::max(longest_tick, clock.peek() - tick_begin);
    tick_begin = clock.peek();
  };
  const auto memory = large_memory();

  Outcome outcome;
  int tasks = 0;
  std::function<void()> task = [&] {
    ++tasks;
    if (outcome.calls == 0) CHECK(loop->post([&] { task(); }));
  };
  CHECK(loop->post([&] { task(); }));
  int beats = 0;
  Timer heartbeat(*loop, [&] {
    ++beats;
    heartbeat.start(1ms);
  });
  heartbeat.start(1ms);

  LargeAllocation allocation(*memory, *loop, 64 * kMiB, Place::on_loop, outcome.completion());
  int ticks = 0;
  tick_begin = clock.peek();
  for (; allocation.active(); ++ticks) loop->run_once(Duration::max());
  loop->run_once(Duration::zero());
  REQUIRE(outcome.block);
  // At 100 us a grain, a step has five looks at the clock at most: 64 KiB each, or less than 1024 grains in
  // all.
  CHECK(ticks >= 64 * 16 / 5);
  CHECK(longest_tick <= memory->options().step + 300us);  // and those of the loop itself
  CHECK(tasks == ticks + 1);
  CHECK(beats >= ticks / 5);
}

TEST_CASE("a tick that is late already prepares one grain, so that an allocation always gets on") {
  Ticks ticks(Ticks::kSlow);
  const auto memory = large_memory();
  Outcome outcome;
  LargeAllocation allocation(*memory, *ticks.loop, 16 * kGrain, Place::on_loop, outcome.completion());
  ticks.run(15);
  CHECK(outcome.calls == 0);
  ticks.run(1);
  CHECK(outcome.calls == 1);
  CHECK(outcome.block);
}

TEST_CASE("allocations on one loop share the time of a tick: the first gets it, the others a grain") {
  Ticks ticks(Ticks::kSlow);
  const auto memory = large_memory();
  Outcome outcomes[3];
  std::vector<std::unique_ptr<LargeAllocation>> allocations;
  for (std::size_t i = 0; i < 3; ++i) {
    allocations.push_back(std::make_unique<LargeAllocation>(*memory, *ticks.loop, (3 - i) * 4 * kGrain,
                                                            Place::on_loop, outcomes[i].completion()));
  }
  ticks.run(4);
  CHECK(outcomes[2].calls == 1);
  ticks.run(4);
  CHECK(outcomes[1].calls == 1);
  CHECK(outcomes[0].calls == 0);
  ticks.run(4);
  CHECK(outcomes[0].calls == 1);
}

TEST_CASE("a step is bounded where the clock stands still") {
  Ticks ticks(Duration::zero());
  const auto memory = large_memory();
  Outcome outcome;
  LargeAllocation allocation(*memory, *ticks.loop, 33 * kMiB, Place::on_loop, outcome.completion());
  ticks.run(2);
  CHECK(outcome.calls == 0);
  ticks.run(1);
  CHECK(outcome.calls == 1);
}

TEST_CASE("cancelling at any step frees the memory at once and completes once") {
  Ticks ticks(Ticks::kSlow);
  const auto memory = large_memory();
  constexpr std::size_t kSteps = 8;
  for (std::size_t step = 0; step < kSteps; ++step) {
    CAPTURE(step);
    Outcome outcome;
    LargeAllocation allocation(*memory, *ticks.loop, kSteps * kGrain, Place::on_loop, outcome.completion());
    ticks.run(step);
    CHECK(memory->pages().statistics().live_bytes == (step == 0 ? 0 : kSteps * kGrain));
    allocation.cancel();
    allocation.cancel();
    CHECK(memory->pages().statistics().live_bytes == 0);
    CHECK(outcome.calls == 0);
    CHECK(allocation.active());
    ticks.run(3);
    CHECK(outcome.calls == 1);
    CHECK(outcome.error == errc::cancelled);
    CHECK_FALSE(allocation.active());
    allocation.cancel();
    ticks.run(1);
    CHECK(outcome.calls == 1);
  }
}

TEST_CASE("destroying an allocation at any step completes it in the destructor") {
  Ticks ticks(Ticks::kSlow);
  const auto memory = large_memory();
  for (const bool cancelled : {false, true}) {
    for (std::size_t step = 0; step < 8; ++step) {
      Outcome outcome;
      std::optional<LargeAllocation> allocation;
      allocation.emplace(*memory, *ticks.loop, 8 * kGrain, Place::on_loop, outcome.completion());
      ticks.run(step);
      if (cancelled) allocation->cancel();
      CHECK(outcome.calls == 0);
      allocation.reset();
      CHECK(outcome.calls == 1);
      CHECK(outcome.error == errc::cancelled);
      CHECK(memory->pages().statistics().live_bytes == 0);
      ticks.run(2);
      CHECK(outcome.calls == 1);
    }
  }
}

TEST_CASE("allocations of the helper can be cancelled and destroyed at any moment") {
  AwakeLoop awake;
  const auto memory = large_memory();
  for (int i = 0; i < 100; ++i) {
    Outcome outcomes[3];
    std::vector<std::unique_ptr<LargeAllocation>> allocations;
    for (Outcome& outcome : outcomes) {
      allocations.push_back(std::make_unique<LargeAllocation>(*memory, *awake.loop, 4 * kMiB, Place::off_loop,
                                                              outcome.completion()));
    }
    for (int pause = 0; pause < i; ++pause) std::this_thread::yield();
    allocations[1]->cancel();
    allocations[0].reset();
    CHECK(outcomes[0].calls == 1);
    awake.run_until([&] { return outcomes[1].calls + outcomes[2].calls == 2; });
    for (const Outcome& outcome : outcomes) CHECK(outcome.calls == 1);
    CHECK(outcomes[0].error == errc::cancelled);
    CHECK(outcomes[1].error == errc::cancelled);
    CHECK(outcomes[2].block);
  }
  wait_until_unmapped(*memory);
}

TEST_CASE("when the loop stops, an allocation on it completes as stopped") {
  const auto memory = large_memory();
  for (const bool cancelled : {false, true}) {
    Ticks ticks(Ticks::kSlow);
    Outcome outcome;
    LargeAllocation allocation(*memory, *ticks.loop, 8 * kGrain, Place::on_loop, outcome.completion());
    ticks.run(3);
    if (cancelled) allocation.cancel();
    ticks.loop->stop();
    ticks.loop->run();
    CHECK(outcome.calls == 1);
    CHECK(outcome.error == (cancelled ? errc::cancelled : errc::stopped));
    CHECK(memory->pages().statistics().live_bytes == 0);
  }
}

TEST_CASE("when the loop stops, an allocation of the helper completes by the time it is destroyed") {
  const auto memory = large_memory();
  for (int i = 0; i < 50; ++i) {
    const auto loop = EventLoop::create(&make_sleeping_engine).value_or_throw();
    Outcome outcomes[2];
    std::vector<std::unique_ptr<LargeAllocation>> allocations;
    for (Outcome& outcome : outcomes) {
      allocations.push_back(
          std::make_unique<LargeAllocation>(*memory, *loop, 8 * kMiB, Place::off_loop, outcome.completion()));
    }
    for (int pause = 0; pause < i; ++pause) std::this_thread::yield();
    loop->stop();
    loop->run();
    allocations.clear();
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.calls == 1);
      CHECK((outcome.block || outcome.error == errc::stopped));
    }
  }
  wait_until_unmapped(*memory);
}

TEST_CASE("an allocation that begins after its loop has stopped completes in the destructor") {
  const auto memory = large_memory();
  Ticks ticks(Duration::zero());
  ticks.loop->stop();
  ticks.loop->run();
  for (const Place place : {Place::on_loop, Place::off_loop}) {
    Outcome outcome;
    {
      const LargeAllocation allocation(*memory, *ticks.loop, kMiB, place, outcome.completion());
      CHECK(outcome.calls == 0);
    }
    CHECK(outcome.calls == 1);
    CHECK(outcome.error == errc::stopped);
  }
}

TEST_CASE("a completion may destroy its allocation, and begin another one") {
  AwakeLoop awake;
  const auto memory = large_memory();
  for (const Place place : {Place::on_loop, Place::off_loop}) {
    std::optional<LargeAllocation> first;
    std::optional<LargeAllocation> second;
    Outcome outcome;
    int calls = 0;
    first.emplace(*memory, *awake.loop, kMiB, place, [&](Block block, std::error_code) {
      ++calls;
      CHECK(block);
      first.reset();
      second.emplace(*memory, *awake.loop, kMiB, place, outcome.completion());
    });
    awake.run_until([&] { return outcome.calls != 0; });
    CHECK(calls == 1);
    CHECK(outcome.block);
  }
}

TEST_CASE("a completion that throws is logged and counted, and its block is given back") {
  const LogCapture logged;
  Ticks ticks(Duration::zero());
  const auto memory = large_memory();
  const LargeAllocation allocation(*memory, *ticks.loop, 1, Place::on_loop,
                                   [](Block, std::error_code) { throw std::runtime_error("no"); });
  ticks.run(1);
  CHECK(logged.contains("a completion of a large allocation threw: no"));
  CHECK(ticks.loop->counters().failed_callbacks.get() == 1);
  CHECK(memory->pages().statistics().live_bytes == 0);
}

TEST_CASE("the helper wakes a loop that sleeps") {
  const auto loop = EventLoop::create(&make_sleeping_engine).value_or_throw();
  const auto memory = large_memory();
  Block block;
  const LargeAllocation allocation(*memory, *loop, kMiB, Place::off_loop, [&](Block given, std::error_code) {
    block = std::move(given);
    loop->stop();
  });
  loop->run();
  CHECK(block.size() == kMiB);
}

TEST_CASE("the helper tries again when a loop had no place for its task") {
  EventLoopOptions options;
  options.max_pending_tasks = 1;
  AwakeLoop awake(std::move(options));
  const auto memory = large_memory();
  REQUIRE(awake.loop->post([] {}));
  Outcome outcomes[2];
  LargeAllocation first(*memory, *awake.loop, 1, Place::off_loop, outcomes[0].completion());
  LargeAllocation second(*memory, *awake.loop, 1, Place::off_loop, outcomes[1].completion());
  // The second is prepared after the helper has tried to hand over the first.
  while (memory->pages().statistics().allocations != 2) std::this_thread::yield();
  awake.run_until([&] { return !first.active() && !second.active(); });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.calls == 1);
    CHECK(outcome.block);
  }
}

TEST_CASE("large blocks are unmapped by the helper, whoever releases them") {
  const auto memory = large_memory(64 * kMiB);
  Block block = memory->pages().allocate(64 * kMiB);
  REQUIRE(block);
  REQUIRE(PageAllocator::populate(block.writable()));
  block.reset();
  wait_until_unmapped(*memory);
  block = memory->pages().allocate(64 * kMiB);
  REQUIRE(block);
  std::thread([gone = std::move(block)]() mutable { gone.reset(); }).join();
  wait_until_unmapped(*memory);
}

TEST_CASE("blocks outlive the loop and the memory that they came from, and are released in any order") {
  auto memory = large_memory();
  std::vector<Block> blocks;
  {
    AwakeLoop awake;
    for (const Place place : {Place::on_loop, Place::off_loop, Place::on_loop, Place::off_loop}) {
      Outcome outcome;
      LargeAllocation allocation(*memory, *awake.loop, 5 * kMiB, place, outcome.completion());
      awake.finish(allocation);
      blocks.push_back(std::move(outcome.block));
    }
  }
  blocks[2].reset();
  CHECK(all_zero(blocks[0]));
  memory.reset();
  blocks[1].reset();
  std::thread([gone = std::move(blocks[3])]() mutable { gone.reset(); }).join();
  CHECK(all_zero(blocks[0]));
}

TEST_CASE("loops on several threads share one memory") {
  const auto memory = large_memory();
  std::atomic<int> done = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        AwakeLoop awake;
        for (int round = 0; round < 20; ++round) {
          Outcome outcome;
          LargeAllocation allocation(*memory, *awake.loop, 3 * kMiB,
                                     (round + i) % 2 == 0 ? Place::on_loop : Place::off_loop,
                                     outcome.completion());
          awake.finish(allocation);
          if (outcome.calls == 1 && outcome.block) ++done;
        }
      });
    }
  }
  CHECK(done == 60);
  wait_until_unmapped(*memory);
}
