// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the benchmark `timers` asks of a library. Each has an adapter:
//   Timers(count)                     so many timers, none of them running
//   run(function)                     calls it where a program would start timers, inside a turn of the loop
//   start(index, delay), cancel(index)   starting a running one moves it; cancelling an idle one does nothing
//   drain()                           delivers what cancelling has left to be delivered, if anything
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "perf/support/rounds.hpp"

namespace linkspan::perf {

// Of a second to a minute, all different: nothing fires while it is measured.
inline std::chrono::milliseconds delay_of(std::size_t index) {
  return std::chrono::milliseconds(1000 + index * 7919 % 60'000);
}

// Idle times of connections: each timer runs and is moved again and again.
template <class Timers>
void restart_timers(benchmark::State& state, Timers& timers, std::size_t count) {
  constexpr std::size_t kDrainEvery = 1024;
  for (std::size_t i = 0; i < count; ++i) timers.start(i, delay_of(i));
  std::size_t at = 0;
  for (auto _ : state) {
    timers.start(at % count, delay_of(at));
    if (++at % kDrainEvery == 0) timers.drain();
  }
}

// Deadlines of requests: started, and cancelled before they are due; half of them run at any time.
template <class Timers>
void start_and_cancel_timers(benchmark::State& state, Timers& timers, std::size_t count) {
  constexpr std::size_t kDrainEvery = 1024;
  for (std::size_t i = count / 2; i < count; ++i) timers.start(i, delay_of(i));
  std::size_t at = 0;
  for (auto _ : state) {
    timers.start(at % count, delay_of(at));
    timers.cancel((at + count / 2) % count);
    if (++at % kDrainEvery == 0) timers.drain();
  }
}

template <class Timers>
int run_timers(const std::string& variant, int argc, char** argv) {
  const auto measured = [](auto operation, std::size_t count) {
    return [=](benchmark::State& state) {
      Timers timers(count);
      timers.run([&] { operation(state, timers, count); });
    };
  };
  for (const std::size_t count : {std::size_t{1000}, std::size_t{1'000'000}}) {
    const bool small = count == 1000;
    for (const auto& [name, operation] : {std::pair("restart", &restart_timers<Timers>),
                                          std::pair("start and cancel", &start_and_cancel_timers<Timers>)}) {
      add({.variant = variant,
           .parameters = {{"case", name}, {"timers", static_cast<std::int64_t>(count)}},
           .run = measured(operation, count),
           .quick = small,
           .instructions = small});
    }
  }
  return run(argc, argv);
}

}  // namespace linkspan::perf
