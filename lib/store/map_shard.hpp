// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// MapShard: the part of an OffHeapMap behind one lock: an index, the slabs its entries lie in, and counters.
// Everything but the lock itself needs the lock to be held. Values are never dropped under it, because
// dropping may run a user's function: they are put into a DroppedValues that outlives the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

#include "lib/store/map_entry.hpp"
#include "lib/store/map_index.hpp"
#include "lib/store/page_space.hpp"
#include "lib/store/sip_hash.hpp"
#include "lib/store/slabs.hpp"
#include "linkspan/base/function_ref.hpp"
#include "linkspan/store/off_heap_map.hpp"

namespace linkspan::detail {

/// What all shards of a map have in common.
struct MapWorld {
  OffHeapMapOptions options;
  const Clock& clock;
  SipKey secret;
  std::shared_ptr<PageSpace> space;
  SlabClasses classes;

  [[nodiscard]] bool is_large(std::size_t value_size) const noexcept {
    return value_size != 0 && value_size >= options.large_value_bytes;
  }
  [[nodiscard]] std::uint64_t hash_of(std::string_view key) const noexcept {
    return SipHash::of(key, secret);
  }
  [[nodiscard]] std::uint64_t hash_of(MapEntry* entry) const noexcept {
    return hash_of(entry->key(is_large(entry->value_size)));
  }
};

/// A few references of entries that are gone, dropped at its end.
class DroppedValues {
 public:
  DroppedValues() noexcept {}  // not defaulted: nothing is to be cleared
  DroppedValues(const DroppedValues&) = delete;
  DroppedValues& operator=(const DroppedValues&) = delete;
  ~DroppedValues() { clear(); }

  void add(StorageRef&& value) noexcept;
  /// Only room for the one that a put replaces, and one that has expired.
  [[nodiscard]] bool full() const noexcept { return count_ + 2 >= kMost; }
  /// Of the budget, if nobody else holds them.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  void clear() noexcept;

 private:
  static constexpr std::size_t kMost = 16;

  [[nodiscard]] StorageRef& at(std::size_t index) noexcept {
    return *std::launder(reinterpret_cast<StorageRef*>(memory_ + index * sizeof(StorageRef)));
  }

  alignas(StorageRef) std::byte memory_[kMost * sizeof(StorageRef)];
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

struct MapCounts {
  std::uint64_t expiring_entries = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t value_bytes = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t puts = 0;
  std::uint64_t erased = 0;
  std::uint64_t expired = 0;
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;
};

class alignas(64) MapShard {
 public:
  explicit MapShard(const MapWorld& world);  // throws std::bad_alloc
  ~MapShard();
  MapShard(const MapShard&) = delete;
  MapShard& operator=(const MapShard&) = delete;

  std::mutex mutex;
  MapCounts counts;

  /// The slot of an entry whose time is not over; one whose time is over is erased.
  [[nodiscard]] MapSlot* find(std::uint64_t hash, std::string_view key, DroppedValues& dropped) noexcept;
  /// Eviction remembers it.
  static void use(MapSlot& slot) noexcept {
    if (slot.uses() < MapSlot::kUsesMost) slot.set_uses(slot.uses() + 1);
  }
  [[nodiscard]] EntryView view(const MapSlot& slot) const noexcept;
  [[nodiscard]] std::string_view key(const MapSlot& slot) const noexcept;
  [[nodiscard]] bool over(const MapSlot& slot) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return index_.count(); }
  [[nodiscard]] std::size_t capacity() const noexcept { return index_.capacity(); }

  /// A value to be put: its bytes, or, when it is large, what keeps them.
  struct NewValue {
    std::string_view text;
    const Chain* chain = nullptr;
    StorageRef large;
    std::size_t size = 0;
  };
  enum class PutResult { done, no_room, no_memory };
  /// `slot` is the entry's, nullptr when there is none. Nothing has changed unless it is done.
  [[nodiscard]] PutResult put(std::uint64_t hash, std::string_view key, MapSlot* slot, NewValue& value,
                              Expiry expiry, DroppedValues& dropped) noexcept;
  void erase(std::uint64_t hash, MapSlot* slot, DroppedValues& dropped) noexcept;
  void set_expiry(MapSlot& slot, TimePoint time) noexcept;

  enum class Evicted { one, none_yet, none };
  /// The next entry that may go, of at most `steps` slots; `none`: looking on would find none.
  [[nodiscard]] Evicted evict(DroppedValues& dropped, std::size_t steps) noexcept;
  /// Moves the entries of a sparse slab into others, which gives a page back. False: there is none.
  bool compact() noexcept;
  /// Looks at slots and erases expired entries; how many. `looks` is counted down.
  std::size_t sweep(std::size_t& looks, DroppedValues& dropped) noexcept;
  /// Erases up to `most` entries; false when there are no more.
  bool clear_some(std::size_t most, DroppedValues& dropped) noexcept;
  /// Calls `f` for the entries whose search begins at `place`, which moves on. False: that was the end.
  bool scan(MapIndex::Place& place, std::size_t& seen,
            function_ref<void(std::string_view, const EntryView&)> f) const;

  // The parts of a Change, for the map.
  using Kind = Change::Kind;
  static Kind kind(const Change& change) noexcept { return change.kind_; }
  static Expiry expiry(const Change& change) noexcept { return change.expiry_; }
  static bool adopts(const Change& change) noexcept { return change.adopts_; }
  static Chain* chain(const Change& change) noexcept { return change.chain_; }
  static NewValue value(const Change& change) noexcept;

 private:
  [[nodiscard]] bool is_large(const MapEntry& entry) const noexcept {
    return world_.is_large(entry.value_size);
  }
  [[nodiscard]] std::size_t bytes_of(const MapEntry& entry) const noexcept {
    return MapEntry::bytes_for(entry.key_size, entry.value_size, is_large(entry));
  }
  [[nodiscard]] MapSlot* find_any(std::uint64_t hash, std::string_view key) const noexcept;
  /// nullptr: `result` says why.
  [[nodiscard]] void* allocate(std::size_t bytes, PutResult& result) noexcept;
  void free(void* memory, std::size_t bytes) noexcept;
  void forget(MapEntry* entry, bool expires, DroppedValues& dropped) noexcept;
  [[nodiscard]] bool fits_in_place(const MapEntry& entry, std::size_t size) const noexcept;
  static void write_small(MapEntry& entry, const NewValue& value) noexcept;

  const MapWorld& world_;
  Slabs slabs_;
  MapIndex index_;
  std::uint64_t version_ = 0;
  MapIndex::Place hand_;   // of the eviction
  MapIndex::Place broom_;  // of sweep
  // About no entry's time is over before the first; the second will be that when the hand is around.
  TimePoint earliest_ = MapEntry::kNever;
  TimePoint seen_earliest_ = MapEntry::kNever;
};

}  // namespace linkspan::detail
