// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/store/page_pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/store/page_space.hpp"
#include "support/death.hpp"
#include "support/sanitized.hpp"

using namespace linkspan;
using linkspan::test::kSanitized;
using linkspan::test::last_words;

namespace {

constexpr std::size_t kPage = 4096;

static_assert(!std::is_copy_constructible_v<Pages>);

PagePool pool_of(std::size_t pages) {
  PagePoolOptions options;
  options.bytes = pages * kPage;
  return PagePool::open(options).value_or_throw();
}

std::string text_of(std::size_t size, unsigned seed = 1) {
  std::mt19937 draw(seed);
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(draw());
  return text;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Every second page is taken, so that there are no two in a row.
std::vector<Pages> fragment(PagePool& pool) {
  std::vector<Pages> kept;
  std::vector<Pages> dropped;
  while (Pages page = pool.allocate(1)) {
    const auto address = reinterpret_cast<std::uintptr_t>(page.piece(0).data());
    (address / kPage % 2 == 0 ? kept : dropped).push_back(std::move(page));
  }
  return kept;
}

}  // namespace

TEST_CASE("pages are as many as were asked for, in a row while there are rows") {
  PagePool pool = pool_of(1000);
  CHECK(pool.page_bytes() == kPage);
  for (const std::size_t pages : {1, 2, 25, 63, 64, 65, 129, 700}) {
    CAPTURE(pages);
    Pages taken = pool.allocate(pages * kPage - 1);
    REQUIRE(taken);
    CHECK(taken.size() == pages * kPage);
    CHECK(taken.piece_count() == 1);
    CHECK(pool.statistics().free_pages == 1000 - pages);
  }
  CHECK(pool.statistics().free_pages == 1000);
  const Pages none = pool.allocate(0);
  CHECK(none);
  CHECK(none.size() == 0);
}

TEST_CASE("an allocation is all or nothing") {
  PagePool pool = pool_of(100);
  const Pages most = pool.allocate(90 * kPage);
  REQUIRE(most);
  CHECK_FALSE(pool.allocate(11 * kPage));
  CHECK_FALSE(pool.allocate(std::size_t{1} << 60));
  CHECK(pool.statistics().free_pages == 10);
  CHECK(pool.allocate(10 * kPage));
}

TEST_CASE("scattered pages are given when there are no others, down to the last one") {
  PagePool pool = pool_of(512);
  const std::vector<Pages> kept = fragment(pool);
  REQUIRE(pool.statistics().free_pages == 256);
  Pages scattered = pool.allocate(256 * kPage);
  REQUIRE(scattered);
  CHECK(scattered.piece_count() == 256);
  CHECK(pool.statistics().free_pages == 0);
  CHECK_FALSE(pool.allocate(1));
  const std::string text = text_of(256 * kPage - 77);
  scattered.write(0, bytes_of(text));
  const Chain chain = std::move(scattered).freeze(text.size());
  CHECK(chain.slice_count() == 256);
  CHECK(chain == text);
}

TEST_CASE("no page is in two hands") {
  PagePool pool = pool_of(300);
  std::mt19937 draw(7);
  std::vector<std::pair<Pages, std::string>> held;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t size = 1 + draw() % (40 * kPage);
    Pages pages = pool.allocate(size);
    if (pages) {
      std::string text = text_of(size, static_cast<unsigned>(i));
      pages.write(0, bytes_of(text));
      held.emplace_back(std::move(pages), std::move(text));
    }
    while (!held.empty() && (!pages || draw() % 3 == 0)) {
      const std::size_t index = draw() % held.size();
      std::swap(held[index], held.back());
      const std::string& text = held.back().second;
      CHECK(std::move(held.back().first).freeze(text.size()) == text);
      held.pop_back();
      if (draw() % 2 == 0) break;
    }
  }
  held.clear();
  CHECK(pool.statistics().free_pages == 300);
}

