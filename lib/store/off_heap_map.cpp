// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/store/off_heap_map.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

namespace linkspan {

namespace detail {
struct LargeValue {
  Chain bytes;
};
}  // namespace detail

Chain EntryView::pin() const {
  LINKSPAN_ASSERT(large(), "pin() of a value that is small");
  return large_->bytes.share();
}

Chain EntryView::bytes(BlockAllocator& allocator) const {
  if (large()) return pin();
  if (size_ == 0) return {};
  Block block = allocator.allocate(size_);
  if (!block) throw std::bad_alloc();
  copy_bytes(block.data(), small_, size_, CopyPlace::store);
  return Chain(std::move(block).freeze_all(size_));
}

namespace detail {

class MapShard {
 public:
  struct Entry {
    std::string small;
    std::unique_ptr<LargeValue> large;
    std::uint64_t version = 0;
    TimePoint expires_at = TimePoint::max();
    [[nodiscard]] std::size_t size() const { return large ? large->bytes.size() : small.size(); }
  };
  static EntryView view(const Entry& entry) {
    EntryView view;
    view.small_ = entry.small.data();
    view.large_ = entry.large.get();
    view.size_ = entry.size();
    view.version_ = entry.version;
    view.expires_at_ = entry.expires_at;
    return view;
  }
  static std::size_t size(const Change& change) {
    return change.chain_ != nullptr ? change.chain_->size() : change.text_.size();
  }
  static void fill(Entry& entry, const Change& change, std::size_t large_bytes) {
    const std::size_t bytes = size(change);
    if (bytes < large_bytes) {
      std::string small(bytes, '\0');
      if (change.chain_ != nullptr) {
        change.chain_->copy_to(std::as_writable_bytes(std::span(small)), 0, CopyPlace::store);
        change.chain_->clear();
      } else {
        copy_bytes(small.data(), change.text_.data(), bytes, CopyPlace::store);
      }
      entry.small = std::move(small);
      entry.large.reset();
      return;
    }
    auto large = std::make_unique<LargeValue>();
    if (change.chain_ != nullptr && change.adopts_) {
      large->bytes = std::move(*change.chain_);
    } else {
      Block block = heap_allocator().allocate(bytes);
      if (!block) throw std::bad_alloc();
      if (change.chain_ != nullptr) {
        change.chain_->copy_to(block.writable(), 0, CopyPlace::store);
        change.chain_->clear();
      } else {
        copy_bytes(block.data(), change.text_.data(), bytes, CopyPlace::store);
      }
      large->bytes.append(std::move(block).freeze_all(bytes));
    }
    entry.large = std::move(large);
    entry.small.clear();
  }
};

}  // namespace detail

using detail::MapShard;

class OffHeapMap::Core {
 public:
  using Map = std::unordered_map<std::string, MapShard::Entry>;

  explicit Core(OffHeapMapOptions options)
      : options_(options), clock_(options.clock != nullptr ? *options.clock : monotonic_clock()) {}

  Map::iterator find(std::string_view key) {
    const auto found = map_.find(std::string(key));
    if (found == map_.end() || !over(found->second)) return found;
    remove(found);
    ++counts_.expired;
    return map_.end();
  }
  bool over(const MapShard::Entry& entry) const {
    return entry.expires_at != TimePoint::max() && entry.expires_at <= clock_.now();
  }
  void remove(Map::iterator at) {
    used_ -= charge(at->first.size(), at->second.size());
    map_.erase(at);
  }
  static std::size_t charge(std::size_t key, std::size_t value) { return key + value + 64; }

