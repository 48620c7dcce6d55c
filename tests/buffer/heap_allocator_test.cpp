// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/heap_allocator.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "support/sanitized.hpp"

using namespace linkspan;

TEST_CASE("a heap allocator hands out exact sizes within its budget, and counts") {
  HeapAllocator allocator(100);
  CHECK(allocator.budget_bytes() == 100);
  Block one = allocator.allocate(60);
  CHECK(one.size() == 60);
  CHECK_FALSE(allocator.allocate(41));
  const Block two = allocator.allocate(40);
  CHECK(two);
  CHECK_FALSE(allocator.allocate(1));
  const Block nothing = allocator.allocate(0);
  CHECK(nothing);
  one.reset();
  CHECK(allocator.allocate(60));
  const HeapAllocatorStatistics now = allocator.statistics();
  CHECK(now.live_bytes == 40);
  CHECK(now.high_water_bytes == 100);
  CHECK(now.allocations == 4);
  CHECK(now.refusals == 2);
}

TEST_CASE("a heap allocator refuses sizes that overflow, whatever its budget") {
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  HeapAllocator allocator(kMax);
  const Block held = allocator.allocate(10);
  for (const std::size_t size : {kMax, kMax - 47, kMax - 48, kMax / 2}) CHECK_FALSE(allocator.allocate(size));
  CHECK(allocator.statistics().live_bytes == 10);
  CHECK(allocator.statistics().refusals == 4);
}

TEST_CASE("blocks outlive their heap allocator") {
  std::optional<HeapAllocator> allocator(1000);
  Block block = allocator->allocate(100);
  allocator.reset();
  for (std::byte& byte : block.writable()) byte = std::byte{'x'};
  CHECK(std::move(block).freeze_all(3).view() == "xxx");
}

TEST_CASE("threads that share a heap allocator never exceed its budget together") {
  constexpr std::size_t kBudgetBytes = 1000;
  HeapAllocator allocator(kBudgetBytes);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&allocator] {
      for (int round = 0; round < (test::kSanitized ? 2'000 : 20'000); ++round) {
        const Block one = allocator.allocate(150);
        const Block two = allocator.allocate(static_cast<std::size_t>(round) % 200);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const HeapAllocatorStatistics now = allocator.statistics();
  CHECK(now.live_bytes == 0);
  CHECK(now.high_water_bytes <= kBudgetBytes);
  CHECK(now.allocations + now.refusals == 4 * 2 * (test::kSanitized ? 2'000 : 20'000));
}
