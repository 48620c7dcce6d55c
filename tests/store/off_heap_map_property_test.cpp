// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Random calls of an OffHeapMap, each compared with what a std::unordered_map says.
#include <doctest/doctest.h>

#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
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

namespace {

using Condition = PutOptions::Condition;

class Model {
 public:
  Model(unsigned seed, OffHeapMapOptions options) : draw_(seed) {
    options.clock = &clock_;
    map_ = OffHeapMap::open(options).value_or_throw();
  }

  void step() {
    const std::string key = some_key();
    expire_model();
    switch (draw_() % 16) {
      case 0:
      case 1:
      case 2: put(key); break;
      case 3: put_text(key); break;
      case 4: CHECK(map_->erase(key) == (entries_.erase(key) != 0)); break;
      case 5: expire(key); break;
      case 6: persist(key); break;
      case 7: compare_and_set(key); break;
      case 8: update(key); break;
      case 9: clock_.advance(Duration(draw_() % 50)); break;
      case 10: map_->sweep(draw_() % 20); break;
      case 11: keep(key); break;
      case 12: append(key); break;
      default: look(key); break;
    }
    if (draw_() % 4096 == 0) {
      map_->clear();
      entries_.clear();
    }
  }

  void compare_all() {
    expire_model();
    std::unordered_map<std::string, int> seen;
    std::uint64_t cursor = 0;
    do {
      cursor = map_->scan(cursor, 7, [&](std::string_view key, const EntryView& entry) {
        ++seen[std::string(key)];
        const auto found = entries_.find(std::string(key));
        REQUIRE(found != entries_.end());
        CHECK(entry.bytes() == found->second.text);
      });
    } while (cursor != 0);
    CHECK(seen.size() == entries_.size());
    for (const auto& [key, entry] : entries_) look(key);
    for (const auto& [chain, text] : kept_) CHECK(chain == text);
    map_->sweep(1'000'000);
    OffHeapMapStatistics statistics = map_->statistics();
    CHECK(statistics.entries == entries_.size());
    std::size_t key_bytes = 0;
    std::size_t value_bytes = 0;
    std::size_t expiring = 0;
    for (const auto& [key, entry] : entries_) {
      key_bytes += key.size();
      value_bytes += entry.text.size();
      if (entry.expires_at) ++expiring;
    }
    CHECK(statistics.key_bytes == key_bytes);
    CHECK(statistics.value_bytes == value_bytes);
    CHECK(statistics.expiring_entries == expiring);
    CHECK(statistics.used_bytes >= key_bytes + value_bytes);
  }

