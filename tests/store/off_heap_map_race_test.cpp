// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An OffHeapMap that many threads use at once: no byte of a value that is held ever changes, no update is
// lost, and the counters are exact when everybody is done.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/store/off_heap_map.hpp"
#include "support/sanitized.hpp"

using namespace linkspan;
using linkspan::test::kSanitized;

namespace {

constexpr int kThreads = 4;

// A number, and bytes that follow from it and from the size.
std::string sealed(std::uint32_t number, std::size_t size) {
  std::string text(std::max<std::size_t>(size, 4), '\0');
  std::memcpy(text.data(), &number, 4);
  for (std::size_t i = 4; i < text.size(); ++i) text[i] = static_cast<char>(number + i * 7 + text.size());
  return text;
}

bool intact(std::string_view text) {
  std::uint32_t number = 0;
  if (text.size() < 4) return false;
  std::memcpy(&number, text.data(), 4);
  return text == sealed(number, text.size());
}

template <class Work>
void on_threads(Work work) {
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) threads.emplace_back([&work, id] { work(id); });
  for (std::thread& thread : threads) thread.join();
}

std::size_t some_size(std::mt19937& draw) {
  constexpr std::size_t kSizes[] = {4, 64, 500, 2047, 2048, 10'000, 60'000};
  return kSizes[draw() % std::size(kSizes)];
}

}  // namespace

