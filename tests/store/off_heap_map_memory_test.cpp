// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What an OffHeapMap does with its budget: what entries cost, who makes room, and what happens when nobody
// can.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/store/off_heap_map.hpp"
#include "support/fake_clock.hpp"
#include "support/sanitized.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::chain_of;
using linkspan::test::FakeClock;
using linkspan::test::kSanitized;
using linkspan::test::Releases;

namespace {

std::unique_ptr<OffHeapMap> open_map(std::size_t max_bytes, Eviction eviction = Eviction::none,
                                     unsigned shards = 16) {
  OffHeapMapOptions options;
  options.max_bytes = max_bytes;
  options.eviction = eviction;
  options.shards = shards;
  return OffHeapMap::open(options).value_or_throw();
}

std::string key_of(int number) {
  const std::string digits = std::to_string(number);
  return "key:" + std::string(12 - digits.size(), '0') + digits;
}

}  // namespace

TEST_CASE("an entry of 64 bytes under a key of 16 costs less than 150") {
  const int entries = kSanitized ? 50'000 : 300'000;
  const auto map = open_map(std::size_t{64} << 20);
  const std::uint64_t empty = map->statistics().used_bytes;
  const std::string value(64, 'v');
  std::uint64_t worst = 0;
  for (int i = 1; i <= entries; ++i) {
    REQUIRE_FALSE(map->put(key_of(i), value));
    if (i >= 20'000 && i % 500 == 0) {
      worst = std::max(worst, (map->statistics().used_bytes - empty) * 100 / static_cast<std::uint64_t>(i));
    }
  }
  CHECK(worst < 15'000);
}

TEST_CASE("what was erased is there for other sizes") {
  const auto map = open_map(std::size_t{8} << 20);
  std::mt19937 draw(3);
  for (const std::size_t size : {64, 1000, 100'000, 300, 5000, 64}) {
    CAPTURE(size);
    std::vector<std::string> keys;
    const std::string value(size, 'v');
    for (int i = 0;; ++i) {
      const std::error_code error = map->put(key_of(i), value);
      if (error) {
        CHECK(error == store_errc::no_room);
        break;
      }
      keys.push_back(key_of(i));
    }
    const OffHeapMapStatistics statistics = map->statistics();
    CHECK(statistics.used_bytes <= map->options().max_bytes);
    // At least half is keys and values: not much is lost to rounding and to what earlier sizes left.
    CHECK(statistics.key_bytes + statistics.value_bytes > map->options().max_bytes / 2);
    // All but a tenth, at random, so that pages are left with a few entries each.
    std::shuffle(keys.begin(), keys.end(), draw);
    for (std::size_t i = keys.size() / 10; i < keys.size(); ++i) CHECK(map->erase(keys[i]));
    for (std::size_t i = 0; i < keys.size() / 10; ++i) CHECK(map->value_size(keys[i]) == size);
    const std::size_t left = map->statistics().entries;
    std::size_t put = 0;
    for (int i = 0; !map->put("other" + key_of(i), std::string(700, 'o')); ++i) ++put;
    CHECK(put > map->options().max_bytes / 1000 / 2);
    CHECK(map->statistics().entries == left + put);
    map->clear();
    CHECK(map->statistics().value_bytes == 0);
  }
}

TEST_CASE("eviction keeps what is read, and the budget") {
  const auto map = open_map(std::size_t{4} << 20, Eviction::clock);
  const std::string value(64, 'v');
  for (int i = 0; i < 1000; ++i) REQUIRE_FALSE(map->put("hot" + key_of(i), value));
  for (int i = 0; i < 200'000; ++i) {
    REQUIRE_FALSE(map->put(key_of(i), value));
    if (i % 4 == 0) map->read("hot" + key_of(i / 4 % 1000), [](const EntryView&) {});
    if (i % 1000 == 0) REQUIRE(map->statistics().used_bytes <= map->options().max_bytes);
  }
  int hot = 0;
  for (int i = 0; i < 1000; ++i) hot += map->contains("hot" + key_of(i)) ? 1 : 0;
  CHECK(hot > 990);
  const OffHeapMapStatistics statistics = map->statistics();
  CHECK(statistics.evicted + statistics.entries == 201'000);
  CHECK(statistics.refused == 0);
  CHECK(statistics.used_bytes > map->options().max_bytes / 10 * 9);
}

TEST_CASE("entries of every size make room for entries of every other size") {
  for (const unsigned shards : {1U, 16U}) {
    const auto map = open_map(std::size_t{4} << 20, Eviction::clock, shards);
    std::mt19937 draw(5);
    int number = 0;
    for (const std::size_t size : {64, 500'000, 200, 3000, 1900, 64, 1'000'000, 30, 60'000}) {
      CAPTURE(size);
      const std::string value(size, 'v');
      const int count = static_cast<int>(2 * map->options().max_bytes / (size + 100)) + 20;
      for (int i = 0; i < count; ++i) {
        REQUIRE_FALSE(map->put(key_of(number), value));
        CHECK(map->value_size(key_of(number)) == size);
        ++number;
      }
      CHECK(map->statistics().used_bytes <= map->options().max_bytes);
      // What an entry costs besides its value is 80 bytes and less; not even a fifth is lost to old sizes.
      const OffHeapMapStatistics statistics = map->statistics();
      CHECK(statistics.value_bytes + 80 * statistics.entries > map->options().max_bytes / 10 * 7);
    }
  }
}

TEST_CASE("what readers hold is neither reused nor evicted for nothing, and counts until they let go") {
  for (const Eviction eviction : {Eviction::none, Eviction::clock}) {
    const auto map = open_map(std::size_t{4} << 20, eviction);
    const std::string value(100'000, 'v');
    std::vector<Chain> held;
    for (int i = 0; i < 35; ++i) {
      REQUIRE_FALSE(map->put(key_of(i), value));
      held.push_back(std::move(map->get(key_of(i))->bytes));
    }
    CHECK(map->put("more", std::string(1'000'000, 'm')) == store_errc::no_room);
    CHECK(map->statistics().entries == 35);
    CHECK(map->statistics().evicted == 0);
    for (int i = 0; i < 35; ++i) CHECK(map->erase(key_of(i)));
    CHECK(map->statistics().pinned_bytes > 3'500'000);
    CHECK(map->put("more", std::string(1'000'000, 'm')) == store_errc::no_room);
    CHECK(map->statistics().refused == 2);
    for (const Chain& chain : held) CHECK(chain == value);
    held.resize(20);
    CHECK_FALSE(map->put("more", std::string(1'000'000, 'm')));
    for (const Chain& chain : held) CHECK(chain == value);
    held.clear();
    CHECK(map->statistics().pinned_bytes == 0);
  }
}

TEST_CASE("a value that would push out nearly everything is refused, and pushes out nothing") {
  const auto map = open_map(std::size_t{4} << 20, Eviction::clock);
  for (int i = 0; i < 100; ++i) REQUIRE_FALSE(map->put(key_of(i), std::string(10'000, 'v')));
  CHECK(map->put("large", std::string(3'900'000, 'l')) == store_errc::no_room);
  CHECK(map->put("larger", std::string(5'000'000, 'l')) == store_errc::no_room);
  CHECK(map->statistics().entries == 100);
  CHECK_FALSE(map->reserve(5'000'000));
}

TEST_CASE("entries whose time is over make room even without eviction") {
  FakeClock clock;
  OffHeapMapOptions options;
  options.max_bytes = std::size_t{4} << 20;
  options.clock = &clock;
  const auto map = OffHeapMap::open(options).value_or_throw();
  const PutOptions soon(PutOptions::Condition::always, Expiry::at(clock.now() + std::chrono::seconds(1)));
  int number = 0;
  while (!map->put(key_of(number), std::string(50'000, 'v'), soon)) ++number;
  clock.advance(std::chrono::seconds(1));
  for (int i = 0; i < number; ++i) CHECK_FALSE(map->put("next" + key_of(i), std::string(50'000, 'v')));
  CHECK(map->statistics().evicted == 0);
}

TEST_CASE("an adopted value counts with its blocks, and gives them back") {
  const auto map = open_map(std::size_t{4} << 20);
  Releases releases;
  const std::string text(10'000, 'a');
  Chain value(releases.slice(text));
  value.append(releases.slice(text));
  Chain part = value.share(5000, 10'000);
  value.clear();
  CHECK_FALSE(map->adopt("key", std::move(part)));
  CHECK(part.empty());
  CHECK(map->statistics().value_bytes == 10'000);
  CHECK(map->statistics().used_bytes > 20'000);
  std::optional<StoredValue> held = map->get("key");
  CHECK(held->bytes.slice_count() == 2);
  CHECK_FALSE(map->put("key", "small"));
  CHECK(releases.alive() == 2);
  CHECK(map->statistics().pinned_bytes > 20'000);
  held.reset();
  CHECK(releases.alive() == 0);
  CHECK(map->statistics().pinned_bytes == 0);

  // Too much of it is refused like any other value, and stays the caller's.
  Chain huge(releases.slice(std::string(5'000'000, 'h')));
  CHECK(map->adopt("huge", std::move(huge)) == store_errc::no_room);
  CHECK(huge.size() == 5'000'000);
}

TEST_CASE("reserved pages that are filled become the value without a copy") {
  const auto map = open_map(std::size_t{4} << 20);
  Pages pages = map->reserve(100'000).value();
  const std::uint64_t used = map->statistics().used_bytes;
  CHECK(map->statistics().pinned_bytes > 100'000);
  const std::string text(100'000, 'r');
  pages.write(0, std::as_bytes(std::span(text)));
  const std::byte* place = pages.piece(0).data();
  const CopyScope scope;
  CHECK_FALSE(map->adopt("key", std::move(pages).freeze(text.size())));
  CHECK(scope.copied()[CopyPlace::store] == 0);
  CHECK(map->statistics().pinned_bytes == 0);
  CHECK(map->statistics().used_bytes < used + 10'000);
  std::optional<StoredValue> value = map->get("key");
  CHECK(value->bytes.front().data() == place);
  CHECK(value->bytes == text);

  // Also under another key: the value is there once.
  CHECK_FALSE(map->adopt("other", std::move(value->bytes)));
  CHECK(map->erase("key"));
  CHECK(map->statistics().pinned_bytes == 0);
  CHECK(map->get("other")->bytes == text);
  CHECK(map->get("other")->bytes.front().data() == place);
  CHECK(map->erase("other"));

  CHECK(map->reserve(std::size_t{1} << 30).error() == store_errc::value_too_long);
  static_cast<void>(map->reserve(100'000));
  CHECK(map->statistics().pinned_bytes == 0);
  Pages small = map->reserve(10).value();
  small.write(0, std::as_bytes(std::span("0123456789", 10)));
  CHECK_FALSE(map->adopt("small", std::move(small).freeze(10)));
  CHECK(map->get("small")->bytes == "0123456789");
  CHECK(map->statistics().pinned_bytes == 0);
}

TEST_CASE("an entry that is there all the time is seen by a scan, whatever the table does meanwhile") {
  const auto map = open_map(std::size_t{32} << 20, Eviction::none, 2);
  std::mt19937 draw(11);
  for (int round = 0; round < 6; ++round) {
    map->clear();
    const bool grows = round % 2 == 0;
    constexpr int kStable = 500;
    int others = grows ? 0 : 20'000;
    for (int i = 0; i < kStable; ++i) REQUIRE_FALSE(map->put("stable" + key_of(i), "v"));
    for (int i = 0; i < others; ++i) REQUIRE_FALSE(map->put(key_of(i), "v"));
    std::set<std::string> seen;
    std::uint64_t cursor = 0;
    std::size_t calls = 0;
    do {
      cursor = map->scan(cursor, 1 + draw() % 30, [&](std::string_view key, const EntryView&) {
        if (key.starts_with("stable")) seen.emplace(key);
      });
      ++calls;
      for (int i = 0; i < 40; ++i) {
        if (grows && others < 40'000) {
          REQUIRE_FALSE(map->put(key_of(others++), "v"));
        } else if (!grows && others != 0) {
          CHECK(map->erase(key_of(--others)));
        }
      }
      REQUIRE(calls < 100'000);
    } while (cursor != 0);
    CHECK(seen.size() == kStable);
  }
}

TEST_CASE("options of a map that cannot be used are refused with what was expected") {
  const auto refused = [](auto change, std::string_view named) {
    OffHeapMapOptions options;
    change(options);
    const auto map = OffHeapMap::open(options);
    REQUIRE_FALSE(map);
    CHECK(map.error().detail.find(named) != std::string::npos);
  };
  refused([](OffHeapMapOptions& options) { options.shards = 0; }, "shards");
  refused([](OffHeapMapOptions& options) { options.shards = 12; }, "shards");
  refused([](OffHeapMapOptions& options) { options.shards = 2048; }, "shards");
  refused([](OffHeapMapOptions& options) { options.page_bytes = 3000; }, "page_bytes");
  refused([](OffHeapMapOptions& options) { options.page_bytes = 0; }, "page");
  refused([](OffHeapMapOptions& options) { options.max_bytes = 100'000; }, "max_bytes");
  refused([](OffHeapMapOptions& options) { options.max_key_bytes = std::size_t{1} << 32; }, "max_key_bytes");
  refused([](OffHeapMapOptions& options) { options.max_value_bytes = std::size_t{1} << 32; },
          "max_value_bytes");
  refused([](OffHeapMapOptions& options) { options.max_bytes = std::size_t{1} << 60; }, "pages");
}
