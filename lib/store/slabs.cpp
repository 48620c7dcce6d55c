// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/store/slabs.hpp"

#include <algorithm>
#include <new>

namespace linkspan {

SlabClasses::SlabClasses(std::size_t page_bytes) {
  constexpr std::size_t kFineBytes = 512;  // up to here a class for each step
  const std::size_t room = page_bytes - kHeaderBytes;
  for (std::size_t bytes = 32; bytes <= kFineBytes; bytes += kStepBytes) {
    bytes_.push_back(static_cast<std::uint32_t>(bytes));
  }
  for (std::size_t slots = room / kFineBytes; slots != 0; --slots) {
    const std::size_t bytes = room / slots / kStepBytes * kStepBytes;
    if (bytes > bytes_.back() + bytes_.back() / 16) bytes_.push_back(static_cast<std::uint32_t>(bytes));
  }
  if (bytes_.back() != room / kStepBytes * kStepBytes) {
    bytes_.push_back(static_cast<std::uint32_t>(room / kStepBytes * kStepBytes));
  }
  class_of_.resize(bytes_.back() / kStepBytes + 1);
  for (std::size_t step = 0, index = 0; step < class_of_.size(); ++step) {
    while (bytes_[index] < step * kStepBytes) ++index;
    class_of_[step] = static_cast<std::uint8_t>(index);
  }
}

Slabs::Slabs(PageSpace& space, const SlabClasses& classes)
    : space_(space), classes_(classes), by_class_(classes.count()), hint_(space.pages()) {
  for (std::size_t i = 0; i < by_class_.size(); ++i) {
    by_class_[i].slot_bytes = static_cast<std::uint32_t>(classes.bytes(i));
    by_class_[i].slots =
        static_cast<std::uint32_t>((space.page_bytes() - SlabClasses::kHeaderBytes) / classes.bytes(i));
  }
}

void Slabs::link(Class& of, Slab* slab) noexcept {
  slab->previous = nullptr;
  slab->next = of.partial;
  if (slab->next != nullptr) slab->next->previous = slab;
  of.partial = slab;
  of.free_slots += of.slots - slab->live;
}

void Slabs::unlink(Class& of, Slab* slab) noexcept {
  (slab->previous != nullptr ? slab->previous->next : of.partial) = slab->next;
  if (slab->next != nullptr) slab->next->previous = slab->previous;
  of.free_slots -= of.slots - slab->live;
}

Slab* Slabs::new_slab(std::size_t index) noexcept {
  if (!space_.reserve(space_.page_bytes())) return nullptr;
  std::byte* page = space_.take_one(hint_);
  if (page == nullptr) {
    space_.unreserve(space_.page_bytes());
    return nullptr;
  }
  auto* slab = ::new (static_cast<void*>(page))
      Slab{nullptr, nullptr, static_cast<std::uint32_t>(index), 0, 0, kNoSlot};
  link(by_class_[index], slab);
  return slab;
}

void* Slabs::allocate(std::size_t index) noexcept {
  Class& of = by_class_[index];
  Slab* slab = of.partial != nullptr ? of.partial : new_slab(index);
  if (slab == nullptr) return nullptr;
  const std::uint32_t number = slab->free_slot != kNoSlot ? slab->free_slot : slab->fresh++;
  std::byte* slot =
      reinterpret_cast<std::byte*>(slab) + SlabClasses::kHeaderBytes + std::size_t{number} * of.slot_bytes;
  if (slab->free_slot != kNoSlot) {
    slab->free_slot = static_cast<std::uint32_t>(reinterpret_cast<const FreeSlot*>(slot)->next);
  }
  ++slab->live;
  --of.free_slots;
  if (slab->live == of.slots) unlink(of, slab);
  return slot;
}

void Slabs::free(void* slot) noexcept {
  Slab* slab = slab_of(slot);
  Class& of = by_class_[slab->index];
  LINKSPAN_ASSERT(slab->live != 0 && static_cast<FreeSlot*>(slot)->mark != kFreeMark, "a slot is freed once");
  const auto offset =
      static_cast<std::size_t>(static_cast<std::byte*>(slot) - reinterpret_cast<std::byte*>(slab)) -
      SlabClasses::kHeaderBytes;
  ::new (slot) FreeSlot{slab->free_slot, 0, kFreeMark};
  slab->free_slot = static_cast<std::uint32_t>(offset / of.slot_bytes);
  const bool aside = slab->previous == slab;  // see take_sparse
  if (slab->live-- == of.slots && !aside) {
    link(of, slab);
  } else if (!aside) {
    ++of.free_slots;
  }
  if (slab->live != 0) return;
  if (!aside) unlink(of, slab);
  space_.give_back_one(reinterpret_cast<std::byte*>(slab));
  space_.unreserve(space_.page_bytes());
}

Slab* Slabs::take_sparse() noexcept {
  constexpr int kLooks = 8;
  for (Class& of : by_class_) {
    if (of.free_slots < of.slots) continue;  // cannot free a page
    Slab* sparsest = of.partial;
    int looks = 0;
    for (Slab* slab = of.partial; slab != nullptr && looks < kLooks; slab = slab->next, ++looks) {
      if (slab->live < sparsest->live) sparsest = slab;
    }
    if (of.free_slots - (of.slots - sparsest->live) < sparsest->live) continue;
    unlink(of, sparsest);
    sparsest->previous = sparsest;  // in no list
    return sparsest;
  }
  return nullptr;
}

}  // namespace linkspan
