// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/store/off_heap_map.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/fake_clock.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::chain_of;
using linkspan::test::FakeClock;

namespace {

using Condition = PutOptions::Condition;

std::unique_ptr<OffHeapMap> open_map(OffHeapMapOptions options = {}) {
  return OffHeapMap::open(options).value_or_throw();
}

std::string value_of(OffHeapMap& map, std::string_view key) {
  auto value = map.get(key);
  return value ? value->bytes.to_string() : "(none)";
}

const std::string kLarge(100'000, 'L');

// Adds 1 to a number in decimal digits, and keeps its time to live.
std::error_code increment(OffHeapMap& map, std::string_view key) {
  std::string text;  // outside: the function may be called again
  return map.update(key, [&text](const EntryView* entry) {
    const int old = entry == nullptr ? 0 : std::stoi(std::string(entry->small()));
    text = std::to_string(old + 1);
    return Change::put(text);
  });
}

}  // namespace

TEST_CASE("what was put is got, small and large, until it is erased") {
  const auto map = open_map();
  for (const std::size_t size : {0, 1, 64, 2047, 2048, 4096, 4097, 100'000}) {
    CAPTURE(size);
    const std::string text(size, 'v');
    Chain value = chain_of(text, 1000);
    CHECK_FALSE(map->put("key", std::move(value)));
    CHECK(value.empty());
    CHECK(value_of(*map, "key") == text);
    CHECK(map->value_size("key") == size);
    CHECK_FALSE(map->put("key", text + "2"));
    CHECK(value_of(*map, "key") == text + "2");
  }
  CHECK(map->contains("key"));
  CHECK(map->erase("key"));
  CHECK_FALSE(map->erase("key"));
  CHECK_FALSE(map->contains("key"));
  CHECK_FALSE(map->value_size("key"));
  CHECK_FALSE(map->get("key"));
}

TEST_CASE("any bytes are a key, none included") {
  const auto map = open_map();
  const std::vector<std::string> keys{"",         std::string(1, '\0'),   std::string(2, '\0'),
                                      "\xff\xfe", std::string(5000, 'k'), std::string(65'536, 'k')};
  for (const std::string& key : keys) CHECK_FALSE(map->put(key, "value of " + key));
  for (const std::string& key : keys) CHECK(value_of(*map, key) == "value of " + key);
  CHECK(map->statistics().entries == keys.size());
}

TEST_CASE("a large value is not copied by get, and stays good after everything") {
  auto map = open_map();
  CHECK_FALSE(map->put("key", kLarge));
  const CopyScope scope;
  std::optional<StoredValue> old = map->get("key");
  REQUIRE(old);
  CHECK(scope.copied().total() == 0);
  CHECK_FALSE(map->put("key", std::string(kLarge.size(), 'M')));
  std::optional<StoredValue> erased = map->get("key");
  CHECK(map->erase("key"));
  map->clear();
  map.reset();
  CHECK(old->bytes == kLarge);
  CHECK(erased->bytes == std::string(kLarge.size(), 'M'));
}

TEST_CASE("a small value is copied once, as the ledger says") {
  const auto map = open_map();
  const CopyScope scope;
  CHECK_FALSE(map->put("key", "0123456789"));
  CHECK(scope.copied()[CopyPlace::store] == 10);
  std::string seen;
  CHECK(map->read("key", [&seen](const EntryView& entry) { seen = entry.small(); }));
  CHECK(seen == "0123456789");
  CHECK(scope.copied().total() == 10);
  CHECK(map->get("key")->bytes == "0123456789");
  CHECK(scope.copied().total() == 20);
}

TEST_CASE("adopted blocks are kept as they are") {
  const auto map = open_map();
  const Slice slice = Slice::copy(kLarge);
  const CopyScope scope;
  CHECK_FALSE(map->adopt("key", Chain(slice)));
  const std::optional<StoredValue> value = map->get("key");
  REQUIRE(value->bytes.slice_count() == 1);
  CHECK(value->bytes.front().data() == slice.data());
  CHECK(scope.copied().total() == 0);
}

TEST_CASE("put under a condition says which one was not met, and leaves the value with the caller") {
  const auto map = open_map();
  CHECK(map->put("key", "1", {Condition::only_present, Expiry::never()}) == store_errc::absent);
  CHECK_FALSE(map->put("key", "1", {Condition::only_absent, Expiry::never()}));
  Chain value(Slice::immortal("2"));
  CHECK(map->put("key", std::move(value), {Condition::only_absent, Expiry::never()}) == store_errc::exists);
  CHECK(value == "2");
  CHECK(value_of(*map, "key") == "1");
  CHECK_FALSE(map->put("key", std::move(value), {Condition::only_present, Expiry::never()}));
  CHECK(value_of(*map, "key") == "2");
}

TEST_CASE("compare_and_set changes only the version that was seen") {
  const auto map = open_map();
  CHECK(map->compare_and_set("key", 0, Chain(Slice::immortal("x"))) == store_errc::absent);
  CHECK_FALSE(map->put("key", "1"));
  const std::uint64_t version = map->get("key")->version;
  CHECK_FALSE(map->compare_and_set("key", version, Chain(Slice::immortal("2"))));
  CHECK(map->compare_and_set("key", version, Chain(Slice::immortal("3"))) == store_errc::changed);
  CHECK(value_of(*map, "key") == "2");
  // Not even a key that was away has a version again.
  CHECK(map->erase("key"));
  CHECK_FALSE(map->put("key", "1"));
  CHECK(map->compare_and_set("key", version, Chain(Slice::immortal("4"))) == store_errc::changed);
}

TEST_CASE("update reads and changes an entry in one step") {
  const auto map = open_map();
  for (int i = 0; i < 12; ++i) CHECK_FALSE(increment(*map, "count"));
  CHECK(value_of(*map, "count") == "12");

  std::string old;
  CHECK_FALSE(map->update("count", [&](const EntryView* entry) {
    old = entry->small();
    return Change::erase();
  }));
  CHECK(old == "12");
  CHECK_FALSE(map->contains("count"));
  CHECK_FALSE(map->update("count", [](const EntryView*) { return Change::keep(); }));
  CHECK_FALSE(map->contains("count"));

  Chain value = chain_of(kLarge, 5000);
  CHECK_FALSE(map->update("count", [&](const EntryView*) { return Change::put(value); }));
  CHECK(value.empty());
  CHECK(value_of(*map, "count") == kLarge);
}

TEST_CASE("entries live until their time, which is the clock's") {
  FakeClock clock;
  OffHeapMapOptions options;
  options.clock = &clock;
  const auto map = open_map(options);
  const TimePoint later = clock.now() + std::chrono::seconds(10);
  CHECK_FALSE(map->put("put", "1", {Condition::always, Expiry::at(later)}));
  CHECK_FALSE(map->put("kept", "1", {Condition::always, Expiry::at(later)}));
  CHECK_FALSE(map->put("kept", "2", {Condition::always, Expiry::keep()}));
  CHECK_FALSE(map->put("forgotten", "1", {Condition::always, Expiry::at(later)}));
  CHECK_FALSE(map->put("forgotten", "2"));
  CHECK_FALSE(map->put("expire", "1"));
  CHECK(map->expire("expire", later));
  CHECK_FALSE(map->expire("none", later));
  CHECK_FALSE(map->put("persist", "1", {Condition::always, Expiry::at(later)}));
  CHECK(map->persist("persist"));
  CHECK_FALSE(map->persist("persist"));
  CHECK_FALSE(map->put("gone", "1"));
  CHECK(map->expire("gone", clock.now()));
  CHECK_FALSE(map->contains("gone"));
  CHECK(map->get("put")->expires_at == later);
  CHECK(map->statistics().expiring_entries == 3);

  clock.advance(std::chrono::seconds(10) - Duration(1));
  for (const auto* key : {"put", "kept", "forgotten", "expire", "persist"}) CHECK(map->contains(key));
  clock.advance(Duration(1));
  for (const auto* key : {"put", "kept", "expire"}) CHECK_FALSE(map->contains(key));
  for (const auto* key : {"forgotten", "persist"}) CHECK(map->contains(key));
  CHECK(map->statistics().expired == 4);
  CHECK_FALSE(map->put("put", "2", {Condition::only_absent, Expiry::keep()}));
  CHECK_FALSE(map->get("put")->expires_at);
}

TEST_CASE("limits have errors that name them") {
  OffHeapMapOptions options;
  options.max_key_bytes = 10;
  options.max_value_bytes = 10'000;
  const auto map = open_map(options);
  const std::error_code key_error = map->put("12345678901", "v");
  CHECK(key_error == store_errc::key_too_long);
  CHECK(key_error == errc::limit_exceeded);
  CHECK(key_error.message() == "the key is longer than max_key_bytes");
  Chain value(Slice::copy(std::string(10'001, 'v')));
  CHECK(map->put("key", std::move(value)) == store_errc::value_too_long);
  CHECK(value.size() == 10'001);
  CHECK_FALSE(map->contains("key"));
}

TEST_CASE("a map without eviction refuses what its budget does not hold, and one with it makes room") {
  for (const Eviction eviction : {Eviction::none, Eviction::clock}) {
    OffHeapMapOptions options;
    options.max_bytes = 4 << 20;
    options.eviction = eviction;
    const auto map = open_map(options);
    int refused = 0;
    for (int i = 0; i < 100; ++i) {
      const std::error_code error = map->put("key" + std::to_string(i), kLarge);
      if (!error) continue;
      ++refused;
      CHECK(error == store_errc::no_room);
      CHECK(error == errc::pool_exhausted);
    }
    const OffHeapMapStatistics statistics = map->statistics();
    CHECK(statistics.used_bytes <= options.max_bytes);
    CHECK(statistics.entries >= 25);
    CHECK((refused != 0) == (eviction == Eviction::none));
    CHECK((statistics.evicted != 0) == (eviction == Eviction::clock));
    CHECK(map->contains("key99") == (eviction == Eviction::clock));
  }
}

TEST_CASE("scan shows every entry") {
  const auto map = open_map();
  for (int i = 0; i < 1000; ++i) CHECK_FALSE(map->put("key" + std::to_string(i), std::to_string(i)));
  std::set<std::string> seen;
  std::uint64_t cursor = 0;
  do {
    cursor = map->scan(cursor, 10, [&](std::string_view key, const EntryView& entry) {
      seen.emplace(key);
      CHECK("key" + std::string(entry.small()) == key);
    });
  } while (cursor != 0);
  CHECK(seen.size() == 1000);
}

TEST_CASE("sweep erases what has expired") {
  FakeClock clock;
  OffHeapMapOptions options;
  options.clock = &clock;
  const auto map = open_map(options);
  for (int i = 0; i < 1000; ++i) {
    const Expiry expiry = i % 2 == 0 ? Expiry::at(clock.now() + std::chrono::seconds(1)) : Expiry::never();
    CHECK_FALSE(map->put("key" + std::to_string(i), "v", {Condition::always, expiry}));
  }
  CHECK(map->sweep(10'000) == 0);
  clock.advance(std::chrono::seconds(1));
  CHECK(map->sweep(10'000) == 500);
  CHECK(map->statistics().entries == 500);
}
