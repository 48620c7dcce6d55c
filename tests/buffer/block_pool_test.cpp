// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/block_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/buffer/page_allocator.hpp"
#include "support/sanitized.hpp"

using namespace linkspan;

namespace {

static_assert(!std::is_copy_constructible_v<BlockPool>);

constexpr std::size_t kBlockBytes = 4096;

BlockPoolOptions options(std::size_t budget_bytes, std::size_t cache_bytes) {
  BlockPoolOptions made;
  made.budget_bytes = budget_bytes;
  made.cache_bytes = cache_bytes;
  return made;
}

// Lets go of `block` on a thread of its own, and returns when that is done.
void release_elsewhere(Block block) {
  std::thread([gone = std::move(block)]() mutable { gone.reset(); }).join();
}

void fill(Block& block) {
  for (std::byte& byte : block.writable()) byte = std::byte{0x5a};
}

}  // namespace

TEST_CASE("sizes are rounded up to classes; larger ones are exact") {
  BlockPool pool;
  CHECK(pool.allocate(0).size() == 512);
  std::size_t below = 0;
  for (const std::size_t size : BlockPool::kClassBytes) {
    CHECK(pool.allocate(below + 1).size() == size);
    CHECK(pool.allocate(size).size() == size);
    below = size;
  }
  Block huge = pool.allocate(below + 1);
  CHECK(huge.size() == below + 1);
  fill(huge);
}

TEST_CASE("a released block is reused") {
  BlockPool pool;
  Block block = pool.allocate(kBlockBytes);
  const std::byte* memory = block.data();
  fill(block);
  block.reset();
  CHECK(pool.statistics().live_bytes == 0);
  CHECK(pool.statistics().cached_bytes == kBlockBytes);
  Block again = pool.allocate(kBlockBytes);
  CHECK(again.data() == memory);
  fill(again);
  CHECK(pool.statistics().cached_bytes == 0);
}

TEST_CASE("the budget holds for live blocks, and the high water mark stays") {
  BlockPool pool(options(2 * kBlockBytes, kBlockBytes));
  Block one = pool.allocate(kBlockBytes);
  Block two = pool.allocate(kBlockBytes);
  REQUIRE(two);
  CHECK_FALSE(pool.allocate(1));
  CHECK_FALSE(pool.allocate(std::numeric_limits<std::size_t>::max()));
  one.reset();
  two.reset();
  CHECK(pool.allocate(2 * kBlockBytes + 1).size() == 0);
  const BlockPoolStatistics statistics = pool.statistics();
  CHECK(statistics.live_bytes == 0);
  CHECK(statistics.high_water_bytes == 2 * kBlockBytes);
  CHECK(statistics.allocations == 2);
  CHECK(statistics.refusals == 3);
}

TEST_CASE("cached blocks of one class make room for another") {
  BlockPool pool(options(2 * kBlockBytes, 2 * kBlockBytes));
  {
    const Block one = pool.allocate(kBlockBytes);
    const Block two = pool.allocate(kBlockBytes);
  }
  CHECK(pool.statistics().cached_bytes == 2 * kBlockBytes);
  const Block small = pool.allocate(512);
  CHECK(static_cast<bool>(small));
  CHECK(pool.statistics().live_bytes + pool.statistics().cached_bytes <= 2 * kBlockBytes);
}

TEST_CASE("the cache keeps its bound, and trim empties it") {
  BlockPool pool(options(100 * kBlockBytes, 3 * kBlockBytes));
  std::vector<Block> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(pool.allocate(kBlockBytes));
  blocks.clear();
  CHECK(pool.statistics().cached_bytes == 3 * kBlockBytes);
  pool.trim();
  CHECK(pool.statistics().cached_bytes == 0);
  CHECK(pool.statistics().live_bytes == 0);
}

TEST_CASE("trim_unused gives back what was not needed since the last time, class by class") {
  BlockPool pool;
  const auto use = [&pool](std::size_t size, std::size_t blocks) {
    std::vector<Block> used;
    for (std::size_t i = 0; i < blocks; ++i) used.push_back(pool.allocate(size));
  };
  const auto cached = [&pool](std::size_t size_class) {
    return pool.statistics().classes[size_class].cached_blocks;
  };
  use(512, 10);
  use(4096, 10);
  pool.trim_unused();  // all are younger than the last trim
  CHECK(cached(0) == 10);
  CHECK(cached(2) == 10);
  use(512, 3);
  use(4096, 10);
  pool.trim_unused();
  CHECK(cached(0) == 3);
  CHECK(cached(2) == 10);
  pool.trim_unused();
  CHECK(pool.statistics().cached_bytes == 0);
}

