// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the pool benchmark asks of an allocator; add_allocator_cases measures all of them with the same code:
//   Memory                     owns what was allocated, and frees it on whatever thread destroys it
//   allocate(bytes)            returns a Memory
//   first_byte(memory)         where to write to
#pragma once

#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "perf/support/rounds.hpp"

namespace linkspan::perf {

inline constexpr std::size_t kAllocatedBytes = std::size_t{16} * 1024;

/// A pair of functions such as malloc and free.
template <auto allocate_function, auto free_function>
struct HeapFunctions {
  struct Free {
    void operator()(void* memory) const noexcept { free_function(memory); }
  };
  using Memory = std::unique_ptr<void, Free>;

  Memory allocate(std::size_t bytes) { return Memory(allocate_function(bytes)); }
  static std::byte* first_byte(Memory& memory) { return static_cast<std::byte*>(memory.get()); }
};

/// A bounded queue between two threads. Each looks at the other's position only when it has to.
template <class Item>
class HandOver {
 public:
  void push(Item&& item) {
    const std::size_t at = pushed_.load(std::memory_order_relaxed);
    while (at - popped_seen_ == kRoom) popped_seen_ = other_position(popped_, popped_seen_);
    items_[at % kRoom] = std::move(item);
    pushed_.store(at + 1, std::memory_order_release);
  }
  Item pop() {
    const std::size_t at = popped_.load(std::memory_order_relaxed);
    while (at == pushed_seen_) pushed_seen_ = other_position(pushed_, pushed_seen_);
    Item item = std::move(items_[at % kRoom]);
    popped_.store(at + 1, std::memory_order_release);
    return item;
  }

 private:
  static constexpr std::size_t kRoom = 256;
  static constexpr std::size_t kCacheLine = 64;

  static std::size_t other_position(const std::atomic<std::size_t>& position, std::size_t seen) {
    const std::size_t now = position.load(std::memory_order_acquire);
    if (now == seen) std::this_thread::yield();
    return now;
  }

  std::array<Item, kRoom> items_{};
  alignas(kCacheLine) std::atomic<std::size_t> pushed_{0};
  std::size_t popped_seen_ = 0;  // by push
  alignas(kCacheLine) std::atomic<std::size_t> popped_{0};
  std::size_t pushed_seen_ = 0;  // by pop
};

template <class Allocator>
struct AllocatorCases {
  using Memory = typename Allocator::Memory;

  static Memory allocate_and_touch(Allocator& allocator) {
    Memory memory = allocator.allocate(kAllocatedBytes);
    *Allocator::first_byte(memory) = std::byte{1};
    benchmark::ClobberMemory();
    return memory;
  }

  static void one(benchmark::State& state) {
    Allocator allocator;
    for (auto _ : state) benchmark::DoNotOptimize(allocate_and_touch(allocator));
  }

  static void batch(benchmark::State& state) {
    Allocator allocator;
    std::array<Memory, 64> live;
    for (auto _ : state) {
      for (Memory& memory : live) memory = allocate_and_touch(allocator);
      for (Memory& memory : live) memory = Memory();
    }
  }

  static void across(benchmark::State& state) {
    Allocator allocator;
    HandOver<Memory> queue;
    std::thread other([&queue] {
      while (Memory memory = queue.pop()) {
      }
    });
    for (auto _ : state) queue.push(allocate_and_touch(allocator));
    queue.push(Memory());
    other.join();
  }
};

template <class Allocator>
void add_across_case(const std::string& variant) {
  add({.variant = variant,
       .parameters = {{"case", "across threads"}},
       .run = &AllocatorCases<Allocator>::across,
       .wall = true,
       .quick = true});
}

template <class Allocator>
void add_allocator_cases(const std::string& variant) {
  using Cases = AllocatorCases<Allocator>;
  for (const auto& [name, run] : {std::pair("one", &Cases::one), std::pair("batch of 64", &Cases::batch)}) {
    add({.variant = variant,
         .parameters = {{"case", name}},
         .run = run,
         .quick = true,
         .instructions = true});
  }
  add_across_case<Allocator>(variant);
}

}  // namespace linkspan::perf