  std::error_code apply(std::string_view key, Map::iterator at, const Change& change) {
    const bool there = at != map_.end();
    const TimePoint old_expiry = there ? at->second.expires_at : TimePoint::max();
    const TimePoint expiry = change.expiry_.of(old_expiry);
    if (change.kind_ == Change::Kind::keep) return {};
    if (change.kind_ == Change::Kind::erase) {
      if (there) {
        remove(at);
        ++counts_.erased;
      }
      return {};
    }
    if (change.kind_ == Change::Kind::expire) {
      if (there) at->second.expires_at = expiry;
      return {};
    }
    const std::size_t size = MapShard::size(change);
    if (key.size() > options_.max_key_bytes) return store_errc::key_too_long;
    if (size > options_.max_value_bytes) return store_errc::value_too_long;
    const std::size_t more = charge(key.size(), size);
    const std::size_t less = there ? charge(key.size(), at->second.size()) : 0;
    while (used_ - less + more > options_.max_bytes) {
      const auto victim =
          std::find_if(map_.begin(), map_.end(), [&](auto& pair) { return pair.first != key; });
      if (options_.eviction == Eviction::none || victim == map_.end()) {
        ++counts_.refused;
        return store_errc::no_room;
      }
      remove(victim);
      ++counts_.evicted;
    }
    try {
      MapShard::Entry entry;
      MapShard::fill(entry, change, options_.large_value_bytes);
      entry.version = ++version_;
      entry.expires_at = expiry;
      if (there) {
        at->second = std::move(entry);
      } else {
        map_.emplace(std::string(key), std::move(entry));
      }
    } catch (const std::bad_alloc&) {
      ++counts_.refused;
      return store_errc::out_of_memory;
    }
    used_ += more - less;
    ++counts_.puts;
    return {};
  }

