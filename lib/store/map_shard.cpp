// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/store/map_shard.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace linkspan::detail {
namespace {

// What the heap adds to an entry that is too large for a slab, about.
constexpr std::size_t kHeapBytes = 16;

// More hold it than entries.
bool held_by_readers(const StorageRef& value) noexcept {
  const auto* large = static_cast<const LargeValue*>(value.get());
  return large != nullptr && value.holders() > large->entries.load(std::memory_order_relaxed);
}

}  // namespace

void DroppedValues::add(StorageRef&& value) noexcept {
  LINKSPAN_ASSERT(count_ < kMost, "as many values are dropped at once as there is room for");
  auto& large = static_cast<LargeValue&>(*value.get());
  large.leave();
  bytes_ += large.charge;
  ::new (static_cast<void*>(memory_ + count_ * sizeof(StorageRef))) StorageRef(std::move(value));
  ++count_;
}

void DroppedValues::clear() noexcept {
  while (count_ != 0) at(--count_).~StorageRef();
  bytes_ = 0;
}

MapShard::MapShard(const MapWorld& world)
    : world_(world), slabs_(*world.space, world.classes), index_(*world.space) {}

MapShard::~MapShard() {
  // The slabs' pages go with the mapping.
  MapIndex::Place place;
  std::size_t steps = index_.capacity();
  DroppedValues dropped;
  static_cast<void>(index_.walk(place, steps, [&](MapSlot& slot) {
    MapEntry* entry = slot.entry();
    const std::size_t bytes = bytes_of(*entry);
    if (is_large(*entry)) {
      dropped.add(std::move(entry->large()));
      entry->large().~StorageRef();
      dropped.clear();
    }
    if (bytes > world_.classes.largest_bytes()) free(entry, bytes);
    return false;
  }));
}

MapSlot* MapShard::find_any(std::uint64_t hash, std::string_view key) const noexcept {
  return index_.find(hash, [&](MapEntry* entry) { return entry->key(is_large(*entry)) == key; });
}

MapSlot* MapShard::find(std::uint64_t hash, std::string_view key, DroppedValues& dropped) noexcept {
  MapSlot* slot = find_any(hash, key);
  if (slot == nullptr || !over(*slot)) return slot;
  erase(hash, slot, dropped);
  ++counts.expired;
  return nullptr;
}

bool MapShard::over(const MapSlot& slot) const noexcept {
  return slot.expires() && slot.entry()->expires_at <= world_.clock.now();
}

std::string_view MapShard::key(const MapSlot& slot) const noexcept {
  return slot.entry()->key(is_large(*slot.entry()));
}

EntryView MapShard::view(const MapSlot& slot) const noexcept {
  MapEntry& entry = *slot.entry();
  EntryView view;
  if (is_large(entry)) {
    view.large_ = &entry.large();
  } else {
    view.small_ = reinterpret_cast<const char*>(entry.small());
  }
  view.size_ = entry.value_size;
  view.version_ = entry.version;
  view.expires_at_ = entry.expires_at;
  return view;
}

MapShard::NewValue MapShard::value(const Change& change) noexcept {
  NewValue value;
  value.text = change.text_;
  value.chain = change.chain_;
  value.size = change.chain_ != nullptr ? change.chain_->size() : change.text_.size();
  return value;
}

void* MapShard::allocate(std::size_t bytes, PutResult& result) noexcept {
  result = PutResult::no_room;
  if (bytes <= world_.classes.largest_bytes()) return slabs_.allocate(world_.classes.class_of(bytes));
  if (!world_.space->reserve(bytes + kHeapBytes)) return nullptr;
  void* memory = ::operator new(bytes, std::nothrow);
  if (memory != nullptr) return memory;
  world_.space->unreserve(bytes + kHeapBytes);
  result = PutResult::no_memory;
  return nullptr;
}

void MapShard::free(void* memory, std::size_t bytes) noexcept {
  if (bytes <= world_.classes.largest_bytes()) {
    slabs_.free(memory);
    return;
  }
  ::operator delete(memory);
  world_.space->unreserve(bytes + kHeapBytes);
}

