// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/store/map_index.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace linkspan {

MapIndex::~MapIndex() {
  if (directory_ == nullptr) return;
  const std::size_t entries = std::size_t{1} << depth_;
  for (std::size_t i = 0; i < entries;) {
    Segment* segment = directory_[i];
    i += std::size_t{1} << (depth_ - segment->depth);
    delete segment;
  }
  space_.unreserve(segments_ * kSegmentBytes + directory_bytes());
}

MapIndex::MapIndex(MapIndex&& other) noexcept
    : space_(other.space_),
      directory_(std::move(other.directory_)),
      depth_(std::exchange(other.depth_, 0)),
      count_(std::exchange(other.count_, 0)),
      segments_(std::exchange(other.segments_, 0)) {}

bool MapIndex::advance(Place& place, const Segment& segment) const noexcept {
  // Also when the segment has been merged with the one in front of it meanwhile.
  const std::uint64_t range = std::uint64_t{1} << (40 - segment.depth);
  place.prefix = place.prefix / range * range + range;
  place.position = 0;
  place.depth = 0;
  if (place.prefix >> 40 == 0) return true;
  place.prefix = 0;
  return false;
}

void MapIndex::put(Segment& segment, MapSlot slot) noexcept {
  std::size_t i = slot.home();
  while (!segment.slots[i].empty()) i = next(i);
  segment.slots[i] = slot;
  ++segment.count;
}

// What follows in the row moves up, so that every search from a home finds no gap.
void MapIndex::remove(Segment& segment, std::size_t at) noexcept {
  for (std::size_t i = next(at); !segment.slots[i].empty(); i = next(i)) {
    const std::size_t from_home = (i - segment.slots[i].home()) % kSegmentSlots;
    if (from_home < (i - at) % kSegmentSlots) continue;
    segment.slots[at] = segment.slots[i];
    at = i;
  }
  segment.slots[at] = MapSlot();
  --segment.count;
}

MapIndex::Room MapIndex::deepen() noexcept {
  const std::size_t entries = std::size_t{1} << depth_;
  const std::size_t more = sizeof(Segment*) * entries;
  if (!space_.reserve(more)) return Room::no_budget;
  auto* deeper = new (std::nothrow) Segment*[entries * 2];
  if (deeper == nullptr) {
    space_.unreserve(more);
    return Room::no_memory;
  }
  for (std::size_t i = 0; i < entries; ++i) deeper[2 * i] = deeper[2 * i + 1] = directory_[i];
  directory_.reset(deeper);
  ++depth_;
  return Room::there;
}

MapIndex::Room MapIndex::split(std::uint64_t hash, HashOf hash_of) noexcept {
  Segment* segment = directory_[directory_index(hash)];
  if (segment->depth == kDepthMost) return Room::no_memory;
  if (segment->depth == depth_) {
    if (const Room room = deepen(); room != Room::there) return room;
  }
  if (!space_.reserve(kSegmentBytes)) return Room::no_budget;
  auto* upper = new (std::nothrow) Segment;
  if (upper == nullptr) {
    space_.unreserve(kSegmentBytes);
    return Room::no_memory;
  }
  const Segment before = *segment;
  std::fill(std::begin(segment->slots), std::end(segment->slots), MapSlot());
  segment->count = 0;
  const std::uint64_t bit = std::uint64_t{1} << (63 - segment->depth);
  upper->depth = ++segment->depth;
  for (const MapSlot& slot : before.slots) {
    if (slot.empty()) continue;
    put((hash_of(slot.entry()) & bit) != 0 ? *upper : *segment, slot);
  }
  ++segments_;
  const std::size_t range = std::size_t{1} << (depth_ - segment->depth);
  const std::size_t first = directory_index(hash) / (2 * range) * (2 * range) + range;
  std::fill_n(directory_.get() + first, range, upper);
  return Room::there;
}

MapIndex::Room MapIndex::make_room(std::uint64_t hash, HashOf hash_of) noexcept {
  if (directory_ == nullptr) {
    const std::size_t bytes = kSegmentBytes + directory_bytes();
    if (!space_.reserve(bytes)) return Room::no_budget;
    directory_.reset(new (std::nothrow) Segment*[1]);
    auto* segment = directory_ != nullptr ? new (std::nothrow) Segment : nullptr;
    if (segment == nullptr) {
      directory_.reset();
      space_.unreserve(bytes);
      return Room::no_memory;
    }
    directory_[0] = segment;
    segments_ = 1;
  }
  while (directory_[directory_index(hash)]->count >= kSplitCount) {
    const Room room = split(hash, hash_of);
    if (room == Room::there) continue;
    return directory_[directory_index(hash)]->count < kFullCount ? Room::there : room;
  }
  return Room::there;
}

MapSlot* MapIndex::insert(std::uint64_t hash, MapSlot slot) noexcept {
  Segment& segment = *directory_[directory_index(hash)];
  LINKSPAN_ASSERT(segment.count < kSegmentSlots - 1, "room is made before an insert");
  std::size_t i = slot.home();
  while (!segment.slots[i].empty()) i = next(i);
  segment.slots[i] = slot;
  ++segment.count;
  ++count_;
  return &segment.slots[i];
}

void MapIndex::erase(std::uint64_t hash, MapSlot* slot) noexcept {
  Segment& segment = *directory_[directory_index(hash)];
  remove(segment, static_cast<std::size_t>(slot - segment.slots));
  --count_;
  if (segment.count < kMergeCount / 2 && segment.depth != 0) merge(hash);
}

// With the other half of what was one segment once; the directory stays as it is.
void MapIndex::merge(std::uint64_t hash) noexcept {
  Segment* segment = directory_[directory_index(hash)];
  Segment* other = directory_[directory_index(hash ^ std::uint64_t{1} << (64 - segment->depth))];
  if (other->depth != segment->depth || other->count + segment->count > kMergeCount) return;
  for (const MapSlot& slot : other->slots) {
    if (!slot.empty()) put(*segment, slot);
  }
  const std::size_t range = std::size_t{1} << (depth_ - segment->depth);
  --segment->depth;
  const std::size_t first = directory_index(hash) / (2 * range) * (2 * range);
  std::fill_n(directory_.get() + first, 2 * range, segment);
  delete other;
  --segments_;
  space_.unreserve(kSegmentBytes);
}

}  // namespace linkspan