TEST_CASE("trim_unused takes home what other threads have released") {
  BlockPool pool;
  Block block = pool.allocate(512);
  release_elsewhere(std::move(block));
  CHECK(pool.statistics().live_bytes == 512);
  pool.trim_unused();
  CHECK(pool.statistics().live_bytes == 0);
  CHECK(pool.statistics().cached_bytes == 512);
}

TEST_CASE("statistics count live and cached blocks of each class") {
  BlockPool pool;
  {
    const Block one = pool.allocate(1);
    const Block two = pool.allocate(513);
    const Block three = pool.allocate(2048);
    const BlockPoolStatistics now = pool.statistics();
    CHECK(now.classes[0].live_blocks == 1);
    CHECK(now.classes[1].live_blocks == 2);
    CHECK(now.live_bytes == 512 + 2 * 2048);
  }
  const BlockPoolStatistics then = pool.statistics();
  CHECK(then.classes[1].live_blocks == 0);
  CHECK(then.classes[1].cached_blocks == 2);
  CHECK(then.high_water_bytes == 512 + 2 * 2048);
}

TEST_CASE("budgets and sizes at their edges: nothing, all of it, one byte more, and sums that overflow") {
  BlockPool exact(options(512, 512));
  CHECK(exact.allocate(0).size() == 512);
  Block all = exact.allocate(512);
  CHECK(all.size() == 512);
  CHECK_FALSE(exact.allocate(1));
  all.reset();
  CHECK(exact.allocate(1).size() == 512);
  CHECK_FALSE(exact.allocate(513));
  BlockPool none(options(0, 0));
  CHECK_FALSE(none.allocate(0));
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  BlockPool unlimited(options(kMax, kMax));
  for (const std::size_t size : {kMax, kMax - 1, kMax - 63, kMax - 64, kMax / 2}) {
    CHECK_FALSE(unlimited.allocate(size));
  }
  CHECK(unlimited.statistics().refusals == 5);
  CHECK(unlimited.statistics().live_bytes == 0);
}

TEST_CASE("a request that no budget could grant leaves the cache alone") {
  BlockPool pool(options(2 * kBlockBytes, 2 * kBlockBytes));
  pool.allocate(kBlockBytes).reset();
  CHECK_FALSE(pool.allocate(2 * kBlockBytes + BlockPool::kClassBytes.back()));
  CHECK(pool.statistics().cached_bytes == kBlockBytes);
}

TEST_CASE("a replaced callback may hold a block of its own allocator") {
  BlockPool pool;
  pool.set_available_callback([held = std::make_shared<Block>(pool.allocate(512))] {});
  pool.set_available_callback(nullptr);
  CHECK(pool.statistics().live_bytes == 0);
  std::weak_ptr<Block> last;
  {
    BlockPool closing;
    auto held = std::make_shared<Block>(closing.allocate(512));
    last = held;
    closing.set_available_callback([held = std::move(held)] {});
  }
  CHECK(last.expired());
  PageAllocator pages;
  pages.set_released_callback([held = std::make_shared<Block>(pages.allocate(1))] {});
  pages.set_released_callback(nullptr);
  CHECK(pages.statistics().live_bytes == 0);
}

TEST_CASE("huge blocks count against the budget and are not cached") {
  const std::size_t huge_bytes = BlockPool::kClassBytes.back() + 1;
  BlockPool pool(options(2 * huge_bytes, 2 * huge_bytes));
  Block one = pool.allocate(huge_bytes);
  Block two = pool.allocate(huge_bytes);
  CHECK(pool.statistics().live_bytes == 2 * huge_bytes);
  CHECK_FALSE(pool.allocate(huge_bytes));
  one.reset();
  CHECK(pool.statistics().live_bytes == huge_bytes);
  CHECK(pool.statistics().cached_bytes == 0);
  release_elsewhere(std::move(two));
  const Block three = pool.allocate(huge_bytes);
  const Block four = pool.allocate(huge_bytes);
  CHECK(static_cast<bool>(three));
  CHECK(static_cast<bool>(four));
}

