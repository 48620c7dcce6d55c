// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// HeapAllocator: blocks from operator new under a byte budget, for threads that have no loop: workers that
// build payloads, tools, tests. heap_allocator() (block.hpp) is the same without a budget.
// Not for: what runs on a loop, whose BlockPool keeps blocks for reuse; large memory (PageAllocator).
// Cost: one operator new of the size and a header of 48 bytes, and two atomic additions.
// Threads: any; blocks may outlive the allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "linkspan/buffer/block.hpp"

namespace linkspan {

struct HeapAllocatorStatistics {
  std::uint64_t live_bytes;        ///< handed out and not yet released
  std::uint64_t high_water_bytes;  ///< the highest live_bytes so far
  std::uint64_t allocations;
  std::uint64_t refusals;
};

class LINKSPAN_API HeapAllocator final : public BlockAllocator {
 public:
  static constexpr std::size_t kDefaultBudgetBytes = std::size_t{1} << 30;

  /// Beyond `budget_bytes` of live blocks allocate refuses.
  explicit HeapAllocator(std::size_t budget_bytes = kDefaultBudgetBytes);
  ~HeapAllocator() override;
  HeapAllocator(const HeapAllocator&) = delete;
  HeapAllocator& operator=(const HeapAllocator&) = delete;

  /// A block of exactly `size` bytes; an empty one when the budget or the heap refuses.
  [[nodiscard]] Block allocate(std::size_t size) noexcept override;

  [[nodiscard]] HeapAllocatorStatistics statistics() const noexcept;
  [[nodiscard]] std::size_t budget_bytes() const noexcept;

 private:
  class State;
  friend struct BudgetedStorage;

  std::shared_ptr<State> state_;  // shared with the blocks
};

}  // namespace linkspan