  // Nothing is left over when everything is gone.
  void finish() {
    kept_.clear();
    map_->clear();
    const OffHeapMapStatistics statistics = map_->statistics();
    CHECK(statistics.entries == 0);
    CHECK(statistics.key_bytes == 0);
    CHECK(statistics.value_bytes == 0);
    CHECK(statistics.expiring_entries == 0);
    CHECK(statistics.pinned_bytes == 0);
    CHECK(statistics.used_bytes <= map_->options().shards * std::size_t{20'000});  // the index
    CHECK(statistics.refused == 0);
    CHECK(statistics.evicted == 0);
  }

 private:
  struct Entry {
    std::string text;
    std::optional<TimePoint> expires_at;
    std::uint64_t version = 0;
  };

  std::string some_key() { return "key" + std::to_string(draw_() % 300 * (draw_() % 2)); }

  std::string some_text() {
    constexpr std::size_t kSizes[] = {0, 10, 64, 100, 1000, 2040, 2048, 3000, 5000, 30'000};
    std::string text(kSizes[draw_() % std::size(kSizes)] + draw_() % 16, '\0');
    const auto seed = draw_();
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(seed + i * i);
    return text;
  }

  PutOptions some_options(const std::string& key, std::error_code& expected) {
    constexpr Condition kConditions[] = {Condition::always, Condition::only_absent, Condition::only_present};
    PutOptions options;
    options.condition = kConditions[draw_() % 3];
    const bool there = entries_.contains(key);
    if (options.condition == Condition::only_absent && there) expected = store_errc::exists;
    if (options.condition == Condition::only_present && !there) expected = store_errc::absent;
    expiry_ = std::nullopt;
    switch (draw_() % 3) {
      case 0: options.expiry = Expiry::keep(); break;
      case 1:
        expiry_ = clock_.now() + Duration(1 + draw_() % 300);
        options.expiry = Expiry::at(*expiry_);
        break;
      default: options.expiry = Expiry::never(); return options;
    }
    if (!expiry_ && there) expiry_ = entries_[key].expires_at;
    return options;
  }

  void put(const std::string& key) {
    std::error_code expected;
    const PutOptions options = some_options(key, expected);
    const std::string text = some_text();
    Chain value = chain_of(text, 1 + draw_() % 4000);
    const bool adopts = draw_() % 2 == 0;
    CHECK((adopts ? map_->adopt(key, std::move(value), options)
                  : map_->put(key, std::move(value), options)) == expected);
    CHECK(value.size() == (expected ? text.size() : 0));
    if (!expected) set(key, text);
  }

  void put_text(const std::string& key) {
    std::error_code expected;
    const PutOptions options = some_options(key, expected);
    const std::string text = some_text();
    CHECK(map_->put(key, text, options) == expected);
    if (!expected) set(key, text);
  }

  void set(const std::string& key, const std::string& text) {
    Entry& entry = entries_[key];
    entry.text = text;
    entry.expires_at = expiry_;
    const std::uint64_t version = version_of(key);
    CHECK(version != 0);
    CHECK(version != entry.version);
    entry.version = version;
  }

  std::uint64_t version_of(const std::string& key) {
    std::uint64_t version = 0;
    map_->peek(key, [&version](const EntryView& entry) { version = entry.version(); });
    return version;
  }

  void expire(const std::string& key) {
    const TimePoint time = clock_.now() + Duration(static_cast<int>(draw_() % 300) - 20);
    CHECK(map_->expire(key, time) == entries_.contains(key));
    if (entries_.contains(key)) entries_[key].expires_at = time;
  }

  void persist(const std::string& key) {
    const bool had = entries_.contains(key) && entries_[key].expires_at;
    CHECK(map_->persist(key) == had);
    if (had) entries_[key].expires_at = std::nullopt;
  }

  void compare_and_set(const std::string& key) {
    const std::string text = some_text();
    const bool there = entries_.contains(key);
    const std::uint64_t version = (there ? entries_[key].version : 1) + (draw_() % 2);
    std::error_code expected;
    if (!there) expected = store_errc::absent;
    if (there && entries_[key].version != version) expected = store_errc::changed;
    CHECK(map_->compare_and_set(key, version, chain_of(text, 700)) == expected);
    if (expected) return;
    expiry_ = entries_[key].expires_at;
    set(key, text);
  }

  void update(const std::string& key) {
    const std::string text = some_text();
    const auto choice = draw_() % 3;
    std::optional<std::string> old;
    CHECK_FALSE(map_->update(key, [&](const EntryView* entry) {
      old = entry != nullptr ? std::optional(entry->bytes().to_string()) : std::nullopt;
      return choice == 0 ? Change::keep() : choice == 1 ? Change::erase() : Change::put(text);
    }));
    CHECK(old.has_value() == entries_.contains(key));
    if (old) CHECK(*old == entries_[key].text);
    if (choice == 1) entries_.erase(key);
    if (choice != 2) return;
    expiry_ = old ? entries_[key].expires_at : std::nullopt;
    set(key, text);
  }

  // As a service would: what there is, shared, and more behind it.
  void append(const std::string& key) {
    const std::string more = some_text();
    Chain value;
    CHECK_FALSE(map_->update(key, [&](const EntryView* entry) {
      value = entry != nullptr ? entry->bytes() : Chain();
      value.append(chain_of(more, 900));
      return draw_() % 2 == 0 ? Change::put(value) : Change::adopt(value);
    }));
    expiry_ = entries_.contains(key) ? entries_[key].expires_at : std::nullopt;
    const std::string text = entries_[key].text + more;
    set(key, text);
    if (text.size() > 100'000) {
      CHECK(map_->erase(key));
      entries_.erase(key);
    }
  }

  void keep(const std::string& key) {
    std::optional<StoredValue> value = map_->get(key);
    CHECK(value.has_value() == entries_.contains(key));
    if (value) kept_.emplace_back(std::move(value->bytes), entries_[key].text);
    if (kept_.size() > 40) {
      std::swap(kept_[draw_() % kept_.size()], kept_.back());
      CHECK(kept_.back().first == kept_.back().second);
      kept_.pop_back();
    }
  }

  void look(const std::string& key) {
    const std::optional<StoredValue> value = map_->get(key);
    const auto found = entries_.find(key);
    REQUIRE(value.has_value() == (found != entries_.end()));
    if (!value) return;
    CHECK(value->bytes == found->second.text);
    CHECK(value->version == found->second.version);
    CHECK(value->expires_at == found->second.expires_at);
    CHECK(map_->value_size(key) == found->second.text.size());
  }

  void expire_model() {
    std::erase_if(entries_, [this](const auto& pair) {
      return pair.second.expires_at && *pair.second.expires_at <= clock_.now();
    });
  }

  std::mt19937 draw_;
  FakeClock clock_;
  std::unique_ptr<OffHeapMap> map_;
  std::unordered_map<std::string, Entry> entries_;
  std::optional<TimePoint> expiry_;
  std::vector<std::pair<Chain, std::string>> kept_;
};

}  // namespace

TEST_CASE("an OffHeapMap does what an unordered_map does") {
  const int steps = kSanitized ? 3000 : 20'000;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    OffHeapMapOptions options;
    options.max_bytes = std::size_t{64} << 20;
    options.shards = seed % 2 == 0 ? 1 : 16;
    if (seed == 3) options.page_bytes = 65'536;
    if (seed == 4) options.large_value_bytes = 0;
    Model model(seed, options);
    for (int i = 0; i < steps; ++i) {
      model.step();
      if (i % 2500 == 0) model.compare_all();
    }
    model.compare_all();
    model.finish();
  }
}
