// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// MapIndex: from hashes to entries, by extendible hashing (Fagin et al., "Extendible Hashing - A Fast Access
// Method for Dynamic Files", 1979). A directory, indexed by the upper bits of the hash, leads to segments of
// 512 slots; the lower bits say where in a segment the search begins. A full segment splits in two: so
// growing never moves more than 512 slots at once, and a walk in the order of the directory misses nothing
// that is there all the time. Nothing is locked here: the caller has a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lib/store/map_entry.hpp"
#include "lib/store/page_space.hpp"
#include "linkspan/base/function_ref.hpp"

namespace linkspan {

/// A slot in 8 bytes: where the entry is, how often it was used lately, and bits of its hash.
class MapSlot {
 public:
  static constexpr unsigned kUsesMost = 3;

  MapSlot() noexcept = default;
  MapSlot(MapEntry* entry, std::uint64_t hash) noexcept
      : bits_(reinterpret_cast<std::uintptr_t>(entry) >> kAlignBits | hash << kHashShift) {}

  [[nodiscard]] bool empty() const noexcept { return bits_ == 0; }
  [[nodiscard]] MapEntry* entry() const noexcept {
    return reinterpret_cast<MapEntry*>((bits_ & kEntryMask) << kAlignBits);
  }
  void set_entry(MapEntry* entry) noexcept {
    bits_ = (bits_ & ~kEntryMask) | reinterpret_cast<std::uintptr_t>(entry) >> kAlignBits;
  }
  /// Where in the segment the search for it begins.
  [[nodiscard]] std::size_t home() const noexcept { return home_of(bits_ >> kHashShift); }
  [[nodiscard]] static std::size_t home_of(std::uint64_t hash) noexcept { return hash & 511; }
  /// The same bits of the hash, as far as they are here.
  [[nodiscard]] bool may_have(std::uint64_t hash) const noexcept {
    return bits_ >> kHashShift == (hash & kHashMask);
  }

  [[nodiscard]] unsigned uses() const noexcept { return static_cast<unsigned>(bits_ >> kUsesShift) & 3; }
  void set_uses(unsigned uses) noexcept {
    bits_ = (bits_ & ~(std::uint64_t{3} << kUsesShift)) | std::uint64_t{uses} << kUsesShift;
  }
  /// The entry has a time to live.
  [[nodiscard]] bool expires() const noexcept { return (bits_ & kExpires) != 0; }
  void set_expires(bool expires) noexcept { bits_ = expires ? bits_ | kExpires : bits_ & ~kExpires; }

 private:
  // From below: 44 bits of the entry's address, which is aligned to 16; 2 of uses; 1 that it expires; 17 of
  // the hash, of which 9 are the home.
  static constexpr unsigned kAlignBits = 4;
  static constexpr unsigned kUsesShift = 44;
  static constexpr unsigned kHashShift = 47;
  static constexpr std::uint64_t kEntryMask = (std::uint64_t{1} << kUsesShift) - 1;
  static constexpr std::uint64_t kExpires = std::uint64_t{1} << 46;
  static constexpr std::uint64_t kHashMask = (std::uint64_t{1} << 17) - 1;

  std::uint64_t bits_ = 0;
};

class MapIndex {
 public:
  /// A place to go on from: the upper 40 bits of the hash where a segment's range begins, of which only the
  /// first 32 are ever set, a position in it, and how many bits its entries shared.
  struct Place {
    std::uint64_t prefix = 0;
    std::size_t position = 0;
    unsigned depth = 0;
  };
  static constexpr std::size_t kSegmentSlots = 512;

  /// `hash_of` recomputes the hash of an entry; both have to outlive the index.
  using HashOf = function_ref<std::uint64_t(MapEntry*)>;

  explicit MapIndex(PageSpace& space) noexcept : space_(space) {}
  ~MapIndex();
  MapIndex(MapIndex&& other) noexcept;
  MapIndex& operator=(MapIndex&&) = delete;

  /// The slot for which `equal` says so, among those with such a hash; nullptr: none.
  template <class Equal>
  [[nodiscard]] MapSlot* find(std::uint64_t hash, Equal&& equal) const {
    if (directory_ == nullptr) return nullptr;
    Segment* segment = directory_[directory_index(hash)];
    for (std::size_t i = MapSlot::home_of(hash); !segment->slots[i].empty(); i = next(i)) {
      if (segment->slots[i].may_have(hash) && equal(segment->slots[i].entry())) return &segment->slots[i];
    }
    return nullptr;
  }

