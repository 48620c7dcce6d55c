// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A counter that one thread writes and any thread reads.
// Not for: counters with several writers.
// Cost: a plain load, add and store; no locked instruction.
// Threads: one writer; get() from any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace linkspan {

class Counter {
 public:
  void add(std::uint64_t amount) noexcept { set(get() + amount); }
  void subtract(std::uint64_t amount) noexcept { set(get() - amount); }
  void set(std::uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  void raise_to(std::uint64_t value) noexcept {
    if (value > get()) set(value);
  }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace linkspan
