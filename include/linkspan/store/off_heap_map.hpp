// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// OffHeapMap: a map from byte strings to byte strings under one byte budget, outside of the heap. Large
// values are read as slices over the memory that they are stored in: never copied, and good for as long as
// the reader keeps them, through overwriting, eviction and the end of the map. Small ones lie beside their
// keys, in size classes, and are copied.
// Not for: data that has to outlive the process; ordered keys.
// Cost: a read of a large value is a look-up under a shard's lock and one reference count for each slice; a
// write copies the value once, outside of the lock. What a reader still holds of an entry that is gone counts
// against the budget.
// Threads: every function, on any thread. Large values are released on the thread that drops the last slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/function_ref.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/store/page_pool.hpp"
#include "linkspan/store/store_error.hpp"
#include "linkspan/store/stored_entry.hpp"

namespace linkspan {

/// What happens when the budget is used up.
enum class Eviction : std::uint8_t {
  none,   ///< writes fail with store_errc::no_room
  clock,  ///< entries that have not been read lately make room
};

struct OffHeapMapOptions {
  std::size_t max_bytes = std::size_t{64} << 20;  ///< keys, values and what keeps them, all together
  std::size_t page_bytes = 4096;                  ///< a power of two; large values take whole pages
  std::size_t max_key_bytes = std::size_t{64} << 10;
  std::size_t max_value_bytes = std::size_t{512} << 20;
  std::size_t large_value_bytes = kReferenceThreshold;  ///< values from here on are shared, not copied out
  unsigned shards = 16;  ///< locks; a power of two up to 1024, about four times the threads that use the map
  HugePages huge_pages = HugePages::transparent;
  Eviction eviction = Eviction::none;
  const Clock* clock = nullptr;  ///< for times to live; has to outlive the map; nullptr: monotonic_clock()

  OffHeapMapOptions() = default;
};

/// Exact when no other thread is inside the map; otherwise each shard is exact for the moment it was looked
/// at.
struct OffHeapMapStatistics {
  std::uint64_t entries = 0;  ///< those that have expired and nobody has noticed included
  std::uint64_t expiring_entries = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t value_bytes = 0;
  std::uint64_t used_bytes = 0;    ///< of max_bytes, pinned_bytes included
  std::uint64_t pinned_bytes = 0;  ///< in no entry: readers hold them, or they were reserved
  std::uint64_t hits = 0;          ///< of get, read and update
  std::uint64_t misses = 0;
  std::uint64_t puts = 0;  ///< values written, in whatever way
  std::uint64_t erased = 0;
  std::uint64_t expired = 0;
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;  ///< for want of room or memory
};

class LINKSPAN_API OffHeapMap {
 public:
  [[nodiscard]] static Result<std::unique_ptr<OffHeapMap>> open(OffHeapMapOptions options = {});
  ~OffHeapMap();
  OffHeapMap(const OffHeapMap&) = delete;
  OffHeapMap& operator=(const OffHeapMap&) = delete;

  /// Nothing when the key is not there or its time is over. A small value is copied to a block of
  /// `allocator`: std::bad_alloc when that refuses.
  [[nodiscard]] std::optional<StoredValue> get(std::string_view key,
                                               BlockAllocator& allocator = heap_allocator());
  /// Calls `f` with a `const EntryView&`, under the lock of a shard: it has to be short and must not use the
  /// map. False, and no call, when there is no such entry. What `f` throws is thrown here.
  template <class F>
  bool read(std::string_view key, F&& f) {
    return visit(key, f, true);
  }
  /// Like read, for looks that are no use of the entry: neither counted nor remembered by eviction.
  template <class F>
  bool peek(std::string_view key, F&& f) const {
    return const_cast<OffHeapMap*>(this)->visit(key, f, false);
  }
  [[nodiscard]] bool contains(std::string_view key) const {
    return peek(key, [](const EntryView&) {});
  }
  [[nodiscard]] std::optional<std::size_t> value_size(std::string_view key) const {
    std::optional<std::size_t> size;
    peek(key, [&size](const EntryView& entry) { size = entry.size(); });
    return size;
  }

  /// Copies `value`, which is empty afterwards unless there was an error.
  std::error_code put(std::string_view key, Chain&& value, PutOptions options = {});
  /// No allocation when a small value overwrites one of about its size.
  std::error_code put(std::string_view key, std::string_view value, PutOptions options = {});
  /// Keeps the blocks that a large value is in, without copying a byte; they count with their whole size, so
  /// a value that shows little of large blocks is better put. A small value is copied. Frozen pages of
  /// reserve(), and what get() has returned, become the value as they are and count once.
  std::error_code adopt(std::string_view key, Chain&& value, PutOptions options = {});
  /// Pages of the map for a value that is received straight into them: `adopt(key,
  /// std::move(pages).freeze(size))` then makes it the value. store_errc::value_too_long, no_room or
  /// out_of_memory.
  [[nodiscard]] Result<Pages, std::error_code> reserve(std::size_t size);
  /// Puts `value` if the entry has `version` still: see EntryView::version.
  std::error_code compare_and_set(std::string_view key, std::uint64_t version, Chain&& value,
                                  Expiry expiry = Expiry::keep());

  /// Reads and changes one entry, in one step: calls `f` with a `const EntryView*`, nullptr when there is no
  /// entry, and makes the Change that it returns. `f` is called under the lock of a shard: it has to be short
  /// and must not use the map. When room for the new value has to be found and the entry changes meanwhile,
  /// `f` is called again, and only its last answer counts. What it throws is thrown here, and nothing has
  /// changed.
  template <class F>
  std::error_code update(std::string_view key, F&& f) {
    return change(key, f);
  }

  /// False when there is no such entry.
  bool erase(std::string_view key);
  /// Sets the time to live; a time that has passed erases. False when there is no such entry.
  bool expire(std::string_view key, TimePoint time);
  /// Takes the time to live away. False when there is no such entry or it had none.
  bool persist(std::string_view key);
  void clear();

  /// Calls `f(std::string_view key, const EntryView&)` for about `max_count` entries, under the lock of a
  /// shard as with read, and returns the cursor to go on with; 0: that was all. Starts with cursor 0. An
  /// entry that is there from the first call to the last is seen at least once, whatever comes and goes
  /// meanwhile; one that comes or goes may be seen or not, and some may be seen twice.
  template <class F>
  [[nodiscard]] std::uint64_t scan(std::uint64_t cursor, std::size_t max_count, F&& f) const {
    return scan_entries(cursor, max_count, f);
  }

  /// Looks at about `max_entries` entries, going on where the last call has ended, and erases those whose
  /// time is over; how many. For a timer: entries that nobody asks for would stay otherwise.
  std::size_t sweep(std::size_t max_entries);

  [[nodiscard]] OffHeapMapStatistics statistics() const;
  [[nodiscard]] const OffHeapMapOptions& options() const noexcept;

 private:
  class Core;

  explicit OffHeapMap(std::unique_ptr<Core> core) noexcept;
  std::error_code put_if(std::string_view key, PutOptions options, function_ref<Change(Expiry)> value);
  bool visit(std::string_view key, function_ref<void(const EntryView&)> f, bool use);
  std::error_code change(std::string_view key, function_ref<Change(const EntryView*)> f);
  std::uint64_t scan_entries(std::uint64_t cursor, std::size_t max_count,
                             function_ref<void(std::string_view, const EntryView&)> f) const;

  std::unique_ptr<Core> core_;
};

}  // namespace linkspan