TEST_CASE("a page list that is resized keeps its beginning, or everything when there are no more pages") {
  PagePool pool = pool_of(64);
  const std::string text = text_of(10 * kPage);
  Pages pages = pool.allocate(text.size());
  pages.write(0, bytes_of(text));
  Pages other = pool.allocate(10 * kPage);
  REQUIRE(pages.resize(20 * kPage));
  CHECK(pages.size() == 20 * kPage);
  CHECK(pool.statistics().free_pages == 34);
  CHECK_FALSE(pages.resize(55 * kPage));
  CHECK(pages.size() == 20 * kPage);
  CHECK(pool.statistics().free_pages == 34);
  pages.write(text.size(), bytes_of(text));
  REQUIRE(pages.resize(13 * kPage + 1));
  CHECK(pages.size() == 14 * kPage);
  CHECK(pool.statistics().free_pages == 40);
  const Chain chain = std::move(pages).freeze(13 * kPage);
  CHECK(chain == text + text.substr(0, 3 * kPage));
  Pages empty = pool.allocate(1);
  REQUIRE(empty.resize(0));
  CHECK(empty.piece_count() == 0);
  REQUIRE(empty.resize(1));
  CHECK(empty.size() == kPage);
}

TEST_CASE("frozen pages are free when the last slice is gone, on whatever thread, also after the pool") {
  std::optional<PagePool> pool = pool_of(32);
  const std::string text = text_of(9 * kPage);
  Pages pages = pool->allocate(text.size());
  pages.write(0, bytes_of(text));
  Chain chain = std::move(pages).freeze(text.size());
  CHECK_FALSE(pages);
  Chain middle = chain.share(kPage, 100);
  CHECK(middle.pinned_size() == 9 * kPage);
  chain.clear();
  CHECK(pool->statistics().free_pages == 23);
  std::thread([&middle] { middle.clear(); }).join();
  CHECK(pool->statistics().free_pages == 32);

  Pages last = pool->allocate(100);
  last.write(0, bytes_of(text.substr(0, 100)));
  chain = std::move(last).freeze(100);
  pool.reset();
  CHECK(chain == text.substr(0, 100));
}

TEST_CASE("blocks over pages keep them") {
  PagePool pool = pool_of(4);
  Pages pages = pool.allocate(2 * kPage);
  Block block = pages.block(0);
  CHECK(block.data() == pages.piece(0).data());
  CHECK(block.size() == 2 * kPage);
  pages = Pages();
  CHECK(pool.statistics().free_pages == 2);
  block.reset();
  CHECK(pool.statistics().free_pages == 4);
}

TEST_CASE("options that cannot be used are refused with what was expected") {
  PagePoolOptions options;
  for (const std::size_t page_bytes : {0, 1, 1000, 5000, 2 << 20}) {
    options.page_bytes = page_bytes;
    const Result<PagePool> pool = PagePool::open(options);
    REQUIRE_FALSE(pool);
    CHECK(pool.error().code == errc::invalid_argument);
    if (page_bytes != 0) CHECK(pool.error().detail.find("page_bytes") != std::string::npos);
  }
  options.page_bytes = kPage;
  options.bytes = kPage - 1;
  CHECK_FALSE(PagePool::open(options));
  options.bytes = std::size_t{1} << 43;
  CHECK_FALSE(PagePool::open(options));
}

TEST_CASE("a page that is given back twice is noticed") {
  const auto space = PageSpace::open(8, kPage, 8 * kPage, HugePages::never).value_or_throw();
  RunList runs;
  REQUIRE(space->take(3, runs));
  space->give_back(runs.runs());
  CHECK(last_words([&] { space->give_back(runs.runs()); }).find("a page is given back once") !=
        std::string::npos);
}

TEST_CASE("many threads take and give back all pages, and lose none") {
  constexpr int kThreads = 4;
  const int rounds = kSanitized ? 500 : 3000;
  PagePool pool = pool_of(256);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  std::mutex mutex;
  std::vector<Chain> shared;  // dropped by other threads than those that filled them
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&, id] {
      std::mt19937 draw(static_cast<unsigned>(id));
      for (int i = 0; i < rounds; ++i) {
        const std::size_t size = 1 + draw() % (100 * kPage);
        Pages pages = pool.allocate(size);
        if (!pages) continue;
        const auto mark = static_cast<std::byte>(draw());
        for (std::size_t piece = 0; piece < pages.piece_count(); ++piece) {
          pages.piece(piece).front() = pages.piece(piece).back() = mark;
        }
        std::this_thread::yield();
        for (std::size_t piece = 0; piece < pages.piece_count(); ++piece) {
          if (pages.piece(piece).front() != mark || pages.piece(piece).back() != mark) ++wrong;
        }
        Chain chain = std::move(pages).freeze(size);
        const std::lock_guard lock(mutex);
        shared.push_back(std::move(chain));
        if (shared.size() > 3) {
          std::swap(shared[draw() % shared.size()], shared.back());
          shared.pop_back();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  shared.clear();
  CHECK(pool.statistics().free_pages == 256);
}
