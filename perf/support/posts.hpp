// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the benchmark `post` asks of a library: an object that runs a loop on a thread of its own, and whose
// post(function) has the function called there.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "perf/support/own_rounds.hpp"

namespace linkspan::perf {

using Clock = std::chrono::steady_clock;

// Threads that share a core would wait for each other's time slice. A loop's thread has the core of the one
// that makes it, the last; the poster then moves to the first.
class TwoCores {
 public:
  TwoCores() {
    ::sched_getaffinity(0, sizeof(allowed_), &allowed_);
    take(last());
  }
  TwoCores(const TwoCores&) = delete;
  TwoCores& operator=(const TwoCores&) = delete;
  ~TwoCores() { ::sched_setaffinity(0, sizeof(allowed_), &allowed_); }

  void take_first() const {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed_)) return take(cpu);
    }
  }

 private:
  [[nodiscard]] int last() const {
    int cpu = CPU_SETSIZE - 1;
    while (cpu > 0 && !CPU_ISSET(cpu, &allowed_)) --cpu;
    return cpu;
  }
  static void take(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof(one), &one);
  }

  cpu_set_t allowed_;
};

inline void print_post_sample(const std::string& variant, const char* metric, const char* unit,
                              double value) {
  std::printf(R"({"variant": "%s", "params": {}, "metric": "%s", "unit": "%s", "value": %.9g})"
              "\n",
              variant.c_str(), metric, unit, value);
}

inline double percentile_us(std::vector<Clock::duration>& times, std::size_t percent) {
  std::ranges::sort(times);
  const auto found = times[(times.size() - 1) * percent / 100];
  return std::chrono::duration<double, std::micro>(found).count();
}

// Tasks from another thread, as fast as it can, of which at most kWaitingMost wait.
template <class Loop>
double tasks_per_second(Loop& loop, std::size_t count) {
  constexpr std::size_t kWaitingMost = 1024;
  std::atomic<std::size_t> done{0};
  const auto begin = Clock::now();
  for (std::size_t posted = 0; posted < count; ++posted) {
    while (posted - done.load(std::memory_order_acquire) >= kWaitingMost) std::this_thread::yield();
    loop.post([&done] { done.fetch_add(1, std::memory_order_release); });
  }
  while (done.load(std::memory_order_acquire) < count) std::this_thread::yield();
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class Loop, class... Arguments>
void measure_posts(const std::string& variant, bool quick, const Arguments&... arguments) {
  const TwoCores cores;
  Loop loop(arguments...);
  cores.take_first();
  print_post_sample(variant, "tasks", "1/s", tasks_per_second(loop, quick ? 20'000 : 500'000));

  // One task for a loop that sleeps: what the call costs, and when the task runs.
  const std::size_t tries = quick ? 50 : 500;
  std::vector<Clock::duration> calls;
  std::vector<Clock::duration> latencies;
  for (std::size_t i = 0; i < tries; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<bool> done{false};
    Clock::time_point run;
    const auto begin = Clock::now();
    loop.post([&] {
      run = Clock::now();
      done.store(true, std::memory_order_release);
    });
    calls.push_back(Clock::now() - begin);
    while (!done.load(std::memory_order_acquire)) {
    }
    latencies.push_back(run - begin);
  }
  print_post_sample(variant, "call, loop asleep", "us", percentile_us(calls, 50));
  print_post_sample(variant, "wake-up p50", "us", percentile_us(latencies, 50));
  print_post_sample(variant, "wake-up p99", "us", percentile_us(latencies, 99));
}

}  // namespace linkspan::perf
