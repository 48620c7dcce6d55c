// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Chain: an ordered list of Slices, the unit in which Linkspan moves data. Appending, splitting and dropping
// move references; no byte is copied unless a function says so in its name. A Chain holds no empty slices,
// never coalesces behind the caller's back, and knows its size.
// Not for: random access by byte (Cursor reads across slices; flatten() makes one slice of it).
// Cost: 120 bytes with 4 slices inline, then a growing ring of 24 bytes a slice; a move is a plain copy of
// those 120 bytes, so functions take Chain&&. Growing the ring throws std::bad_alloc when memory is out.
// Threads: a value, for one thread at a time.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/slice.hpp"

namespace linkspan {

class LINKSPAN_BUFFER_ABI Chain {
 public:
  class Iterator;

  Chain() noexcept {}  // not defaulted: `Chain()` would clear the inline slots for nothing
  explicit Chain(Slice slice) { append(std::move(slice)); }
  Chain(Chain&& other) noexcept { take(other); }
  Chain& operator=(Chain&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  Chain(const Chain&) = delete;  // share() says that it costs
  Chain& operator=(const Chain&) = delete;
  ~Chain() { clear(); }

  /// Bytes in all slices.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t slice_count() const noexcept { return count_; }

  [[nodiscard]] const Slice& operator[](std::size_t index) const noexcept {
    LINKSPAN_ASSERT(index < count_, "an index is below slice_count()");
    return slot(static_cast<std::uint32_t>(index));
  }
  [[nodiscard]] const Slice& front() const noexcept { return (*this)[0]; }
  [[nodiscard]] const Slice& back() const noexcept { return (*this)[count_ - std::size_t{1}]; }
  [[nodiscard]] inline Iterator begin() const noexcept;
  [[nodiscard]] inline Iterator end() const noexcept;

  /// Empty slices are dropped.
  void append(Slice slice) {
    if (slice.empty()) return;
    if (count_ == capacity_) grow(count_ + 1);
    bytes_ += slice.size();
    ::new (static_cast<void*>(&slot(count_))) Slice(std::move(slice));
    ++count_;
  }
  LINKSPAN_API void prepend(Slice slice);
  /// Moves all slices of `other` to the end; steals its ring when this chain is empty and has
  /// none that is larger.
  LINKSPAN_API void append(Chain&& other);
  LINKSPAN_API void prepend(Chain&& other);

  /// Like append, but a slice that continues the last one in the same block extends it instead.
  LINKSPAN_API void append_joined(Slice slice);

  /// Puts `bytes` into the headroom of the first slice (see Slice::prepend_in_place). False, and nothing is
  /// written, when it has too little or is shared.
  [[nodiscard]] LINKSPAN_API bool prepend_in_place(std::span<const std::byte> bytes) noexcept;

  /// Puts slices in front of the byte at `offset`; asserts offset <= size(). At most one slice is cut in two.
  LINKSPAN_API void insert(std::size_t offset, Slice slice);
  LINKSPAN_API void insert(std::size_t offset, Chain&& other);
  /// Takes out and returns `size` bytes from `offset` on; asserts that they are there.
  [[nodiscard]] LINKSPAN_API Chain cut(std::size_t offset, std::size_t size);

  [[nodiscard]] LINKSPAN_API Slice pop_front() noexcept;

  /// Cuts off and returns the first `size` bytes; asserts size <= size(). At most one slice is shared.
  [[nodiscard]] LINKSPAN_API Chain split_front(std::size_t size);
  /// Releases the first (last) `size` bytes; asserts size <= size().
  LINKSPAN_API void drop_front(std::size_t size) noexcept;
  LINKSPAN_API void drop_back(std::size_t size) noexcept;
  void clear() noexcept {
    if (count_ != 0 || capacity_ != kInlineSlices) release_all();
  }

  /// A second chain over the same memory: of everything, or of `size` bytes from `offset` on.
  [[nodiscard]] Chain share() const { return share(0, bytes_); }
  [[nodiscard]] LINKSPAN_API Chain share(std::size_t offset, std::size_t size) const;

  struct IovecExport {
    std::size_t count = 0;  ///< entries filled
    std::size_t bytes = 0;  ///< what they cover
  };
  /// Fills `out` with the first slices, at most `max_bytes` in all (the last entry is cut). The slices stay
  /// here and have to outlive the use of the entries.
  IovecExport export_iovec(std::span<iovec> out,
                           std::size_t max_bytes = std::numeric_limits<std::size_t>::max()) const noexcept {
    if (out.size() < count_ || max_bytes < bytes_ || capacity_ - head_ < count_) {
      return export_part(out, max_bytes);  // a part, or a ring that wraps
    }
    const Slice* slice = slots() + head_;
    iovec* const end = out.data() + count_;
    for (iovec* to = out.data(); to != end; ++to, ++slice) *to = view(*slice);
    return {count_, bytes_};
  }

  /// Copies `to.size()` bytes from `offset` on; asserts that they are there.
  LINKSPAN_API void copy_to(std::span<std::byte> to, std::size_t offset = 0,
                            CopyPlace place = CopyPlace::user) const noexcept;
  [[nodiscard]] LINKSPAN_API std::string to_string() const;
  /// One slice with all bytes: shares when there is one already, otherwise copies. Throws std::bad_alloc.
  [[nodiscard]] LINKSPAN_API Slice flatten(CopyPlace place = CopyPlace::user) const;

  /// Bytes of all blocks that this chain keeps alive, each counted once. Much more than size(): a few bytes
  /// pin large blocks. Throws std::bad_alloc.
  [[nodiscard]] LINKSPAN_API std::size_t pinned_size() const;
  /// Copies (CopyPlace::compact) what pins too much into blocks that fit: the bytes of every block of which
  /// this chain shows less than one part in `max_waste_factor`. Returns by how much pinned_size() has shrunk;
  /// a block that others hold too stays alive all the same. What `allocator` refuses stays as it is. Throws
  /// std::bad_alloc, and then has changed nothing.
  LINKSPAN_API std::size_t compact(std::size_t max_waste_factor = 4,
                                   BlockAllocator& allocator = heap_allocator());

  [[nodiscard]] LINKSPAN_API bool starts_with(std::string_view text) const noexcept;
  friend LINKSPAN_API bool operator==(const Chain& a, const Chain& b) noexcept;
  friend LINKSPAN_API bool operator==(const Chain& a, std::string_view b) noexcept;

  class Iterator {
   public:
    using value_type = Slice;
    using difference_type = std::ptrdiff_t;

    Iterator() noexcept = default;
    Iterator(const Slice* slots, std::uint32_t index, std::uint32_t mask) noexcept
        : slots_(slots), index_(index), mask_(mask) {}
    const Slice& operator*() const noexcept { return slots_[index_ & mask_]; }
    const Slice* operator->() const noexcept { return &slots_[index_ & mask_]; }
    Iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    Iterator operator++(int) noexcept { return {slots_, index_++, mask_}; }
    friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.index_ == b.index_; }

   private:
    const Slice* slots_ = nullptr;
    std::uint32_t index_ = 0;  // counts on past the end of the ring
    std::uint32_t mask_ = 0;
  };

