// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/heap_allocator.hpp"

#include <atomic>
#include <limits>
#include <new>
#include <utility>

namespace linkspan {

class HeapAllocator::State {
 public:
  explicit State(std::size_t budget_bytes_in) noexcept : budget_bytes(budget_bytes_in) {}

  [[nodiscard]] bool reserve(std::size_t size) noexcept {
    std::size_t live = live_bytes.load(std::memory_order_relaxed);
    do {
      if (size > budget_bytes || live > budget_bytes - size) return false;
    } while (!live_bytes.compare_exchange_weak(live, live + size, std::memory_order_relaxed));
    std::size_t highest = high_water_bytes.load(std::memory_order_relaxed);
    while (highest < live + size &&
           !high_water_bytes.compare_exchange_weak(highest, live + size, std::memory_order_relaxed)) {
    }
    return true;
  }

  const std::size_t budget_bytes;
  std::atomic<std::size_t> live_bytes{0};
  std::atomic<std::size_t> high_water_bytes{0};
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<std::uint64_t> refusals{0};
};

// In front of the data, in one allocation.
struct alignas(16) BudgetedStorage final : Storage {
  BudgetedStorage(std::size_t capacity, std::shared_ptr<HeapAllocator::State> state_in) noexcept
      : Storage(reinterpret_cast<std::byte*>(this + 1), capacity, Access::writable, &give_back,
                BufferKind::heap),
        state(std::move(state_in)) {}

  static void give_back(Storage* self) noexcept {
    auto* storage = static_cast<BudgetedStorage*>(self);
    storage->state->live_bytes.fetch_sub(storage->capacity(), std::memory_order_relaxed);
    storage->~BudgetedStorage();
    ::operator delete(storage);
  }

  std::shared_ptr<HeapAllocator::State> state;
};
static_assert(sizeof(BudgetedStorage) % 16 == 0, "the data is aligned as operator new aligns");

HeapAllocator::HeapAllocator(std::size_t budget_bytes) : state_(std::make_shared<State>(budget_bytes)) {}
HeapAllocator::~HeapAllocator() = default;

Block HeapAllocator::allocate(std::size_t size) noexcept {
  if (size <= std::numeric_limits<std::size_t>::max() - sizeof(BudgetedStorage) && state_->reserve(size)) {
    void* memory = ::operator new(sizeof(BudgetedStorage) + size, std::nothrow);
    if (memory != nullptr) {
      state_->allocations.fetch_add(1, std::memory_order_relaxed);
      return Block(*::new (memory) BudgetedStorage(size, state_));
    }
    state_->live_bytes.fetch_sub(size, std::memory_order_relaxed);
  }
  state_->refusals.fetch_add(1, std::memory_order_relaxed);
  return {};
}

HeapAllocatorStatistics HeapAllocator::statistics() const noexcept {
  return {state_->live_bytes.load(std::memory_order_relaxed),
          state_->high_water_bytes.load(std::memory_order_relaxed),
          state_->allocations.load(std::memory_order_relaxed),
          state_->refusals.load(std::memory_order_relaxed)};
}

std::size_t HeapAllocator::budget_bytes() const noexcept {
  return state_->budget_bytes;
}

}  // namespace linkspan
