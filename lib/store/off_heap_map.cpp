// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/store/off_heap_map.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <deque>
#include <exception>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <utility>

#include "lib/store/map_shard.hpp"

namespace linkspan {

using detail::DroppedValues;
using detail::MapShard;
using detail::MapWorld;

Chain EntryView::pin() const {
  LINKSPAN_ASSERT(large(), "pin() of a value that is small");
  return detail::slices_of(*large_, size_);
}

Chain EntryView::bytes(BlockAllocator& allocator) const {
  if (large()) return pin();
  if (size_ == 0) return {};
  Block block = allocator.allocate(size_);
  if (!block) throw std::bad_alloc();
  copy_bytes(block.data(), small_, size_, CopyPlace::store);
  return Chain(std::move(block).freeze_all(size_));
}

namespace {

// How many slots are looked at for one that may go, and how many entries are erased, before a lock is let go.
constexpr std::size_t kEvictionSteps = 1024;
constexpr std::size_t kClearedAtOnce = 256;

// What a put may need besides the pages of its value: a page for a slab, a segment of the index.
constexpr std::size_t kIndexBytes = 8192;

}  // namespace

class OffHeapMap::Core {
 public:
  explicit Core(MapWorld&& world) : world_(std::move(world)) {
    for (unsigned i = 0; i < world_.options.shards; ++i) shards_.emplace_back(world_);
  }

  enum class For {
    update,  // counted as a hit or a miss
    check,   // not counted
    put,     // and whatever the entry becomes meanwhile, it is overwritten
  };

  [[nodiscard]] MapShard& shard_of(std::uint64_t hash) noexcept {
    // Other bits than those that the index of a shard goes by.
    return shards_[(hash >> 17) & (world_.options.shards - 1)];
  }

  std::error_code change(std::string_view key, function_ref<Change(const EntryView*)> f, For what);
  [[nodiscard]] StorageRef make_pages(std::size_t size, std::error_code& error) noexcept;
  bool make_room(std::size_t bytes) noexcept;

  MapWorld world_;
  std::deque<MapShard> shards_;
  std::atomic<std::size_t> eviction_turn_{0};
  std::atomic<std::size_t> sweep_turn_{0};