 private:
  static constexpr std::uint32_t kInlineSlices = 4;

  // Invariants: capacity_ is a power of two; slices head_ .. head_ + count_ - 1 (modulo capacity_) are alive,
  // none is empty, and bytes_ is the sum of their sizes. With capacity_ == kInlineSlices the slots are in
  // memory_, otherwise memory_ starts with a pointer to them. There is no pointer into the chain itself, so
  // moving copies its bytes.
  [[nodiscard]] Slice* slots() const noexcept {
    if (capacity_ == kInlineSlices) {
      return std::launder(reinterpret_cast<Slice*>(const_cast<std::byte*>(memory_)));
    }
    return *std::launder(reinterpret_cast<Slice* const*>(memory_));
  }
  [[nodiscard]] Slice& slot(std::uint32_t index) const noexcept {
    return slots()[(head_ + index) & (capacity_ - 1)];
  }
  static iovec view(const Slice& slice) noexcept {
    return {const_cast<std::byte*>(slice.data()), slice.size()};
  }
  LINKSPAN_API void grow(std::size_t slices);
  void reserve(std::size_t slices) {
    if (slices > capacity_) grow(slices);
  }
  struct Place {
    std::uint32_t index;  // of the slice
    std::size_t offset;   // in that slice
  };
  [[nodiscard]] Place locate(std::size_t offset) const noexcept;
  [[nodiscard]] std::uint32_t cut_at(std::size_t offset) noexcept;
  void open_gap(std::uint32_t index, std::uint32_t slices) noexcept;
  void close_gap(std::uint32_t index, std::uint32_t slices) noexcept;
  LINKSPAN_API void relocate_front(std::uint32_t slices, Chain& to);
  LINKSPAN_API void free_ring() noexcept;
  LINKSPAN_API void release_all() noexcept;
  LINKSPAN_API IovecExport export_part(std::span<iovec> out, std::size_t max_bytes) const noexcept;
  void take(Chain& other) noexcept {
    if (other.count_ != 0 || other.capacity_ != kInlineSlices) {
      std::memcpy(memory_, other.memory_, sizeof(memory_));  // tidy: moves handles, not bytes
    }
    bytes_ = std::exchange(other.bytes_, 0);
    head_ = std::exchange(other.head_, 0);
    count_ = std::exchange(other.count_, 0);
    capacity_ = std::exchange(other.capacity_, kInlineSlices);
  }

  alignas(Slice) std::byte memory_[kInlineSlices * sizeof(Slice)];
  std::size_t bytes_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t capacity_ = kInlineSlices;
};

static_assert(sizeof(Chain) == (kBufferDebug ? 184 : 120));

inline Chain::Iterator Chain::begin() const noexcept {
  return {slots(), head_, capacity_ - 1};
}
inline Chain::Iterator Chain::end() const noexcept {
  return {slots(), head_ + count_, capacity_ - 1};
}

}  // namespace linkspan
