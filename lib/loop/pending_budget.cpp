// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/pending_budget.hpp"

namespace linkspan {

void PendingBudget::add(std::size_t bytes) noexcept {
  for (PendingBudget* budget = this; budget != nullptr; budget = budget->parent_) {
    const std::size_t now = budget->used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t high = budget->high_water_.load(std::memory_order_relaxed);
    while (now > high && !budget->high_water_.compare_exchange_weak(high, now, std::memory_order_relaxed)) {
    }
  }
}

void PendingBudget::subtract(std::size_t bytes) noexcept {
  for (PendingBudget* budget = this; budget != nullptr; budget = budget->parent_) {
    budget->used_.fetch_sub(bytes, std::memory_order_relaxed);
  }
}

bool PendingBudget::exceeded(std::size_t times) const noexcept {
  for (const PendingBudget* budget = this; budget != nullptr; budget = budget->parent_) {
    if (budget->max_bytes_ != 0 && budget->used_bytes() / times > budget->max_bytes_) return true;
  }
  return false;
}

}  // namespace linkspan
