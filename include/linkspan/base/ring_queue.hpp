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
#include <utility>

#include "linkspan/base/assert.hpp"

namespace linkspan {

template <class T>
class RingQueue {
 public:
  RingQueue() noexcept = default;
  RingQueue(RingQueue&& other) noexcept
      : items_(std::move(other.items_)),
        capacity_(std::exchange(other.capacity_, 0)),
        head_(std::exchange(other.head_, 0)),
        count_(std::exchange(other.count_, 0)) {}
  RingQueue& operator=(RingQueue&& other) noexcept {
    items_ = std::move(other.items_);
    capacity_ = std::exchange(other.capacity_, 0);
    head_ = std::exchange(other.head_, 0);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

  /// Makes room for one more, so that the next push_back does not throw.
  void reserve_one() {
    if (count_ == capacity_) grow();
  }

  void push_back(T item) {
    reserve_one();
    items_[(head_ + count_) & (capacity_ - 1)] = std::move(item);
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
    return items_[(head_ + index) & (capacity_ - 1)];
  }

  T pop_front() {
    T item = std::move(front());
    items_[head_] = T();
    head_ = (head_ + 1) & (capacity_ - 1);
    --count_;
    return item;
  }

 private:
  void grow() {
    const std::uint32_t larger = capacity_ == 0 ? 4 : capacity_ * 2;
    LINKSPAN_ASSERT(larger > capacity_, "a queue holds fewer than 2^31 items");
    auto items = std::make_unique<T[]>(larger);
    for (std::uint32_t i = 0; i < count_; ++i) items[i] = std::move(items_[(head_ + i) & (capacity_ - 1)]);
    items_ = std::move(items);
    capacity_ = larger;
    head_ = 0;
  }

  std::unique_ptr<T[]> items_;
  std::uint32_t capacity_ = 0;  // a power of two
  std::uint32_t head_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace linkspan
