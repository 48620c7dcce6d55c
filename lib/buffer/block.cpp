// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/block.hpp"

#include <limits>
#include <new>
#include <utility>

#include "lib/base/never_destroyed.hpp"

namespace linkspan {
namespace {

// In front of the data, in one allocation.
struct alignas(16) HeapStorage final : Storage {
  explicit HeapStorage(std::size_t capacity) noexcept
      : Storage(
            reinterpret_cast<std::byte*>(this + 1), capacity, Access::writable,
            [](Storage* self) noexcept {
              auto* storage = static_cast<HeapStorage*>(self);
              storage->~HeapStorage();
              ::operator delete(storage);
            },
            BufferKind::heap) {}
};
static_assert(sizeof(HeapStorage) % 16 == 0, "the data is aligned as operator new aligns");

class UnlimitedHeap final : public BlockAllocator {
 public:
  Block allocate(std::size_t size) noexcept override {
    if (size > std::numeric_limits<std::size_t>::max() - sizeof(HeapStorage)) return {};
    void* memory = ::operator new(sizeof(HeapStorage) + size, std::nothrow);
    if (memory == nullptr) return {};
    return Block(*::new (memory) HeapStorage(size));
  }
};

}  // namespace

Block Block::make_unique(Slice&& slice, BlockAllocator& allocator) {
  Block block;
  if (slice.storage_.writable()) {
    block.data_ = const_cast<std::byte*>(std::exchange(slice.data_, nullptr));
    block.size_ = std::exchange(slice.size_, 0);
    block.storage_ = std::move(slice.storage_);
    block.trace_view();
  } else if (!slice.empty()) {
    block = allocator.allocate(slice.size());
    if (!block) return block;
    block.size_ = slice.size();
    block.trace_view();
    copy_bytes(block.data(), slice.data(), slice.size(), CopyPlace::unshare);
    slice = Slice();
  }
  return block;
}

BlockAllocator::~BlockAllocator() = default;

BlockAllocator& heap_allocator() noexcept {
  static NeverDestroyed<UnlimitedHeap> allocator;
  return allocator.get();
}

}  // namespace linkspan