void MapShard::forget(MapEntry* entry, bool expires, DroppedValues& dropped) noexcept {
  const std::size_t bytes = bytes_of(*entry);
  counts.key_bytes -= entry->key_size;
  counts.value_bytes -= entry->value_size;
  if (expires) --counts.expiring_entries;
  if (is_large(*entry)) {
    dropped.add(std::move(entry->large()));
    entry->large().~StorageRef();
  }
  free(entry, bytes);
}

void MapShard::erase(std::uint64_t hash, MapSlot* slot, DroppedValues& dropped) noexcept {
  forget(slot->entry(), slot->expires(), dropped);
  index_.erase(hash, slot);
}

void MapShard::set_expiry(MapSlot& slot, TimePoint time) noexcept {
  const bool expires = time != MapEntry::kNever;
  if (slot.expires() != expires) counts.expiring_entries += expires ? 1 : std::uint64_t{0} - 1;
  slot.entry()->expires_at = time;
  earliest_ = std::min(earliest_, time);
  seen_earliest_ = std::min(seen_earliest_, time);
  slot.set_expires(expires);
}

bool MapShard::fits_in_place(const MapEntry& entry, std::size_t size) const noexcept {
  if (is_large(entry) || world_.is_large(size)) return false;
  const std::size_t old_bytes = bytes_of(entry);
  const std::size_t bytes = MapEntry::bytes_for(entry.key_size, size, false);
  if (std::max(bytes, old_bytes) > world_.classes.largest_bytes()) return bytes == old_bytes;
  return world_.classes.class_of(bytes) == world_.classes.class_of(old_bytes);
}

void MapShard::write_small(MapEntry& entry, const NewValue& value) noexcept {
  entry.value_size = static_cast<std::uint32_t>(value.size);
  if (value.chain != nullptr) {
    value.chain->copy_to({entry.small(), value.size}, 0, CopyPlace::store);
  } else {
    copy_bytes(entry.small(), value.text.data(), value.size, CopyPlace::store);
  }
}

MapShard::PutResult MapShard::put(std::uint64_t hash, std::string_view key, MapSlot* slot, NewValue& value,
                                  Expiry expiry, DroppedValues& dropped) noexcept {
  const bool large = world_.is_large(value.size);
  const TimePoint expires_at = expiry.of(slot != nullptr ? slot->entry()->expires_at : MapEntry::kNever);
  if (slot != nullptr && fits_in_place(*slot->entry(), value.size)) {
    counts.value_bytes += value.size - slot->entry()->value_size;
    write_small(*slot->entry(), value);
  } else {
    PutResult result = PutResult::no_room;
    const std::size_t bytes = MapEntry::bytes_for(key.size(), value.size, large);
    void* memory = allocate(bytes, result);
    if (memory == nullptr) return result;
    MapEntry* entry = MapEntry::make(memory, key, value.size, large);
    if (slot == nullptr) {
      const auto hash_of = [this](MapEntry* other) { return world_.hash_of(other); };
      const MapIndex::Room room = index_.make_room(hash, hash_of);
      if (room != MapIndex::Room::there) {
        free(memory, bytes);
        return room == MapIndex::Room::no_budget ? PutResult::no_room : PutResult::no_memory;
      }
      slot = index_.insert(hash, MapSlot(entry, hash));
    } else {
      forget(slot->entry(), slot->expires(), dropped);
      slot->set_entry(entry);
      if (slot->expires()) ++counts.expiring_entries;  // set_expiry goes on from there
    }
    counts.key_bytes += key.size();
    counts.value_bytes += value.size;
    if (large) {
      static_cast<LargeValue&>(*value.large.get()).enter();
      entry->large() = std::move(value.large);
    } else {
      write_small(*entry, value);
    }
  }
  slot->entry()->version = ++version_;
  set_expiry(*slot, expires_at);
  if (slot->uses() == 0) slot->set_uses(1);
  ++counts.puts;
  return PutResult::done;
}

