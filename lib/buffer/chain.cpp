// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/chain.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <vector>

namespace linkspan {
namespace {

// Slices are relocated by copying their bytes: the copy takes over the reference and the source is forgotten.
void relocate(Slice* to, const Slice* from, std::size_t count) noexcept {
  std::memcpy(static_cast<void*>(to), from, count * sizeof(Slice));  // tidy: moves handles, not bytes
}

}  // namespace

void Chain::free_ring() noexcept {
  if (capacity_ != kInlineSlices) ::operator delete(slots());
  head_ = 0;
  capacity_ = kInlineSlices;
}

void Chain::release_all() noexcept {
  // One at a time: a release may run a completion that looks at this chain.
  while (count_ != 0) static_cast<void>(pop_front());
  free_ring();
}

void Chain::grow(std::size_t slices) {
  LINKSPAN_ASSERT(slices <= (std::size_t{1} << 31), "a chain holds at most 2^31 slices");
  const auto capacity =
      static_cast<std::uint32_t>(std::bit_ceil(std::max(slices, std::size_t{capacity_} * 2)));
  auto* ring = static_cast<Slice*>(::operator new(capacity * sizeof(Slice)));
  const std::uint32_t first_run = std::min(count_, capacity_ - head_);
  relocate(ring, slots() + head_, first_run);
  relocate(ring + first_run, slots(), count_ - first_run);
  if (capacity_ != kInlineSlices) ::operator delete(slots());
  ::new (static_cast<void*>(memory_)) Slice*(ring);
  head_ = 0;
  capacity_ = capacity;
}

void Chain::prepend(Slice slice) {
  if (slice.empty()) return;
  if (count_ == capacity_) grow(count_ + std::size_t{1});
  bytes_ += slice.size();
  head_ = (head_ - 1) & (capacity_ - 1);
  ++count_;
  ::new (static_cast<void*>(&slot(0))) Slice(std::move(slice));
}

// Moves the first `slices` slices to the end of `to`. Byte totals are the caller's business.
void Chain::relocate_front(std::uint32_t slices, Chain& to) {
  if (to.capacity_ - to.count_ < slices) to.grow(std::size_t{to.count_} + slices);
  while (slices != 0) {
    const std::uint32_t to_index = (to.head_ + to.count_) & (to.capacity_ - 1);
    const std::uint32_t run = std::min({slices, capacity_ - head_, to.capacity_ - to_index});
    relocate(to.slots() + to_index, slots() + head_, run);
    to.count_ += run;
    head_ = (head_ + run) & (capacity_ - 1);
    count_ -= run;
    slices -= run;
  }
}

void Chain::append(Chain&& other) {
  LINKSPAN_ASSERT(this != &other, "a chain cannot be appended to itself");
  if (count_ == 0 && other.capacity_ >= capacity_) {  // a larger ring of its own is kept
    *this = std::move(other);
    return;
  }
  other.relocate_front(other.count_, *this);
  bytes_ += std::exchange(other.bytes_, 0);
  other.free_ring();
}

void Chain::prepend(Chain&& other) {
  other.append(std::move(*this));
  *this = std::move(other);
}

void Chain::append_joined(Slice slice) {
  if (count_ != 0 && slot(count_ - 1).join(slice)) {
    bytes_ += slice.size();
    return;
  }
  append(std::move(slice));
}

bool Chain::prepend_in_place(std::span<const std::byte> bytes) noexcept {
  if (count_ == 0 || !slot(0).prepend_in_place(bytes)) return false;
  bytes_ += bytes.size();
  return true;
}

// The slice that the byte at `offset` is in; behind the last one for offset == size().
Chain::Place Chain::locate(std::size_t offset) const noexcept {
  std::uint32_t index = 0;
  while (index < count_ && offset >= slot(index).size()) offset -= slot(index++).size();
  return {index, offset};
}

// Makes room for `slices` slices in front of the one at `index`; the ring has it already.
void Chain::open_gap(std::uint32_t index, std::uint32_t slices) noexcept {
  count_ += slices;
  for (std::uint32_t i = count_; i-- > index + slices;) relocate(&slot(i), &slot(i - slices), 1);
}

// Closes the room of `slices` slices that have been relocated.
void Chain::close_gap(std::uint32_t index, std::uint32_t slices) noexcept {
  count_ -= slices;
  for (std::uint32_t i = index; i < count_; ++i) relocate(&slot(i), &slot(i + slices), 1);
}

// Makes the byte at `offset` the first of a slice and returns that slice's index. The ring has room for one
// more.
std::uint32_t Chain::cut_at(std::size_t offset) noexcept {
  const Place place = locate(offset);
  if (place.offset == 0) return place.index;
  Slice front = slot(place.index).split_front(place.offset);
  open_gap(place.index, 1);
  ::new (static_cast<void*>(&slot(place.index))) Slice(std::move(front));
  return place.index + 1;
}

void Chain::insert(std::size_t offset, Slice slice) {
  if (!slice.empty()) insert(offset, Chain(std::move(slice)));
}

void Chain::insert(std::size_t offset, Chain&& other) {
  LINKSPAN_ASSERT(this != &other, "a chain cannot be inserted into itself");
  LINKSPAN_ASSERT(offset <= bytes_, "slices are inserted inside the chain or at its end");
  if (offset == bytes_ || other.empty()) {
    append(std::move(other));
    return;
  }
  reserve(std::size_t{count_} + other.count_ + 1);
  const std::uint32_t index = cut_at(offset);
  open_gap(index, other.count_);
  for (std::uint32_t i = 0; i < other.count_; ++i) relocate(&slot(index + i), &other.slot(i), 1);
  bytes_ += std::exchange(other.bytes_, 0);
  other.count_ = 0;
  other.free_ring();
}

Chain Chain::cut(std::size_t offset, std::size_t size) {
  LINKSPAN_ASSERT(offset <= bytes_ && size <= bytes_ - offset, "the bytes to cut out are inside the chain");
  if (offset == 0) return split_front(size);
  Chain taken;
  if (size == 0) return taken;
  reserve(count_ + std::size_t{2});  // may throw: first
  taken.reserve(locate(offset + size).index - locate(offset).index + std::size_t{1});
  const std::uint32_t first = cut_at(offset);
  const std::uint32_t end = cut_at(offset + size);
  for (std::uint32_t i = first; i < end; ++i) relocate(&taken.slot(taken.count_++), &slot(i), 1);
  close_gap(first, end - first);
  taken.bytes_ = size;
  bytes_ -= size;
  return taken;
}

Slice Chain::pop_front() noexcept {
  LINKSPAN_ASSERT(count_ != 0, "pop_front of an empty chain");
  Slice front = std::move(slot(0));
  bytes_ -= front.size();
  head_ = (head_ + 1) & (capacity_ - 1);
  --count_;
  return front;
}

Chain Chain::split_front(std::size_t size) {
  LINKSPAN_ASSERT(size <= bytes_, "a chain is split inside its size");
  Chain front;
  if (size == bytes_) {
    front.take(*this);
    return front;
  }
  std::uint32_t whole = 0;
  std::size_t left = size;
  while (left >= slot(whole).size()) left -= slot(whole++).size();
  if (whole + std::size_t{left != 0} > kInlineSlices) front.grow(whole + std::size_t{1});  // may throw: first
  if (whole != 0) relocate_front(whole, front);
  front.bytes_ = size - left;
  bytes_ -= size;
  if (left != 0) front.append(slot(0).split_front(left));
  return front;
}

void Chain::drop_front(std::size_t size) noexcept {
  LINKSPAN_ASSERT(size <= bytes_, "dropped bytes are inside the chain");
  while (size != 0) {
    if (size < slot(0).size()) {
      slot(0).drop_front(size);
      bytes_ -= size;
      return;
    }
    size -= slot(0).size();
    static_cast<void>(pop_front());
  }
}

void Chain::drop_back(std::size_t size) noexcept {
  LINKSPAN_ASSERT(size <= bytes_, "dropped bytes are inside the chain");
  while (size != 0) {
    Slice& last = slot(count_ - 1);
    if (size < last.size()) {
      last.drop_back(size);
      bytes_ -= size;
      return;
    }
    size -= last.size();
    bytes_ -= last.size();
    --count_;
    const Slice gone = std::move(last);
  }
}

Chain Chain::share(std::size_t offset, std::size_t size) const {
  LINKSPAN_ASSERT(offset <= bytes_ && size <= bytes_ - offset, "a shared part lies inside the chain");
  Chain shared;
  for (std::uint32_t i = 0; size != 0; ++i) {
    const Slice& slice = slot(i);
    if (offset >= slice.size()) {
      offset -= slice.size();
      continue;
    }
    const std::size_t part = std::min(size, slice.size() - offset);
    shared.append(slice.slice(offset, part));
    size -= part;
    offset = 0;
  }
  return shared;
}

Chain::IovecExport Chain::export_part(std::span<iovec> out, std::size_t max_bytes) const noexcept {
  IovecExport exported;
  const auto limit = static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), count_));
  for (std::uint32_t i = 0; i < limit && exported.bytes < max_bytes; ++i) {
    const Slice& slice = slot(i);
    const std::size_t size = std::min(slice.size(), max_bytes - exported.bytes);
    out[i] = {view(slice).iov_base, size};
    exported.bytes += size;
    ++exported.count;
  }
  return exported;
}