  OffHeapMapOptions options_;
  const Clock& clock_;
  std::mutex mutex_;
  Map map_;
  std::size_t used_ = 0;
  std::uint64_t version_ = 0;
  OffHeapMapStatistics counts_;
};

Result<std::unique_ptr<OffHeapMap>> OffHeapMap::open(OffHeapMapOptions options) {
  const auto wrong = [](std::string what) { return Error(errc::invalid_argument, std::move(what)); };
  if (!std::has_single_bit(options.shards) || options.shards > 1024) {
    return wrong("shards has to be a power of two from 1 to 1024, and is " + std::to_string(options.shards));
  }
  if (!std::has_single_bit(options.page_bytes) || options.page_bytes < 4096) {
    return wrong("page_bytes has to be a power of two from 4096 on, and is " +
                 std::to_string(options.page_bytes));
  }
  return std::unique_ptr<OffHeapMap>(new OffHeapMap(std::make_shared<Core>(options)));
}

OffHeapMap::OffHeapMap(std::shared_ptr<Core> core) noexcept : core_(std::move(core)) {}
OffHeapMap::~OffHeapMap() = default;

std::optional<StoredValue> OffHeapMap::get(std::string_view key, BlockAllocator& allocator) {
  std::optional<StoredValue> value;
  read(key, [&](const EntryView& entry) {
    value.emplace();
    value->bytes = entry.bytes(allocator);
    value->version = entry.version();
    value->expires_at = entry.expires_at();
  });
  return value;
}

bool OffHeapMap::visit(std::string_view key, function_ref<void(const EntryView&)> f, bool use) {
  const std::lock_guard lock(core_->mutex_);
  const auto found = core_->find(key);
  if (found == core_->map_.end()) {
    if (use) ++core_->counts_.misses;
    return false;
  }
  if (use) ++core_->counts_.hits;
  f(MapShard::view(found->second));
  return true;
}

std::error_code OffHeapMap::change(std::string_view key, function_ref<Change(const EntryView*)> f) {
  const std::lock_guard lock(core_->mutex_);
  const auto found = core_->find(key);
  const bool there = found != core_->map_.end();
  ++(there ? core_->counts_.hits : core_->counts_.misses);
  if (!there) return core_->apply(key, found, f(nullptr));
  const EntryView view = MapShard::view(found->second);
  return core_->apply(key, found, f(&view));
}

namespace {

template <class Make>
std::error_code put_if(OffHeapMap& map, std::string_view key, PutOptions options, Make make) {
  std::error_code refused;
  const std::error_code error = map.update(key, [&](const EntryView* entry) {
    refused = {};
    using Condition = PutOptions::Condition;
    if (options.condition == Condition::only_absent && entry != nullptr) refused = store_errc::exists;
    if (options.condition == Condition::only_present && entry == nullptr) refused = store_errc::absent;
    return refused ? Change::keep() : make(options.expiry);
  });
  return error ? error : refused;
}

}  // namespace

std::error_code OffHeapMap::put(std::string_view key, Chain&& value, PutOptions options) {
  return put_if(*this, key, options, [&](Expiry expiry) { return Change::put(value, expiry); });
}
std::error_code OffHeapMap::put(std::string_view key, std::string_view value, PutOptions options) {
  return put_if(*this, key, options, [&](Expiry expiry) { return Change::put(value, expiry); });
}
std::error_code OffHeapMap::adopt(std::string_view key, Chain&& value, PutOptions options) {
  return put_if(*this, key, options, [&](Expiry expiry) { return Change::adopt(value, expiry); });
}

std::error_code OffHeapMap::compare_and_set(std::string_view key, std::uint64_t version, Chain&& value,
                                            Expiry expiry) {
  std::error_code refused;
  const std::error_code error = update(key, [&](const EntryView* entry) {
    refused = {};
    if (entry == nullptr) {
      refused = store_errc::absent;
    } else if (entry->version() != version) {
      refused = store_errc::changed;
    }
    return refused ? Change::keep() : Change::put(value, expiry);
  });
  return error ? error : refused;
}

bool OffHeapMap::erase(std::string_view key) {
  const std::lock_guard lock(core_->mutex_);
  const auto found = core_->find(key);
  if (found == core_->map_.end()) return false;
  core_->remove(found);
  ++core_->counts_.erased;
  return true;
}

bool OffHeapMap::expire(std::string_view key, TimePoint time) {
  const std::lock_guard lock(core_->mutex_);
  const auto found = core_->find(key);
  if (found == core_->map_.end()) return false;
  found->second.expires_at = time;
  if (core_->over(found->second)) static_cast<void>(core_->find(key));
  return true;
}

bool OffHeapMap::persist(std::string_view key) {
  const std::lock_guard lock(core_->mutex_);
  const auto found = core_->find(key);
  if (found == core_->map_.end() || found->second.expires_at == TimePoint::max()) return false;
  found->second.expires_at = TimePoint::max();
  return true;
}

void OffHeapMap::clear() {
  const std::lock_guard lock(core_->mutex_);
  core_->counts_.erased += core_->map_.size();
  core_->map_.clear();
  core_->used_ = 0;
}

std::uint64_t OffHeapMap::scan_entries(std::uint64_t, std::size_t,
                                       function_ref<void(std::string_view, const EntryView&)> f) const {
  const std::lock_guard lock(core_->mutex_);
  for (const auto& [key, entry] : core_->map_) {
    if (!core_->over(entry)) f(key, MapShard::view(entry));
  }
  return 0;
}

std::size_t OffHeapMap::sweep(std::size_t max_entries) {
  const std::lock_guard lock(core_->mutex_);
  std::size_t erased = 0;
  for (auto at = core_->map_.begin(); at != core_->map_.end() && max_entries-- != 0;) {
    const auto entry = at++;
    if (!core_->over(entry->second)) continue;
    core_->remove(entry);
    ++core_->counts_.expired;
    ++erased;
  }
  return erased;
}

OffHeapMapStatistics OffHeapMap::statistics() const {
  const std::lock_guard lock(core_->mutex_);
  OffHeapMapStatistics counts = core_->counts_;
  counts.entries = core_->map_.size();
  counts.used_bytes = core_->used_;
  for (const auto& [key, entry] : core_->map_) {
    counts.key_bytes += key.size();
    counts.value_bytes += entry.size();
    if (entry.expires_at != TimePoint::max()) ++counts.expiring_entries;
  }
  return counts;
}

const OffHeapMapOptions& OffHeapMap::options() const noexcept {
  return core_->options_;
}

}  // namespace linkspan
