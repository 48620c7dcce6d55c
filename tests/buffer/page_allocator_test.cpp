// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/page_allocator.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace linkspan;

namespace {

static_assert(!std::is_copy_constructible_v<PageAllocator>);

constexpr std::size_t kPiece = PageAllocator::kPieceBytes;
const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

PageAllocatorOptions options(std::size_t budget_bytes, HugePages huge_pages = HugePages::transparent) {
  PageAllocatorOptions made;
  made.budget_bytes = budget_bytes;
  made.huge_pages = huge_pages;
  return made;
}

bool all_are(Block& block, std::byte value) {
  return std::ranges::all_of(block.writable(), [value](std::byte byte) { return byte == value; });
}

std::uintptr_t address_of(Block& block) {
  return reinterpret_cast<std::uintptr_t>(block.data());
}

}  // namespace

TEST_CASE("blocks are whole pages, and every byte of them is zero and can be written") {
  for (const HugePages huge_pages : {HugePages::never, HugePages::transparent}) {
    PageAllocator pages(options(64 << 20, huge_pages));
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kPage - 1, kPage, kPage + 1, kPiece - 1,
                                   kPiece, kPiece + 3, 3 * kPiece}) {
      CAPTURE(size);
      Block block = pages.allocate(size);
      REQUIRE(block);
      CHECK(block.size() == std::max<std::size_t>((size + kPage - 1) / kPage, 1) * kPage);
      CHECK(address_of(block) % kPage == 0);
      CHECK(all_are(block, std::byte{0}));
      std::ranges::fill(block.writable(), std::byte{0x5a});
      CHECK(all_are(block, std::byte{0x5a}));
    }
    CHECK(pages.statistics().live_bytes == 0);
    CHECK(pages.statistics().released_bytes == 0);
  }
}

TEST_CASE("a block that can have huge pages begins where one can begin") {
  PageAllocator pages;
  std::vector<Block> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(pages.allocate(kPiece + static_cast<std::size_t>(i) * kPage));
    REQUIRE(blocks.back());
    CHECK(address_of(blocks.back()) % kPiece == 0);
  }
}

TEST_CASE("reserved huge pages are given or refused, never replaced by small ones") {
  PageAllocator pages(options(16 << 20, HugePages::reserved));
  Block block = pages.allocate(1);
  if (block) {
    CHECK(block.size() == kPiece);
    CHECK(address_of(block) % kPiece == 0);
    CHECK(all_are(block, std::byte{0}));
  }
  CHECK(pages.statistics().allocations + pages.statistics().refusals == 1);
  CHECK(pages.statistics().live_bytes == block.size());
}

TEST_CASE("the budget is hard, counts whole pages, and is given back") {
  PageAllocator pages(options(3 * kPage));
  Block first = pages.allocate(kPage + 1);
  REQUIRE(first);
  CHECK_FALSE(pages.allocate(kPage + 1));
  std::optional<Block> second = pages.allocate(kPage);
  CHECK(*second);
  CHECK_FALSE(pages.allocate(1));
  CHECK(pages.statistics().live_bytes == 3 * kPage);
  CHECK(pages.statistics().high_water_bytes == 3 * kPage);
  CHECK(pages.statistics().allocations == 2);
  CHECK(pages.statistics().refusals == 2);
  second.reset();
  CHECK(pages.statistics().live_bytes == 2 * kPage);
  CHECK(pages.allocate(kPage));
  CHECK(pages.statistics().high_water_bytes == 3 * kPage);
}

TEST_CASE("sizes that overflow, or that no address space holds, are refused") {
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  for (const HugePages huge_pages : {HugePages::never, HugePages::transparent, HugePages::reserved}) {
    PageAllocator pages(options(kMax, huge_pages));
    for (const std::size_t size :
         {kMax, kMax - 1, kMax - kPage, kMax - kPiece, kMax - 2 * kPiece, kMax / 2}) {
      CAPTURE(size);
      CHECK_FALSE(pages.allocate(size));
    }
    CHECK(pages.statistics().refusals == 6);
    CHECK(pages.statistics().live_bytes == 0);
  }
}

