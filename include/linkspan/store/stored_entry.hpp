// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What OffHeapMap shows of an entry, and what can be asked of it: EntryView, StoredValue, Expiry, PutOptions,
// Change.
// Not for: values of other stores.
// Cost: an EntryView is a few words, made without an allocation; pin() counts one reference for each slice.
// Threads: values. An EntryView is valid only inside the call that it is given to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "linkspan/base/clock.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

namespace detail {
class MapShard;
}

/// An entry in its place.
class EntryView {
 public:
  /// Bytes of the value.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Changes with each change of the value; never one that this key has had before.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] std::optional<TimePoint> expires_at() const noexcept {
    if (expires_at_ == kNever) return std::nullopt;
    return expires_at_;
  }

  /// A large value lies in pages or received blocks and is shared; a small one lies beside its key.
  [[nodiscard]] bool large() const noexcept { return large_ != nullptr; }
  /// The bytes of a small value, until the call is over; asserts that it is one.
  [[nodiscard]] std::string_view small() const noexcept {
    LINKSPAN_ASSERT(!large(), "small() of a value that is large");
    return {small_, size_};
  }
  /// The bytes of a large value, shared and for as long as the chain is kept; asserts that it is one. Throws
  /// std::bad_alloc when the value has more than 4 pieces and there is no memory for a list of them.
  [[nodiscard]] LINKSPAN_API Chain pin() const;
  /// pin(), or a copy of a small value in a block of `allocator` (CopyPlace::store); std::bad_alloc when that
  /// refuses.
  [[nodiscard]] LINKSPAN_API Chain bytes(BlockAllocator& allocator = heap_allocator()) const;

 private:
  friend class detail::MapShard;

  static constexpr TimePoint kNever = TimePoint::max();

  EntryView() noexcept = default;

  const char* small_ = nullptr;
  const StorageRef* large_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t version_ = 0;
  TimePoint expires_at_ = kNever;
};

/// A value that was got. A large one is slices over the map's pages, or over the blocks it was received in,
/// which nobody reuses or changes before the last slice is gone, whatever becomes of the entry and the map.
struct StoredValue {
  Chain bytes;
  std::uint64_t version = 0;
  std::optional<TimePoint> expires_at;
};

/// Until when an entry that is written lives.
class Expiry {
 public:
  [[nodiscard]] static Expiry never() noexcept { return Expiry(TimePoint::max(), false); }
  /// As long as the one that is overwritten; for ever when there is none.
  [[nodiscard]] static Expiry keep() noexcept { return Expiry(TimePoint::max(), true); }
  /// In the time of the map's clock. What has passed makes an entry that is gone at once.
  [[nodiscard]] static Expiry at(TimePoint time) noexcept { return Expiry(time, false); }

  [[nodiscard]] TimePoint of(TimePoint old) const noexcept { return keep_ ? old : time_; }

 private:
  Expiry(TimePoint time, bool keep) noexcept : time_(time), keep_(keep) {}

  TimePoint time_;
  bool keep_;
};

struct PutOptions {
  enum class Condition : std::uint8_t { always, only_absent, only_present };

  Condition condition = Condition::always;
  Expiry expiry = Expiry::never();

  PutOptions() noexcept {}  // not defaulted: gcc 12
  PutOptions(Condition condition_in, Expiry expiry_in) noexcept
      : condition(condition_in), expiry(expiry_in) {}
};

/// What the function given to OffHeapMap::update wants done. It may be called more than once, so that a Chain
/// stays the caller's, outside of the function, until the change is made.
class Change {
 public:
  [[nodiscard]] static Change keep() noexcept { return Change(Kind::keep, Expiry::keep()); }
  [[nodiscard]] static Change erase() noexcept { return Change(Kind::erase, Expiry::keep()); }
  /// Another time to live, the same value and version.
  [[nodiscard]] static Change expire(Expiry expiry) noexcept { return Change(Kind::expire, expiry); }
  /// Copies; `value` is empty afterwards when the update has succeeded.
  [[nodiscard]] static Change put(Chain& value, Expiry expiry = Expiry::keep()) noexcept {
    Change change(Kind::put, expiry);
    change.chain_ = &value;
    return change;
  }
  /// Like that, but keeps the blocks that a large value is in (see OffHeapMap::adopt).
  [[nodiscard]] static Change adopt(Chain& value, Expiry expiry = Expiry::keep()) noexcept {
    Change change = put(value, expiry);
    change.adopts_ = true;
    return change;
  }
  /// `value` is read before update returns, and is not a part of the entry itself.
  [[nodiscard]] static Change put(std::string_view value, Expiry expiry = Expiry::keep()) noexcept {
    Change change(Kind::put, expiry);
    change.text_ = value;
    return change;
  }

 private:
  friend class detail::MapShard;

  enum class Kind : std::uint8_t { keep, erase, expire, put };

  Change(Kind kind, Expiry expiry) noexcept : expiry_(expiry), kind_(kind) {}

  Chain* chain_ = nullptr;
  std::string_view text_;
  Expiry expiry_;
  Kind kind_;
  bool adopts_ = false;
};

}  // namespace linkspan
