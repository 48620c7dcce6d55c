// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A first-in-first-out queue on a growing ring. std::deque allocates some 600 bytes before its first element;
// this allocates nothing until then, which counts when each of ten thousand connections holds a queue.
// Not for: removal from the middle.
// Cost: 24 bytes while empty; doubles when full; elements are moved when it grows.
// Threads: none; a queue belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "linkspan/base/assert.hpp"

namespace linkspan {

template <class T>
class RingQueue {
 public:
  RingQueue() noexcept = default;
  RingQueue(RingQueue&& other) noexcept
      : items_(std::exchange(other.items_, nullptr)),
        capacity_(std::exchange(other.capacity_, 0)),
        head_(std::exchange(other.head_, 0)),
        count_(std::exchange(other.count_, 0)) {}
  RingQueue& operator=(RingQueue&& other) noexcept {
    RingQueue taken(std::move(other));
    std::swap(items_, taken.items_);
    std::swap(capacity_, taken.capacity_);
    std::swap(head_, taken.head_);
    std::swap(count_, taken.count_);
    return *this;
  }
  ~RingQueue() {
    while (count_ != 0) static_cast<void>(pop_front());
    if (items_ != nullptr) std::allocator<T>().deallocate(items_, capacity_);
  }

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  /// Makes room for one more, so that the next push_back does not throw.
  void reserve_one() {
    if (count_ == capacity_) grow();
  }

  void push_back(T item) { emplace_back(std::move(item)); }
  /// Made in its place of `parts`, which are no elements of this queue.
  template <class... Parts>
  void emplace_back(Parts&&... parts) {
    reserve_one();
    ::new (static_cast<void*>(&slot(count_))) T{std::forward<Parts>(parts)...};
    ++count_;
  }

  [[nodiscard]] T& front() noexcept {
    LINKSPAN_ASSERT(count_ != 0, "front() of an empty queue");
    return items_[head_];
  }
  [[nodiscard]] const T& front() const noexcept {
    LINKSPAN_ASSERT(count_ != 0, "front() of an empty queue");
    return items_[head_];
  }

  /// Counted from the front.
  [[nodiscard]] T& operator[](std::size_t index) noexcept {
    LINKSPAN_ASSERT(index < count_, "an index is below size()");
    return slot(static_cast<std::uint32_t>(index));
  }

  T pop_front() noexcept {
    T& first = front();
    T item(std::move(first));
    first.~T();
    head_ = (head_ + 1) & (capacity_ - 1);
    --count_;
    return item;
  }

 private:
  [[nodiscard]] T& slot(std::uint32_t index) noexcept { return items_[(head_ + index) & (capacity_ - 1)]; }

  void grow() {
    static_assert(std::is_nothrow_move_constructible_v<T>, "growing loses no items");
    const std::uint32_t larger = capacity_ == 0 ? 4 : capacity_ * 2;
    LINKSPAN_ASSERT(larger > capacity_, "a queue holds fewer than 2^31 items");
    T* const items = std::allocator<T>().allocate(larger);
    for (std::uint32_t i = 0; i < count_; ++i) {
      ::new (static_cast<void*>(items + i)) T(std::move(slot(i)));
      slot(i).~T();
    }
    if (items_ != nullptr) std::allocator<T>().deallocate(items_, capacity_);
    items_ = items;
    capacity_ = larger;
    head_ = 0;
  }

  T* items_ = nullptr;          // raw memory, of which `count_` from `head_` on are alive
  std::uint32_t capacity_ = 0;  // a power of two
  std::uint32_t head_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace linkspan