void Chain::copy_to(std::span<std::byte> to, std::size_t offset, CopyPlace place) const noexcept {
  LINKSPAN_ASSERT(offset <= bytes_ && to.size() <= bytes_ - offset, "copied bytes are inside the chain");
  for (std::uint32_t i = 0; !to.empty(); ++i) {
    const Slice& slice = slot(i);
    if (offset >= slice.size()) {
      offset -= slice.size();
      continue;
    }
    const std::size_t part = std::min(to.size(), slice.size() - offset);
    copy_bytes(to.data(), slice.data() + offset, part, place);
    to = to.subspan(part);
    offset = 0;
  }
}

std::string Chain::to_string() const {
  std::string text(bytes_, '\0');
  copy_to(std::as_writable_bytes(std::span(text)));
  return text;
}

Slice Chain::flatten(CopyPlace place) const {
  if (count_ == 0) return {};
  if (count_ == 1) return slot(0);
  Block block = heap_allocator().allocate(bytes_);
  if (!block) throw std::bad_alloc();
  copy_to(block.writable().first(bytes_), 0, place);
  return std::move(block).freeze_all(bytes_);
}

namespace {

// How many bytes of each block a chain shows; sorted by block. Immortal memory is not listed.
struct BlockUse {
  const void* block;
  std::size_t capacity;
  std::size_t visible;
};

std::vector<BlockUse> block_uses(const Chain& chain) {
  std::vector<BlockUse> uses;
  for (const Slice& slice : chain) {
    if (slice.block_id() == nullptr) continue;
    if (!uses.empty() && uses.back().block == slice.block_id()) {
      uses.back().visible += slice.size();
    } else {
      uses.push_back({slice.block_id(), slice.pinned_size(), slice.size()});
    }
  }
  std::ranges::sort(uses, {}, &BlockUse::block);
  std::size_t kept = 0;
  for (const BlockUse& use : uses) {
    if (kept != 0 && uses[kept - 1].block == use.block) {
      uses[kept - 1].visible += use.visible;
    } else {
      uses[kept++] = use;
    }
  }
  uses.resize(kept);
  return uses;
}

}  // namespace

