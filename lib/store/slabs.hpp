// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Slabs: small pieces of memory in size classes. A slab is one page, cut into slots of one class behind a
// header; an empty slab gives its page back. The caller has a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "lib/store/page_space.hpp"

namespace linkspan {

/// The classes of a page size: steps of 16 bytes, and above those what divides a page with little left.
class SlabClasses {
 public:
  static constexpr std::size_t kHeaderBytes = 32;

  explicit SlabClasses(std::size_t page_bytes);  // throws std::bad_alloc

  [[nodiscard]] std::size_t largest_bytes() const noexcept { return bytes_.back(); }
  [[nodiscard]] std::size_t count() const noexcept { return bytes_.size(); }
  /// Asserts that bytes <= largest_bytes().
  [[nodiscard]] std::size_t class_of(std::size_t bytes) const noexcept {
    return class_of_[(bytes + kStepBytes - 1) / kStepBytes];
  }
  [[nodiscard]] std::size_t bytes(std::size_t index) const noexcept { return bytes_[index]; }

 private:
  static constexpr std::size_t kStepBytes = 16;

  std::vector<std::uint32_t> bytes_;
  std::vector<std::uint8_t> class_of_;  // by size in steps, rounded up
};

/// At the beginning of the page.
struct Slab {
  Slab* next;
  Slab* previous;
  std::uint32_t index;      // of the class
  std::uint32_t live;       // slots in use
  std::uint32_t fresh;      // slots from here on have never been used
  std::uint32_t free_slot;  // the first of those that have been; kNoSlot
};
static_assert(sizeof(Slab) <= SlabClasses::kHeaderBytes);

/// What a free slot begins with, in the place of an entry: see MapEntry.
struct FreeSlot {
  std::uint64_t next;
  std::uint64_t unused;
  std::uint32_t mark;  // where a MapEntry has its key_size: one that no key has
};

class Slabs {
 public:
  static constexpr std::uint32_t kFreeMark = 0xffffffff;

  /// Both have to outlive it. Throws std::bad_alloc.
  Slabs(PageSpace& space, const SlabClasses& classes);

  /// nullptr: no slot of that class is free, and no page.
  [[nodiscard]] void* allocate(std::size_t index) noexcept;
  void free(void* slot) noexcept;

  [[nodiscard]] std::size_t class_of(const void* slot) const noexcept { return slab_of(slot)->index; }

  /// A slab whose slots in use would fit into the other slabs of its class; it is out of the way of
  /// allocate() until its last slot is freed. nullptr: there is none.
  [[nodiscard]] Slab* take_sparse() noexcept;
  /// Calls `f(void* slot)` for each slot in use; `f` may free it.
  template <class F>
  void for_each(Slab* slab, F&& f) {
    const std::size_t bytes = classes_.bytes(slab->index);
    const std::uint32_t used = slab->fresh;
    std::uint32_t left = slab->live;
    for (std::uint32_t i = 0; i < used && left != 0; ++i) {
      auto* slot = reinterpret_cast<std::byte*>(slab) + SlabClasses::kHeaderBytes + i * bytes;
      if (is_free(slot)) continue;
      --left;
      f(static_cast<void*>(slot));
    }
  }

 private:
  static constexpr std::uint32_t kNoSlot = 0xffffffff;

  struct Class {
    Slab* partial = nullptr;     // slabs with free slots
    std::size_t free_slots = 0;  // in those
    std::uint32_t slots = 0;     // of a slab
    std::uint32_t slot_bytes = 0;
  };

  // Both what a slot may hold have a number there.
  [[nodiscard]] static bool is_free(const void* slot) noexcept {
    const auto* mark = static_cast<const std::byte*>(slot) + offsetof(FreeSlot, mark);
    return *std::launder(reinterpret_cast<const std::uint32_t*>(mark)) == kFreeMark;
  }
  [[nodiscard]] Slab* slab_of(const void* slot) const noexcept {
    return reinterpret_cast<Slab*>(space_.page_of(slot));
  }
  [[nodiscard]] Slab* new_slab(std::size_t index) noexcept;
  static void link(Class& of, Slab* slab) noexcept;
  static void unlink(Class& of, Slab* slab) noexcept;

  PageSpace& space_;
  const SlabClasses& classes_;
  std::vector<Class> by_class_;
  std::size_t hint_;
};

}  // namespace linkspan
