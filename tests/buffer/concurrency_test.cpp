// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
// What ThreadSanitizer has to see: counts, pools and releases from several threads at once.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/chain.hpp"
#include "support/sanitized.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::Releases;

namespace {

constexpr unsigned kThreads = 8;
constexpr int kRounds = test::kSanitized ? 2'000 : 20'000;

template <class Body>
void on_threads(Body body) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("threads share and drop slices of the same memory, and it is released once") {
  Releases releases;
  std::array<Slice, 8> shared;
  for (Slice& slice : shared) slice = releases.slice("shared by all");
  std::atomic<int> wrong{0};
  on_threads([&](unsigned seed) {
    std::mt19937 generator(seed);
    const std::array<Slice, 8> mine = shared;
    std::vector<Slice> kept;
    for (int round = 0; round < kRounds; ++round) {
      kept.push_back(mine[generator() % mine.size()].slice(generator() % 5, 8));
      if (kept.back().size() != 8) wrong.fetch_add(1);
      if (kept.size() > 20) kept.erase(kept.begin(), kept.begin() + static_cast<int>(generator() % 20));
    }
  });
  CHECK(wrong == 0);
  CHECK(releases.released() == 0);
  for (Slice& slice : shared) slice = Slice();
  CHECK(releases.alive() == 0);
}

TEST_CASE("the thread that drops the last slice sees what the others read") {
  for (int round = 0; round < kRounds / 20; ++round) {
    auto memory = std::make_unique<std::array<std::byte, 64>>();
    std::byte* bytes = memory->data();
    const Slice slice =
        Slice::borrow({bytes, 64}, [gone = std::move(memory)]() mutable { gone->fill(std::byte{1}); });
    std::array<Slice, 2> copies{slice, slice};
    std::atomic<int> sum{0};
    std::array<std::thread, 2> threads;
    for (std::size_t i = 0; i < threads.size(); ++i) {
      threads[i] = std::thread([&sum, mine = std::move(copies[i])]() mutable {
        sum.fetch_add(std::to_integer<int>(mine.bytes()[5]));
        mine = Slice();
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(sum == 0);
  }
}

TEST_CASE("threads free a pool's blocks while their owner allocates") {
  BlockPool pool;
  std::array<std::atomic<Slice*>, 64> boxes{};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < kThreads; ++seed) {
    threads.emplace_back([&boxes, &done, seed] {
      std::mt19937 generator(seed);
      while (!done) delete boxes[generator() % boxes.size()].exchange(nullptr);
    });
  }
  std::mt19937 generator(99);
  for (int round = 0; round < kRounds; ++round) {
    Block block = pool.allocate(1 + generator() % 20'000);
    block.data()[0] = std::byte{1};
    auto* slice = new Slice(block.freeze(1 + generator() % block.size()));
    delete boxes[generator() % boxes.size()].exchange(slice);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  for (auto& box : boxes) delete box.load();
  pool.trim();
  CHECK(pool.statistics().live_bytes == 0);
  CHECK(pool.statistics().allocations == static_cast<std::uint64_t>(kRounds));
}

TEST_CASE("threads free a pool's blocks while the pool is destroyed, with and without a refusal") {
  for (int round = 0; round < kRounds / 40; ++round) {
    BlockPoolOptions options;
    options.budget_bytes = 8 * 512;
    auto pool = std::make_unique<BlockPool>(options);
    std::atomic<int> announced{0};
    pool->set_available_callback([&announced] { announced.fetch_add(1); });
    std::array<Block, 8> blocks;
    for (Block& block : blocks) block = pool->allocate(512);
    const bool refused = round % 2 == 0;
    if (refused) REQUIRE_FALSE(pool->allocate(512));
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 2; ++i) {
      threads.emplace_back([&blocks, &go, i] {
        while (!go) std::this_thread::yield();
        for (std::size_t block = i; block < blocks.size(); block += 2) blocks[block].reset();
      });
    }
    go = true;
    pool.reset();
    for (std::thread& thread : threads) thread.join();
    REQUIRE(announced <= (refused ? 1 : 0));
  }
}