std::size_t Chain::pinned_size() const {
  std::size_t bytes = 0;
  for (const BlockUse& use : block_uses(*this)) bytes += use.capacity;
  return bytes;
}

std::size_t Chain::compact(std::size_t max_waste_factor, BlockAllocator& allocator) {
  LINKSPAN_ASSERT(max_waste_factor != 0, "a block shows at most all of its bytes");
  std::vector<BlockUse> wasteful = block_uses(*this);
  std::erase_if(wasteful,
                [&](const BlockUse& use) { return (use.capacity - 1) / max_waste_factor < use.visible; });
  std::size_t to_copy = 0;
  std::size_t to_free = 0;
  for (const BlockUse& use : wasteful) {
    to_copy += use.visible;
    to_free += use.capacity;
  }
  if (to_copy == 0) return 0;
  Chain compacted;
  Chain replaced;  // released last: a completion may use this chain
  compacted.reserve(count_);
  replaced.reserve(count_);
  Block block = allocator.allocate(to_copy);
  if (!block || block.size() >= to_free) return 0;
  const std::size_t freed = to_free - block.size();
  while (!empty()) {
    Slice slice = pop_front();
    if (std::ranges::binary_search(wasteful, slice.block_id(), {}, &BlockUse::block)) {
      copy_bytes(block.data(), slice.data(), slice.size(), CopyPlace::compact);
      compacted.append_joined(block.freeze(slice.size()));
      replaced.append(std::move(slice));
    } else {
      compacted.append(std::move(slice));
    }
  }
  *this = std::move(compacted);
  return freed;
}

bool Chain::starts_with(std::string_view text) const noexcept {
  if (text.size() > bytes_) return false;
  for (std::uint32_t i = 0; !text.empty(); ++i) {
    const std::string_view part = slot(i).view().substr(0, text.size());
    if (!text.starts_with(part)) return false;
    text.remove_prefix(part.size());
  }
  return true;
}

bool operator==(const Chain& a, std::string_view b) noexcept {
  return a.bytes_ == b.size() && a.starts_with(b);
}

bool operator==(const Chain& a, const Chain& b) noexcept {
  if (a.bytes_ != b.bytes_) return false;
  std::string_view left;
  std::string_view right;
  std::uint32_t i = 0;
  std::uint32_t j = 0;
  for (std::size_t rest = a.bytes_; rest != 0;) {
    if (left.empty()) left = a.slot(i++).view();
    if (right.empty()) right = b.slot(j++).view();
    const std::size_t part = std::min(left.size(), right.size());
    if (left.substr(0, part) != right.substr(0, part)) return false;
    left.remove_prefix(part);
    right.remove_prefix(part);
    rest -= part;
  }
  return true;
}

}  // namespace linkspan