MapShard::Evicted MapShard::evict(DroppedValues& dropped, std::size_t steps) noexcept {
  const bool any = world_.options.eviction != Eviction::none;
  if (index_.count() == 0 || (!any && counts.expiring_entries == 0)) return Evicted::none;
  const TimePoint now = counts.expiring_entries != 0 ? world_.clock.now() : TimePoint();
  if (!any && now < earliest_) return Evicted::none;
  const bool whole_turn = steps >= 2 * index_.capacity();
  bool passed = false;  // one that may go once it was passed often enough
  MapSlot* victim = nullptr;
  bool expired = false;
  while (steps != 0 && victim == nullptr) {
    victim = index_.walk(hand_, steps, [&](MapSlot& slot) {
      if (slot.expires()) seen_earliest_ = std::min(seen_earliest_, slot.entry()->expires_at);
      expired = slot.expires() && slot.entry()->expires_at <= now;
      if (expired || !any) return expired;
      if (slot.uses() != 0) {
        slot.set_uses(slot.uses() - 1);
        passed = true;
        return false;
      }
      MapEntry& entry = *slot.entry();
      return !is_large(entry) || !held_by_readers(entry.large());
    });
    if (victim == nullptr && hand_.prefix == 0 && hand_.position == 0) {
      earliest_ = std::exchange(seen_earliest_, MapEntry::kNever);
      if (!any && now < earliest_) return Evicted::none;
    }
  }
  if (victim == nullptr) return passed || !whole_turn ? Evicted::none_yet : Evicted::none;
  erase(world_.hash_of(victim->entry()), victim, dropped);
  ++(expired ? counts.expired : counts.evicted);
  return Evicted::one;
}

bool MapShard::compact() noexcept {
  Slab* slab = slabs_.take_sparse();
  if (slab == nullptr) return false;
  const std::size_t index = slab->index;
  slabs_.for_each(slab, [&](void* memory) {
    auto* entry = static_cast<MapEntry*>(memory);
    MapSlot* slot = index_.find(world_.hash_of(entry), [&](MapEntry* other) { return other == entry; });
    void* to = slabs_.allocate(index);
    LINKSPAN_ASSERT(slot != nullptr && to != nullptr, "entries of a sparse slab fit into the others");
    slot->set_entry(entry->move_to(to, is_large(*entry)));
    slabs_.free(memory);
  });
  return true;
}

std::size_t MapShard::sweep(std::size_t& looks, DroppedValues& dropped) noexcept {
  if (counts.expiring_entries == 0) {
    --looks;
    return 0;
  }
  constexpr std::size_t kSlotsPerLook = 16;  // a slot without a time to live costs that much less
  std::size_t steps = std::max(kSlotsPerLook, looks * kSlotsPerLook);
  std::size_t erased = 0;
  for (;;) {
    const std::size_t before = steps;
    MapSlot* slot = index_.walk(broom_, steps, [&](MapSlot& found) {
      if (!found.expires()) return false;
      steps -= std::min(steps - 1, kSlotsPerLook - 1);  // the walk counts one itself
      return over(found);
    });
    const std::size_t used = (before - steps + kSlotsPerLook - 1) / kSlotsPerLook;
    looks -= std::min(looks, used);
    if (slot == nullptr) return erased;  // once around, or enough
    erase(world_.hash_of(slot->entry()), slot, dropped);
    ++counts.expired;
    ++erased;
    if (looks == 0 || steps == 0 || dropped.full()) return erased;
  }
}

bool MapShard::clear_some(std::size_t most, DroppedValues& dropped) noexcept {
  MapIndex::Place place;
  while (most != 0 && !dropped.full() && index_.count() != 0) {
    std::size_t steps = index_.capacity();
    MapSlot* slot = index_.walk(place, steps, [](MapSlot&) { return true; });
    if (slot == nullptr) continue;  // the end; what was erased has moved others to places passed already
    erase(world_.hash_of(slot->entry()), slot, dropped);
    ++counts.erased;
    --most;
  }
  return index_.count() != 0;
}

bool MapShard::scan(MapIndex::Place& place, std::size_t& seen,
                    function_ref<void(std::string_view, const EntryView&)> f) const {
  return index_.visit_home(place, [&](const MapSlot& slot) {
    ++seen;
    if (!over(slot)) f(key(slot), view(slot));
  });
}

}  // namespace linkspan::detail