TEST_CASE("values that threads hold stay whole while others overwrite, erase, evict and clear them") {
  for (const Eviction eviction : {Eviction::none, Eviction::clock}) {
    OffHeapMapOptions options;
    options.max_bytes = std::size_t{3} << 20;
    options.eviction = eviction;
    options.shards = 4;
    auto map = OffHeapMap::open(options).value_or_throw();
    std::atomic<int> broken{0};
    std::atomic<std::uint64_t> wrong_errors{0};
    std::mutex mutex;
    std::vector<Chain> survivors;
    on_threads([&](int id) {
      std::mt19937 draw(static_cast<unsigned>(id));
      std::vector<Chain> held;
      for (int i = 0; i < (kSanitized ? 1500 : 10'000); ++i) {
        const std::string key = "key" + std::to_string(draw() % 200);
        switch (draw() % 10) {
          case 0:
          case 1:
          case 2: {
            const std::error_code error = map->put(key, sealed(draw(), some_size(draw)));
            if (error && error != store_errc::no_room) ++wrong_errors;
            break;
          }
          case 3: {
            Chain value(Slice::copy(sealed(draw(), some_size(draw))));
            const std::error_code error = map->adopt(key, std::move(value));
            if (error && error != store_errc::no_room) ++wrong_errors;
            break;
          }
          case 4: map->erase(key); break;
          case 5: {
            std::string next;
            static_cast<void>(map->update(key, [&](const EntryView* entry) {
              next = sealed(entry != nullptr ? static_cast<std::uint32_t>(entry->size()) : 1, 3000);
              return Change::put(next);
            }));
            break;
          }
          case 6: {
            const std::uint64_t cursor = std::uint64_t{draw()} << 24;  // anywhere
            static_cast<void>(map->scan(cursor, 20, [&](std::string_view, const EntryView& entry) {
              if (!entry.large() && !intact(entry.small())) ++broken;
            }));
            break;
          }
          default: {
            std::optional<StoredValue> value = map->get(key);
            if (value) held.push_back(std::move(value->bytes));
          }
        }
        if (i % 1000 == 999) map->clear();
        while (held.size() > 5) {
          std::swap(held[draw() % held.size()], held.back());
          if (!intact(held.back().to_string())) ++broken;
          held.pop_back();
        }
      }
      const std::lock_guard lock(mutex);
      for (Chain& chain : held) survivors.push_back(std::move(chain));
    });
    CHECK(broken == 0);
    CHECK(wrong_errors == 0);
    map->clear();
    const OffHeapMapStatistics statistics = map->statistics();
    CHECK(statistics.entries == 0);
    CHECK(statistics.key_bytes == 0);
    CHECK(statistics.value_bytes == 0);
    map.reset();
    for (const Chain& chain : survivors) CHECK(intact(chain.to_string()));
  }
}

TEST_CASE("no update is lost") {
  const auto map = OffHeapMap::open().value_or_throw();
  const int rounds = kSanitized ? 2000 : 10'000;
  on_threads([&](int id) {
    for (int i = 0; i < rounds; ++i) {
      std::string text;
      const auto increment = [&text](const EntryView* entry) {
        text = std::to_string(entry == nullptr ? 1 : 1 + std::stoi(std::string(entry->small())));
        return Change::put(text);
      };
      static_cast<void>(map->update("counter", increment));
      // With large values, for which the lock is given up: the text is their beginning.
      const auto large = [&text](const EntryView* entry) {
        int count = 0;
        if (entry != nullptr) count = std::stoi(entry->bytes().share(0, 8).to_string());
        text = std::to_string(count + 1);
        text.resize(3000, ' ');
        return Change::put(text);
      };
      if (i % 10 == 0) static_cast<void>(map->update("large counter", large));
      // And by versions.
      for (;;) {
        const std::optional<StoredValue> old = map->get("versions");
        if (!old) {
          static_cast<void>(map->put("versions", "0", {PutOptions::Condition::only_absent, Expiry::never()}));
          continue;
        }
        Chain next(Slice::copy(std::to_string(std::stoi(old->bytes.to_string()) + 1)));
        if (!map->compare_and_set("versions", old->version, std::move(next))) break;
      }
      static_cast<void>(map->put("own" + std::to_string(id) + "/" + std::to_string(i), "x"));
    }
  });
  CHECK(map->get("counter")->bytes == std::to_string(kThreads * rounds));
  CHECK(map->get("versions")->bytes == std::to_string(kThreads * rounds));
  CHECK(std::stoi(map->get("large counter")->bytes.to_string()) == kThreads * rounds / 10);
  CHECK(map->statistics().entries == static_cast<std::uint64_t>(kThreads * rounds + 3));
}

TEST_CASE("the counters are exact when all threads are done") {
  OffHeapMapOptions options;
  options.max_bytes = std::size_t{2} << 20;
  options.eviction = Eviction::clock;
  options.shards = 8;
  const auto map = OffHeapMap::open(options).value_or_throw();
  std::atomic<std::uint64_t> hits{0};
  std::atomic<std::uint64_t> misses{0};
  std::atomic<std::uint64_t> puts{0};
  std::atomic<std::uint64_t> added{0};
  std::atomic<std::uint64_t> erased{0};
  std::atomic<std::uint64_t> refused{0};
  on_threads([&](int id) {
    std::mt19937 draw(static_cast<unsigned>(id));
    for (int i = 0; i < (kSanitized ? 2000 : 20'000); ++i) {
      const std::string key = std::to_string(id) + "/" + std::to_string(draw() % 500);
      switch (draw() % 4) {
        case 0: ++(map->get(key) ? hits : misses); break;
        case 1: {
          const std::error_code error = map->put(key, std::string(some_size(draw), 'v'),
                                                 {PutOptions::Condition::only_absent, Expiry::never()});
          if (!error) {
            ++puts;
            ++added;
          } else if (error == store_errc::no_room) {
            ++refused;
          }
          break;
        }
        case 2: {
          const std::error_code error = map->put(key, std::string(some_size(draw), 'w'),
                                                 {PutOptions::Condition::only_present, Expiry::never()});
          if (!error) ++puts;
          if (error == store_errc::no_room) ++refused;
          break;
        }
        default: erased += map->erase(key) ? 1 : 0;
      }
    }
  });
  const OffHeapMapStatistics statistics = map->statistics();
  CHECK(statistics.hits == hits);
  CHECK(statistics.misses == misses);
  CHECK(statistics.puts == puts);
  CHECK(statistics.erased == erased);
  CHECK(statistics.refused == refused);
  CHECK(statistics.entries == added - erased - statistics.evicted);
  CHECK(statistics.pinned_bytes == 0);
  std::uint64_t entries = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t value_bytes = 0;
  std::uint64_t cursor = 0;
  do {
    cursor = map->scan(cursor, 100, [&](std::string_view key, const EntryView& entry) {
      ++entries;
      key_bytes += key.size();
      value_bytes += entry.size();
    });
  } while (cursor != 0);
  CHECK(statistics.entries == entries);
  CHECK(statistics.key_bytes == key_bytes);
  CHECK(statistics.value_bytes == value_bytes);
}
