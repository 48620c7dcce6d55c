// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/attributes.hpp"

#include <atomic>

#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

std::atomic<std::size_t> keys_made{0};

}  // namespace

detail::ChannelKeyBase::ChannelKeyBase() noexcept
    : index_(keys_made.fetch_add(1, std::memory_order_relaxed)) {
  LINKSPAN_ASSERT(index_ < ChannelAttributes::kKeysMost, "keys are constants of the program");
}

ChannelAttributes::~ChannelAttributes() {
  if (slots_ == nullptr) return;
  for (Slot& slot : *slots_) {
    if (slot.object != nullptr) slot.destroy(std::exchange(slot.object, nullptr));
  }
}

void ChannelAttributes::store(const detail::ChannelKeyBase& key, void* object,
                              void (*destroy)(void*) noexcept) {
  if (slots_ == nullptr) slots_ = std::make_unique<std::vector<Slot>>();
  if (slots_->size() <= key.index_) slots_->resize(key.index_ + 1);
  const Slot old = std::exchange((*slots_)[key.index_], {object, destroy});
  if (old.object != nullptr) old.destroy(old.object);
}

void ChannelAttributes::drop(const detail::ChannelKeyBase& key) noexcept {
  const Slot old = std::exchange((*slots_)[key.index_], {});
  old.destroy(old.object);
}

}  // namespace linkspan
