// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/block.hpp"

#include <cstdlib>
#include <limits>
#include <new>

namespace linkspan {
namespace {

// Header and data are one allocation; the data starts at the next multiple of 16.
struct HeapStorage final : Storage {
  explicit HeapStorage(std::size_t capacity) noexcept
      : Storage(capacity, [](Storage* self) noexcept { std::free(static_cast<HeapStorage*>(self)); }) {}
};
constexpr std::size_t kDataOffset = (sizeof(HeapStorage) + 15) / 16 * 16;

class HeapAllocator final : public BlockAllocator {
 public:
  Block allocate(std::size_t size) noexcept override {
    if (size > std::numeric_limits<std::size_t>::max() - kDataOffset) return {};
    void* memory = std::malloc(kDataOffset + size);
    if (memory == nullptr) return {};
    return {static_cast<std::byte*>(memory) + kDataOffset, size, ::new (memory) HeapStorage(size)};
  }
};

}  // namespace

BlockAllocator::~BlockAllocator() = default;

BlockAllocator& heap_allocator() noexcept {
  static auto& allocator = *new HeapAllocator;  // never destroyed
  return allocator;
}

}  // namespace linkspan