  enum class Room { there, no_budget, no_memory };
  /// Makes that an insert() with this hash succeeds. Slots may move.
  [[nodiscard]] Room make_room(std::uint64_t hash, HashOf hash_of) noexcept;
  /// After make_room, and nothing else in between.
  MapSlot* insert(std::uint64_t hash, MapSlot slot) noexcept;
  /// Slots may move.
  void erase(std::uint64_t hash, MapSlot* slot) noexcept;

  /// Calls `visit(slot)` for slots in the order of their places from `place` on, which moves along, until it
  /// returns true, or `steps` slots were looked at, or the end is reached: then `place` is at the start
  /// again. Returns the slot that `visit` was true for; the next walk begins there.
  template <class Visit>
  MapSlot* walk(Place& place, std::size_t& steps, Visit&& visit) const {
    while (steps != 0) {
      if (directory_ == nullptr) {
        place = {};
        return nullptr;
      }
      Segment* segment = directory_[directory_index(place.prefix << 24)];
      for (; place.position < kSegmentSlots && steps != 0; ++place.position, --steps) {
        MapSlot& slot = segment->slots[place.position];
        if (!slot.empty() && visit(slot)) return &slot;
      }
      if (place.position == kSegmentSlots && !advance(place, *segment)) return nullptr;
    }
    return nullptr;
  }
  /// Calls `visit(slot)` for all slots whose home is `place`, and moves on to the next one. False: that was
  /// the last one, and `place` is at the start again.
  template <class Visit>
  bool visit_home(Place& place, Visit&& visit) const {
    if (directory_ == nullptr) return false;
    Segment* segment = directory_[directory_index(place.prefix << 24)];
    // It has been merged with one that was not visited yet: from the start then.
    if (segment->depth < place.depth) place.position = 0;
    place.depth = segment->depth;
    for (std::size_t i = place.position; !segment->slots[i].empty(); i = next(i)) {
      if (segment->slots[i].home() == place.position) visit(segment->slots[i]);
    }
    return ++place.position < kSegmentSlots || advance(place, *segment);
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// Slots of all segments.
  [[nodiscard]] std::size_t capacity() const noexcept { return segments_ * kSegmentSlots; }

 private:
  static constexpr std::size_t kSplitCount = 448;  // of 512
  static constexpr std::size_t kFullCount = 500;   // when there is no memory to split
  static constexpr std::size_t kMergeCount = 192;  // of two segments together
  static constexpr unsigned kDepthMost = 32;

  struct Segment {
    MapSlot slots[kSegmentSlots];
    std::uint32_t count = 0;
    std::uint32_t depth = 0;  // upper bits of the hash that all its entries share
  };
  static constexpr std::size_t kSegmentBytes = sizeof(Segment) + 16;

  [[nodiscard]] static std::size_t next(std::size_t i) noexcept { return (i + 1) % kSegmentSlots; }
  // Shifting by 64 is undefined: hence in two steps.
  [[nodiscard]] std::size_t directory_index(std::uint64_t hash) const noexcept {
    return static_cast<std::size_t>(hash >> 1 >> (63 - depth_));
  }
  /// To the segment behind; false: there is none, and `place` is at the start.
  bool advance(Place& place, const Segment& segment) const noexcept;
  static void put(Segment& segment, MapSlot slot) noexcept;
  static void remove(Segment& segment, std::size_t at) noexcept;
  [[nodiscard]] Room split(std::uint64_t hash, HashOf hash_of) noexcept;
  [[nodiscard]] Room deepen() noexcept;
  void merge(std::uint64_t hash) noexcept;
  [[nodiscard]] std::size_t directory_bytes() const noexcept { return (sizeof(Segment*) << depth_) + 16; }

  PageSpace& space_;
  std::unique_ptr<Segment*[]> directory_;  // 2^depth_; none: no segment yet
  unsigned depth_ = 0;
  std::size_t count_ = 0;
  std::size_t segments_ = 0;
};

}  // namespace linkspan