TEST_CASE("populating keeps what is in the pages, whatever part of them it is given") {
  PageAllocator pages;
  Block block = pages.allocate(8 * kPage);
  REQUIRE(block);
  block.data()[kPage] = std::byte{7};
  CHECK(PageAllocator::populate({}));
  CHECK(PageAllocator::populate(block.writable().subspan(kPage - 1, 3)));
  CHECK(PageAllocator::populate(block.writable().subspan(3 * kPage + 5, 1)));
  CHECK(PageAllocator::populate(block.writable()));
  CHECK(std::exchange(block.data()[kPage], std::byte{0}) == std::byte{7});
  CHECK(all_are(block, std::byte{0}));
}

TEST_CASE("blocks outlive their allocator, and are released on any thread") {
  std::optional<PageAllocator> pages(std::in_place);
  pages->set_released_callback([] {});
  Block block = pages->allocate(3 * kPiece);
  Slice slice = pages->allocate(kPiece).freeze(kPage);
  REQUIRE(block);
  pages.reset();
  std::ranges::fill(block.writable(), std::byte{1});
  CHECK(all_are(block, std::byte{1}));
  std::thread([gone = std::move(block)]() mutable { gone.reset(); }).join();
  CHECK(slice.bytes()[kPage - 1] == std::byte{0});
}

TEST_CASE("without a callback a release unmaps at once") {
  PageAllocator pages;
  CHECK(pages.allocate(4 * kPiece + 1));
  CHECK(pages.statistics().live_bytes == 0);
  CHECK(pages.statistics().released_bytes == 0);
  CHECK_FALSE(pages.unmap_released());
}

TEST_CASE("with a callback large blocks are put aside, and unmapped piece by piece") {
  PageAllocator pages(options(8 * kPiece));
  int calls = 0;
  pages.set_released_callback([&calls] { ++calls; });
  CHECK(pages.allocate(kPiece));
  CHECK(calls == 0);
  CHECK(pages.statistics().released_bytes == 0);

  constexpr std::size_t kSize = 2 * kPiece + 1;
  CHECK(pages.allocate(kSize));
  CHECK(pages.allocate(kSize));
  CHECK(calls == 2);
  CHECK(pages.statistics().live_bytes == 0);
  CHECK(pages.statistics().released_bytes == 2 * (2 * kPiece + kPage));
  CHECK_FALSE(pages.allocate(5 * kPiece));  // what is put aside still counts

  std::vector<std::uint64_t> left;
  bool more = true;
  while (more) {
    more = pages.unmap_released();
    left.push_back(pages.statistics().released_bytes);
  }
  CHECK(left == std::vector<std::uint64_t>{4 * kPiece + kPage, 3 * kPiece + kPage, 2 * kPiece + kPage,
                                           2 * kPiece, kPiece, 0});
  CHECK(pages.allocate(8 * kPiece));
}

TEST_CASE(
    "a callback that was taken back is called no more; what was put aside stays so until it is unmapped") {
  std::atomic<int> calls = 0;
  PageAllocator pages;
  pages.set_released_callback([&calls] { ++calls; });
  Block kept = pages.allocate(2 * kPiece);
  CHECK(pages.allocate(2 * kPiece));
  CHECK(calls == 1);
  pages.set_released_callback(nullptr);
  kept.reset();
  CHECK(calls == 1);
  CHECK(pages.statistics().released_bytes == 2 * kPiece);
  CHECK(pages.unmap_released());
  CHECK_FALSE(pages.unmap_released());
}

TEST_CASE("threads allocate, release and unmap at once, and the counts come out even") {
  constexpr std::size_t kSize = kPiece + 1;
  constexpr std::uint64_t kRounds = 200;
  PageAllocator pages(options(6 * (kPiece + kPage)));
  pages.set_released_callback([] {});
  std::atomic<bool> done = false;
  std::thread unmapper([&] {
    while (!done) pages.unmap_released();
  });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        std::array<Block, 2> blocks;
        for (std::uint64_t round = 0; round < kRounds; ++round) {
          Block& block = blocks[round % 2];
          block.reset();
          block = pages.allocate(kSize);
          if (block) block.data()[kPiece] = std::byte{1};
        }
      });
    }
  }
  done = true;
  unmapper.join();
  while (pages.unmap_released()) {
  }
  const PageAllocatorStatistics statistics = pages.statistics();
  CHECK(statistics.live_bytes == 0);
  CHECK(statistics.released_bytes == 0);
  CHECK(statistics.allocations + statistics.refusals == 3 * kRounds);
  CHECK(statistics.high_water_bytes <= pages.options().budget_bytes);
}
