// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// PendingBudget: how many bytes may wait to be sent on all channels that count against it: those of a loop
// (EventLoopOptions::max_pending_bytes), and, as the parent of several loops' budgets, those of a process.
// Not for: memory that was received; that is the pool's budget.
// Cost: 48 bytes. Channels of a loop that has one count with an atomic addition for each write and each
// progress; other channels pay nothing.
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "linkspan/base/export.hpp"

namespace linkspan {

class LINKSPAN_API PendingBudget {
 public:
  /// 0: no bound, only counted. `parent` counts what this one does, too, and outlives it.
  explicit PendingBudget(std::size_t max_bytes, PendingBudget* parent = nullptr) noexcept
      : max_bytes_(max_bytes), parent_(parent) {}
  PendingBudget(const PendingBudget&) = delete;
  PendingBudget& operator=(const PendingBudget&) = delete;

  void add(std::size_t bytes) noexcept;
  void subtract(std::size_t bytes) noexcept;
  /// This one, or one above it, is over `times` its bound.
  [[nodiscard]] bool exceeded(std::size_t times = 1) const noexcept;

  [[nodiscard]] std::size_t max_bytes() const noexcept { return max_bytes_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_.load(std::memory_order_relaxed); }
  /// The most that has ever been used.
  [[nodiscard]] std::size_t high_water_bytes() const noexcept {
    return high_water_.load(std::memory_order_relaxed);
  }
  /// Writes that were refused, and channels that were aborted, because of this budget or one above it.
  [[nodiscard]] std::uint64_t refused_writes() const noexcept {
    return refused_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t aborted_channels() const noexcept {
    return aborted_.load(std::memory_order_relaxed);
  }
  void count_refused() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }
  void count_aborted() noexcept { aborted_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::size_t max_bytes_;
  PendingBudget* parent_;
  std::atomic<std::size_t> used_{0};
  std::atomic<std::size_t> high_water_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::uint64_t> aborted_{0};
};

}  // namespace linkspan
