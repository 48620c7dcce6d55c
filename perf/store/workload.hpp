// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the benchmark `off-heap-map` asks of a store, and how it is measured:
//   bool put(std::string_view key, std::string_view value)
//   bool get(std::string_view key, F f)    calls f(const char* data, std::size_t size) for each piece
// Threads choose keys at random, each by numbers of its own; values have no zero bytes to speak of.
#pragma once

#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "perf/support/byte_sum.h"
#include "perf/support/own_rounds.hpp"

namespace linkspan::perf {

inline constexpr std::size_t kValueBytes = 100 * 1024;
inline constexpr std::size_t kPublishedEntries = 50'000;

struct StoreOptions {
  bool quick = false;
  std::size_t entries = 0;
  std::vector<int> threads;
  std::chrono::milliseconds time{};
};

/// The published number of entries, or as many as fit into a quarter of the memory.
inline StoreOptions store_options(bool quick) {
  if (quick) return {true, 2000, {1, 32}, std::chrono::milliseconds(100)};
  struct sysinfo info {};
  ::sysinfo(&info);
  const std::size_t quarter = std::size_t{info.totalram} * info.mem_unit / 4;
  return {false,
          std::min(kPublishedEntries, quarter / kValueBytes),
          {1, 2, 4, 8, 16, 32},
          std::chrono::milliseconds(500)};
}

[[noreturn]] inline void fail(const std::string& why) {
  std::fprintf(stderr, "off-heap-map: %s\n", why.c_str());
  std::exit(1);
}

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  std::uint64_t state_;
};

/// "key" and twelve digits.
class Key {
 public:
  explicit Key(std::uint64_t number) {
    text_ = "key000000000000";
    for (std::size_t at = text_.size(); number != 0; number /= 10) {
      text_[--at] = static_cast<char>('0' + number % 10);
    }
  }
  operator std::string_view() const { return text_; }

 private:
  std::string text_;
};

inline std::string some_value(std::uint64_t seed) {
  Numbers numbers(seed);
  std::string value(kValueBytes, '\0');
  for (char& byte : value) byte = static_cast<char>(1 + numbers.next() % 255);
  return value;
}

/// How an operation goes; read says whether it is a read.
enum class Mix { read_only, write_only, readwrite };

inline const char* name_of(Mix mix) {
  switch (mix) {
    case Mix::read_only: return "read_only";
    case Mix::write_only: return "write_only";
    case Mix::readwrite: return "readwrite";
  }
  return "";
}

/// Of four threads three read; fewer than four take turns.
inline bool reads(Mix mix, int thread, int threads, std::uint64_t operation) {
  if (mix != Mix::readwrite) return mix == Mix::read_only;
  return threads < 4 ? operation % 4 != 0 : thread % 4 != 0;
}

template <class Store>
void fill(Store& store, const StoreOptions& options) {
  const std::string value = some_value(1);
  for (std::size_t i = 0; i < options.entries; ++i) {
    if (!store.put(Key(i), value)) fail("a value was refused");
  }
}

template <class Store>
void measure(const char* variant, Store& store, Mix mix, bool touched, const StoreOptions& options) {
  for (const int threads : options.threads) {
    std::atomic<bool> go{false};
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> total{0};
    std::atomic<bool> failed{false};
    std::vector<std::thread> running;
    for (int id = 0; id < threads; ++id) {
      running.emplace_back([&, id] {
        Numbers numbers(static_cast<std::uint64_t>(id) + 1);
        const std::string value = some_value(numbers.next());
        std::uint64_t done = 0;
        std::uint64_t sums = 0;
        while (!go.load()) std::this_thread::yield();
        for (; !stop.load(std::memory_order_relaxed); ++done) {
          const Key key(numbers.next() % options.entries);
          bool good = false;
          if (!reads(mix, id, threads, done)) {
            good = store.put(key, value);
          } else {
            std::size_t seen = 0;
            byte_sum sum{};
            good = store.get(key, [&](const char* data, std::size_t size) {
              seen += size;
              if (touched) byte_sum_add(&sum, data, size);
            });
            sums += sum.total;
            good = good && seen == kValueBytes;
          }
          if (!good) failed = true;
        }
        if (touched && sums == 1) failed = true;  // they are needed, compiler
        total += done;
      });
    }
    const auto begin = std::chrono::steady_clock::now();
    go = true;
    std::this_thread::sleep_for(options.time);
    stop = true;
    for (std::thread& thread : running) thread.join();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (failed) fail(std::string(variant) + " lost a value");
    std::printf(
        R"({"variant": "%s", "params": {"case": "%s", "threads": %d, "touched": "%s", "entries": %zu}, )"
        R"("metric": "operations", "unit": "op/s", "value": %.0f})"
        "\n",
        variant, name_of(mix), threads, touched ? "yes" : "no", options.entries,
        static_cast<double>(total.load()) / taken.count());
    std::fflush(stdout);
  }
}

/// Reads with untouched and with touched values, and both together.
template <class Store>
void measure_reads(const char* variant, Store& store, const StoreOptions& options) {
  measure(variant, store, Mix::read_only, false, options);
  measure(variant, store, Mix::read_only, true, options);
  measure(variant, store, Mix::readwrite, false, options);
}

/// `round` is called with the options.
template <class Round>
int run_store_benchmark(int argc, char** argv, Round round) {
  return run_own_rounds(argc, argv, [&round](bool quick) { round(store_options(quick)); });
}

}  // namespace linkspan::perf