TEST_CASE("blocks that other threads release come home") {
  BlockPool pool(options(2 * kBlockBytes, 2 * kBlockBytes));
  Block block = pool.allocate(kBlockBytes);
  const std::byte* memory = block.data();
  fill(block);
  release_elsewhere(std::move(block));
  Block again = pool.allocate(kBlockBytes);
  CHECK(again.data() == memory);
  fill(again);

  SUBCASE("also when the budget asks for them") {
    Block other = pool.allocate(kBlockBytes);
    release_elsewhere(std::move(other));
    CHECK(static_cast<bool>(pool.allocate(512)));
  }
  SUBCASE("also when they are trimmed") {
    release_elsewhere(std::move(again));
    pool.trim();
    CHECK(pool.statistics().live_bytes == 0);
    CHECK(pool.statistics().cached_bytes == 0);
  }
}

TEST_CASE("blocks outlive their pool, whatever thread drops them") {
  auto pool = std::make_unique<BlockPool>();
  Block here = pool->allocate(kBlockBytes);
  Block there = pool->allocate(kBlockBytes);
  Block huge = pool->allocate(BlockPool::kClassBytes.back() + 1);
  fill(here);
  Slice slice = here.freeze(100);
  pool.reset();
  fill(here);
  fill(there);
  release_elsewhere(std::move(there));
  here.reset();
  CHECK(slice.view() == std::string(100, '\x5a'));
  release_elsewhere(std::move(huge));
}

TEST_CASE("after a refusal the next block that comes back is announced, once") {
  std::atomic<int> announced{0};
  BlockPool pool(options(2 * kBlockBytes, 2 * kBlockBytes));
  pool.set_available_callback([&announced] { announced.fetch_add(1); });
  std::optional<Block> one = pool.allocate(kBlockBytes);
  Block two = pool.allocate(kBlockBytes);
  const auto release_first = [&](bool elsewhere) {
    if (elsewhere) {
      release_elsewhere(std::move(*one));
    } else {
      one.reset();
    }
  };

  for (const bool elsewhere : {false, true}) {
    CAPTURE(elsewhere);
    announced = 0;
    CHECK_FALSE(pool.allocate(kBlockBytes));
    CHECK_FALSE(pool.allocate(kBlockBytes));
    pool.trim();  // a refusal is not forgotten
    CHECK(announced == 0);
    release_first(elsewhere);
    CHECK(announced == 1);
    two.reset();
    CHECK(announced == 1);
    one = pool.allocate(kBlockBytes);
    two = pool.allocate(kBlockBytes);
  }

  announced = 0;
  release_first(true);
  CHECK(announced == 0);
}

TEST_CASE("two threads that give blocks back after one refusal announce it once") {
  constexpr int kRounds = test::kSanitized ? 2'000 : 20'000;
  std::atomic<int> announced{0};
  BlockPool pool(options(2 * kBlockBytes, 2 * kBlockBytes));
  pool.set_available_callback([&announced] { announced.fetch_add(1); });
  Block foreign;
  std::barrier together(2);
  std::thread other([&] {
    for (int round = 0; round < kRounds; ++round) {
      together.arrive_and_wait();
      foreign.reset();
      together.arrive_and_wait();
    }
  });
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    foreign = pool.allocate(kBlockBytes);
    Block own = pool.allocate(kBlockBytes);
    if (pool.allocate(kBlockBytes)) ++wrong;
    together.arrive_and_wait();
    own.reset();
    together.arrive_and_wait();
    if (announced != round + 1) ++wrong;
  }
  other.join();
  CHECK(wrong == 0);
  CHECK(announced == kRounds);
}

TEST_CASE("a replaced callback is not called any more") {
  BlockPool pool(options(kBlockBytes, kBlockBytes));
  int announced = 0;
  pool.set_available_callback([&announced] { ++announced; });
  Block block = pool.allocate(kBlockBytes);
  CHECK_FALSE(pool.allocate(kBlockBytes));
  pool.set_available_callback(nullptr);
  block.reset();
  CHECK(announced == 0);
}