 private:
  [[nodiscard]] StorageRef make_large(const Change& change, std::size_t size,
                                      std::error_code& error) noexcept;
  [[nodiscard]] StorageRef adopt(const Chain& chain, std::error_code& error) noexcept;
  [[nodiscard]] bool reserve(std::size_t bytes) noexcept;
  [[nodiscard]] static std::uint64_t version_of(const MapSlot* slot) noexcept {
    return slot != nullptr ? slot->entry()->version : 0;
  }
  [[nodiscard]] std::optional<MapShard::PutResult> put_again(MapShard& shard, std::uint64_t hash,
                                                             std::string_view key, MapShard::NewValue& value,
                                                             Expiry expiry,
                                                             std::optional<std::uint64_t> version,
                                                             std::unique_lock<std::mutex>& lock,
                                                             DroppedValues& dropped) noexcept;
};

// The budget, evicting what is in the way.
bool OffHeapMap::Core::reserve(std::size_t bytes) noexcept {
  while (!world_.space->reserve(bytes)) {
    if (!make_room(bytes)) return false;
  }
  return true;
}

bool OffHeapMap::Core::make_room(std::size_t bytes) noexcept {
  const PageSpace& space = *world_.space;
  // Nearly everything would have to go, and it would not be enough.
  if (bytes > space.budget_bytes() / 8 * 7) return false;
  // Visits in a row that have found nothing, and that say there is nothing to be found.
  std::size_t fruitless = 0;
  std::size_t barren = 0;
  while (space.available_bytes() < bytes) {
    MapShard& shard = shards_[eviction_turn_.fetch_add(1, std::memory_order_relaxed) % shards_.size()];
    DroppedValues dropped;
    const std::lock_guard lock(shard.mutex);
    bool progress = false;
    MapShard::Evicted last = MapShard::Evicted::one;
    while (!dropped.full() && space.available_bytes() + dropped.bytes() < bytes) {
      last = shard.evict(dropped, kEvictionSteps);
      if (last != MapShard::Evicted::one) break;
      progress = true;
      // Small entries leave slots, of which whole pages have to be made.
      if (dropped.bytes() == 0 && shard.compact()) break;
    }
    if (!progress) progress = shard.compact();
    // Entries that are used a lot are passed a few times before they go.
    const std::size_t fruitless_most = shards_.size() * (4 * shard.capacity() / kEvictionSteps + 8);
    fruitless = progress ? 0 : fruitless + 1;
    barren = progress || last != MapShard::Evicted::none ? 0 : barren + 1;
    if (barren >= shards_.size() || fruitless > fruitless_most) return space.available_bytes() >= bytes;
  }
  return true;
}

StorageRef OffHeapMap::Core::make_pages(std::size_t size, std::error_code& error) noexcept {
  const std::size_t charge = detail::pages_charge(*world_.space, size);
  if (!reserve(charge)) {
    error = store_errc::no_room;
    return {};
  }
  StorageRef value = detail::make_pages_value(world_.space, size, charge);
  if (!value) {
    world_.space->unreserve(charge);
    error = store_errc::out_of_memory;
  }
  return value;
}

// The value that a chain shows all pages of, from the first on, is kept itself.
StorageRef OffHeapMap::Core::adopt(const Chain& chain, std::error_code& error) noexcept {
  try {
    const StorageRef& first = chain.front().storage();
    if (first &&
        (first->released_by(&detail::PagesValue::release_pages) ||
         first->released_by(&detail::AdoptedValue::release_chain)) &&
        static_cast<const detail::LargeValue&>(*first.get()).space == world_.space) {
      const Chain same = detail::slices_of(first, chain.size());
      const bool all = std::equal(
          chain.begin(), chain.end(), same.begin(), same.end(),
          [](const Slice& a, const Slice& b) { return a.data() == b.data() && a.size() == b.size(); });
      if (all) return first;
    }
    const std::size_t charge = chain.pinned_size() + sizeof(detail::AdoptedValue);
    if (!reserve(charge)) {
      error = store_errc::no_room;
      return {};
    }
    detail::LargeValue* value = nullptr;
    try {
      value = new detail::AdoptedValue(world_.space, chain.share(), charge);
    } catch (const std::bad_alloc&) {
      world_.space->unreserve(charge);
      throw;
    }
    return StorageRef(*value);
  } catch (const std::bad_alloc&) {
    error = store_errc::out_of_memory;
    return {};
  }
}

StorageRef OffHeapMap::Core::make_large(const Change& change, std::size_t size,
                                        std::error_code& error) noexcept {
  const MapShard::NewValue value = MapShard::value(change);
  if (MapShard::adopts(change)) return adopt(*value.chain, error);
  Pages pages(make_pages(size, error));
  if (!pages) return {};
  if (value.chain != nullptr) {
    pages.write(0, *value.chain);
  } else {
    pages.write(0, std::as_bytes(std::span(value.text)));
  }
  return std::move(pages.value_);
}

// What shard.put() has had no room for. Under the lock, which is given up when the shard has nothing that it
// can evict itself. Nothing: the entry has not `version` any more.
std::optional<MapShard::PutResult> OffHeapMap::Core::put_again(MapShard& shard, std::uint64_t hash,
                                                               std::string_view key,
                                                               MapShard::NewValue& value, Expiry expiry,
                                                               std::optional<std::uint64_t> version,
                                                               std::unique_lock<std::mutex>& lock,
                                                               DroppedValues& dropped) noexcept {
  for (;;) {
    bool found = !dropped.full() && shard.evict(dropped, kEvictionSteps) == MapShard::Evicted::one;
    found = shard.compact() || found;  // also when there is a slot now: pages must not stay with one class
    if (!found) {
      lock.unlock();
      dropped.clear();
      const bool room =
          make_room(world_.space->page_bytes() + kIndexBytes + key.size() + (value.large ? 0 : value.size));
      lock.lock();
      if (!room) return MapShard::PutResult::no_room;
    }
    MapSlot* slot = shard.find(hash, key, dropped);
    if (version && version_of(slot) != *version) return std::nullopt;
    const MapShard::PutResult result = shard.put(hash, key, slot, value, expiry, dropped);
    if (result != MapShard::PutResult::no_room) return result;
  }
}

std::error_code OffHeapMap::Core::change(std::string_view key, function_ref<Change(const EntryView*)> f,
                                         For what) {
  if (key.size() > world_.options.max_key_bytes) return store_errc::key_too_long;
  const std::uint64_t hash = world_.hash_of(key);
  MapShard& shard = shard_of(hash);
  const auto refuse = [&shard](store_errc code) -> std::error_code {
    ++shard.counts.refused;
    return code;
  };
  for (bool counts = what == For::update;; counts = false) {
    DroppedValues dropped;
    std::unique_lock lock(shard.mutex);
    MapSlot* slot = shard.find(hash, key, dropped);
    if (counts) ++(slot != nullptr ? shard.counts.hits : shard.counts.misses);
    std::optional<EntryView> view;
    if (slot != nullptr) {
      view = shard.view(*slot);
      MapShard::use(*slot);
    }
    const std::optional<std::uint64_t> version =
        what == For::put ? std::nullopt : std::optional(view ? view->version() : 0);
    const Change change = f(view ? &*view : nullptr);
    switch (MapShard::kind(change)) {
      case MapShard::Kind::keep: return {};
      case MapShard::Kind::erase:
        if (slot == nullptr) return {};
        shard.erase(hash, slot, dropped);
        ++shard.counts.erased;
        return {};
      case MapShard::Kind::expire:
        if (slot != nullptr)
          shard.set_expiry(*slot, MapShard::expiry(change).of(view->expires_at().value_or(MapEntry::kNever)));
        return {};
      case MapShard::Kind::put: break;
    }
    MapShard::NewValue value = MapShard::value(change);
    if (value.size > world_.options.max_value_bytes) return store_errc::value_too_long;
    if (world_.is_large(value.size)) {
      lock.unlock();
      dropped.clear();
      std::error_code error;
      value.large = make_large(change, value.size, error);
      lock.lock();
      if (error) {
        ++shard.counts.refused;
        return error;
      }
      slot = shard.find(hash, key, dropped);
      if (version && version_of(slot) != *version) continue;
    }
    const Expiry expiry = MapShard::expiry(change);
    std::optional result = shard.put(hash, key, slot, value, expiry, dropped);
    if (result == MapShard::PutResult::no_room) {
      result = put_again(shard, hash, key, value, expiry, version, lock, dropped);
    }
    if (result == MapShard::PutResult::no_room) return refuse(store_errc::no_room);
    if (result == MapShard::PutResult::no_memory) return refuse(store_errc::out_of_memory);
    if (!result) continue;
    lock.unlock();
    if (MapShard::chain(change) != nullptr) MapShard::chain(change)->clear();
    return {};
  }
}

Result<std::unique_ptr<OffHeapMap>> OffHeapMap::open(OffHeapMapOptions options) {
  const auto wrong = [](std::string what) { return Error(errc::invalid_argument, std::move(what)); };
  if (!std::has_single_bit(options.shards) || options.shards > 1024) {
    return wrong("shards has to be a power of two from 1 to 1024, and is " + std::to_string(options.shards));
  }
  constexpr std::size_t kBytesMost = std::numeric_limits<std::uint32_t>::max() - 1;
  if (options.max_key_bytes > kBytesMost || options.max_value_bytes > kBytesMost) {
    return wrong("max_key_bytes and max_value_bytes can be " + std::to_string(kBytesMost) + " at most");
  }
  // For each shard a segment of the index and a few slabs.
  const std::size_t least = std::size_t{options.shards} * 8 * options.page_bytes;
  if (options.max_bytes < least) {
    return wrong("max_bytes is " + std::to_string(options.max_bytes) + "; " + std::to_string(options.shards) +
                 " shards with pages of " + std::to_string(options.page_bytes) + " bytes need " +
                 std::to_string(least));
  }
  const std::size_t pages = options.page_bytes != 0 ? options.max_bytes / options.page_bytes : 0;
  auto space = PageSpace::open(pages, options.page_bytes, options.max_bytes, options.huge_pages);
  if (!space) return space.error();
  try {
    std::random_device entropy;
    const auto word = [&entropy] { return std::uint64_t{entropy()} << 32 | entropy(); };
    MapWorld world{options, options.clock != nullptr ? *options.clock : monotonic_clock(),
                   SipKey{word(), word()}, std::move(space).value(), SlabClasses(options.page_bytes)};
    return std::unique_ptr<OffHeapMap>(new OffHeapMap(std::make_unique<Core>(std::move(world))));
  } catch (const std::bad_alloc&) {
    return Error(make_error_code(store_errc::out_of_memory), "no memory for the shards of a map");
  } catch (const std::exception& failure) {
    return Error(errc::unavailable, std::string("no random numbers for a map: ") + failure.what());
  }
}

OffHeapMap::OffHeapMap(std::unique_ptr<Core> core) noexcept : core_(std::move(core)) {}
OffHeapMap::~OffHeapMap() = default;

std::optional<StoredValue> OffHeapMap::get(std::string_view key, BlockAllocator& allocator) {
  std::optional<StoredValue> value;
  read(key, [&](const EntryView& entry) {
    Chain bytes = entry.bytes(allocator);
    value.emplace();
    value->bytes = std::move(bytes);
    value->version = entry.version();
    value->expires_at = entry.expires_at();
  });
  return value;
}

bool OffHeapMap::visit(std::string_view key, function_ref<void(const EntryView&)> f, bool use) {
  const std::uint64_t hash = core_->world_.hash_of(key);
  MapShard& shard = core_->shard_of(hash);
  DroppedValues dropped;
  const std::lock_guard lock(shard.mutex);
  MapSlot* slot = shard.find(hash, key, dropped);
  if (use) ++(slot != nullptr ? shard.counts.hits : shard.counts.misses);
  if (slot == nullptr) return false;
  if (use) MapShard::use(*slot);
  f(shard.view(*slot));
  return true;
}

std::error_code OffHeapMap::change(std::string_view key, function_ref<Change(const EntryView*)> f) {
  return core_->change(key, f, Core::For::update);
}

std::error_code OffHeapMap::put_if(std::string_view key, PutOptions options,
                                   function_ref<Change(Expiry)> value) {
  std::error_code refused;
  const auto f = [&](const EntryView* entry) {
    using Condition = PutOptions::Condition;
    refused = {};
    if (options.condition == Condition::only_absent && entry != nullptr) refused = store_errc::exists;
    if (options.condition == Condition::only_present && entry == nullptr) refused = store_errc::absent;
    return refused ? Change::keep() : value(options.expiry);
  };
  const bool always = options.condition == PutOptions::Condition::always;
  const std::error_code error = core_->change(key, f, always ? Core::For::put : Core::For::check);
  return error ? error : refused;
}

std::error_code OffHeapMap::put(std::string_view key, Chain&& value, PutOptions options) {
  const auto put = [&](Expiry expiry) { return Change::put(value, expiry); };
  return put_if(key, options, put);
}

std::error_code OffHeapMap::put(std::string_view key, std::string_view value, PutOptions options) {
  const auto put = [&](Expiry expiry) { return Change::put(value, expiry); };
  return put_if(key, options, put);
}

std::error_code OffHeapMap::adopt(std::string_view key, Chain&& value, PutOptions options) {
  const auto adopt = [&](Expiry expiry) { return Change::adopt(value, expiry); };
  return put_if(key, options, adopt);
}

Result<Pages, std::error_code> OffHeapMap::reserve(std::size_t size) {
  if (size > core_->world_.options.max_value_bytes) return make_error_code(store_errc::value_too_long);
  std::error_code error;
  StorageRef pages = core_->make_pages(size, error);
  if (error) return error;
  return Pages(std::move(pages));
}

std::error_code OffHeapMap::compare_and_set(std::string_view key, std::uint64_t version, Chain&& value,
                                            Expiry expiry) {
  std::error_code refused;
  const auto f = [&](const EntryView* entry) {
    refused = {};
    if (entry == nullptr) {
      refused = store_errc::absent;
    } else if (entry->version() != version) {
      refused = store_errc::changed;
    }
    return refused ? Change::keep() : Change::put(value, expiry);
  };
  const std::error_code error = core_->change(key, f, Core::For::check);
  return error ? error : refused;
}

bool OffHeapMap::erase(std::string_view key) {
  bool there = false;
  const auto f = [&there](const EntryView* entry) {
    there = entry != nullptr;
    return Change::erase();
  };
  return !core_->change(key, f, Core::For::check) && there;
}

bool OffHeapMap::expire(std::string_view key, TimePoint time) {
  bool there = false;
  const auto f = [&](const EntryView* entry) {
    there = entry != nullptr;
    return Change::expire(Expiry::at(time));
  };
  static_cast<void>(core_->change(key, f, Core::For::check));
  if (there && time <= core_->world_.clock.now()) static_cast<void>(contains(key));  // erases it
  return there;
}

bool OffHeapMap::persist(std::string_view key) {
  bool expired_once = false;
  const auto f = [&](const EntryView* entry) {
    expired_once = entry != nullptr && entry->expires_at();
    return Change::expire(Expiry::never());
  };
  static_cast<void>(core_->change(key, f, Core::For::check));
  return expired_once;
}

void OffHeapMap::clear() {
  for (MapShard& shard : core_->shards_) {
    std::size_t left = std::numeric_limits<std::size_t>::max();
    for (bool more = true; more && left != 0;) {
      DroppedValues dropped;
      const std::lock_guard lock(shard.mutex);
      left = std::min(left, shard.size());  // what comes meanwhile may stay
      const std::size_t before = shard.size();
      more = shard.clear_some(std::min(left, kClearedAtOnce), dropped);
      left -= before - shard.size();
    }
  }
}

std::uint64_t OffHeapMap::scan_entries(std::uint64_t cursor, std::size_t max_count,
                                       function_ref<void(std::string_view, const EntryView&)> f) const {
  // From below: 9 bits of the position in a segment, 6 of its depth, 32 of its prefix, then the shard.
  const auto cursor_at = [](std::uint64_t shard, const MapIndex::Place& place) {
    return shard << 47 | place.prefix >> 8 << 15 | std::uint64_t{place.depth} << 9 | place.position;
  };
  constexpr std::size_t kHomesMost = 4096;
  std::uint64_t shard = cursor >> 47;
  MapIndex::Place place{(cursor >> 15 & 0xffffffff) << 8, cursor & (MapIndex::kSegmentSlots - 1),
                        static_cast<unsigned>(cursor >> 9 & 63)};
  std::size_t seen = 0;
  std::size_t homes = 0;
  for (; shard < core_->shards_.size(); ++shard, place = {}) {
    MapShard& visited = core_->shards_[shard];
    const std::lock_guard lock(visited.mutex);
    while (visited.scan(place, seen, f)) {
      if (seen < max_count && ++homes < kHomesMost) continue;
      return cursor_at(shard, place);
    }
    if (++homes >= kHomesMost || seen >= max_count) {
      ++shard;
      return shard < core_->shards_.size() ? cursor_at(shard, {}) : 0;
    }
  }
  return 0;
}

std::size_t OffHeapMap::sweep(std::size_t max_entries) {
  std::size_t erased = 0;
  std::size_t looks = max_entries;
  for (std::size_t visits = 0; looks != 0 && visits < 2 * core_->shards_.size(); ++visits) {
    MapShard& shard = core_->shards_[core_->sweep_turn_.load() % core_->shards_.size()];
    std::size_t part = 0;
    do {
      DroppedValues dropped;
      const std::lock_guard lock(shard.mutex);
      part = shard.sweep(looks, dropped);
      erased += part;
    } while (part != 0 && looks != 0);
    if (looks != 0) core_->sweep_turn_.fetch_add(1);  // this one is through
  }
  return erased;
}

OffHeapMapStatistics OffHeapMap::statistics() const {
  OffHeapMapStatistics sum;
  for (MapShard& shard : core_->shards_) {
    const std::lock_guard lock(shard.mutex);
    sum.entries += shard.size();
    sum.expiring_entries += shard.counts.expiring_entries;
    sum.key_bytes += shard.counts.key_bytes;
    sum.value_bytes += shard.counts.value_bytes;
    sum.hits += shard.counts.hits;
    sum.misses += shard.counts.misses;
    sum.puts += shard.counts.puts;
    sum.erased += shard.counts.erased;
    sum.expired += shard.counts.expired;
    sum.evicted += shard.counts.evicted;
    sum.refused += shard.counts.refused;
  }
  sum.used_bytes = core_->world_.space->used_bytes();
  sum.pinned_bytes = core_->world_.space->pinned_bytes.load(std::memory_order_relaxed);
  return sum;
}

const OffHeapMapOptions& OffHeapMap::options() const noexcept {
  return core_->world_.options;
}

}  // namespace linkspan
