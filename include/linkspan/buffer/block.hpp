// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Block: memory that one owner may write to. Freezing turns it, front first, into immutable Slices; what is
// left stays writable. So writing to shared memory does not compile. Blocks come from a BlockAllocator.
// Not for: sharing (freeze it) and memory that is already full (Slice::adopt).
// Cost: 24 bytes; a move touches nothing; freezing the rest transfers ownership without an atomic operation.
// Threads: a value, for one thread at a time; it may be released on any thread.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "linkspan/base/assert.hpp"
#include "linkspan/buffer/slice.hpp"
#include "linkspan/buffer/storage.hpp"

namespace linkspan {

class BlockAllocator;

/// Plain heap memory without a budget (HeapAllocator has one); any thread; lives for ever.
[[nodiscard]] LINKSPAN_API BlockAllocator& heap_allocator() noexcept;

class LINKSPAN_BUFFER_ABI Block {
 public:
  Block() noexcept = default;
  /// For allocators: takes the one ownership that `storage` was made with; all its memory can be written to.
  explicit Block(Storage& storage) noexcept
      : data_(const_cast<std::byte*>(storage.data())), size_(storage.capacity()), storage_(storage) {
    trace_view();
  }
  /// For allocators: a part of the memory of `storage` that nobody else writes to.
  [[nodiscard]] static Block over(std::span<std::byte> memory, StorageRef storage) noexcept {
    Block block;
    block.data_ = memory.data();
    block.size_ = memory.size();
    block.storage_ = std::move(storage);
    block.trace_view();
    return block;
  }
  /// Memory of somebody else's, all of which can be written to: of a store's page, say. `free_memory` is
  /// called exactly once, on the thread that drops the Block and the last slice frozen from it; what it
  /// throws is logged and dropped. If this throws (std::bad_alloc), the memory stays the caller's.
  template <std::invocable F>
  [[nodiscard]] static Block adopt(std::span<std::byte> memory, F free_memory) {
    return Block(*new detail::CallbackStorage<F>(memory, std::move(free_memory), Storage::Access::writable,
                                                 BufferKind::adopted));
  }
  Block(Block&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        storage_(std::move(other.storage_)) {}
  Block& operator=(Block&& other) noexcept {
    Block taken = std::move(other);
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    storage_.swap(taken.storage_);
    return *this;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() = default;

  /// The bytes of `slice`, to be written to: its own memory when nobody else holds that and it may be written
  /// to, otherwise a copy (CopyPlace::unshare). An empty block, and `slice` is as before, when the allocator
  /// refuses.
  [[nodiscard]] LINKSPAN_API static Block make_unique(Slice&& slice,
                                                      BlockAllocator& allocator = heap_allocator());

  /// False when the allocator refused: over its budget, or out of memory.
  explicit operator bool() const noexcept { return static_cast<bool>(storage_); }

  [[nodiscard]] std::byte* data() noexcept {
    storage_.trace().check();
    return data_;
  }
  /// Bytes that can still be written.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> writable() noexcept { return {data(), size_}; }

  /// Leaves the first `size` bytes alone: they become headroom, for what is put in front later.
  void drop_front(std::size_t size) noexcept {
    LINKSPAN_ASSERT(size <= size_, "dropped bytes are inside the block");
    data_ += size;
    size_ -= size;
    trace_view();
  }
  /// Bytes in front of this block that nobody else can see; 0 while slices of its memory are alive.
  [[nodiscard]] std::size_t headroom() const noexcept { return storage_.headroom(data_); }
  /// Takes back the last `size` bytes of the headroom.
  void extend_front(std::size_t size) noexcept {
    LINKSPAN_ASSERT(size <= headroom(), "a block is extended into its headroom");
    data_ -= size;
    size_ += size;
    trace_view();
  }

  /// Turns the first `size` bytes into a Slice; the rest stays writable. When nothing is left the Block is
  /// empty.
  [[nodiscard]] Slice freeze(std::size_t size) noexcept {
    LINKSPAN_ASSERT(size <= size_, "frozen bytes are inside the block");
    if (size == size_) return std::move(*this).freeze_all(size);
    if (size == 0) return {};
    Slice frozen(data_, size, storage_.share());
    data_ += size;
    size_ -= size;
    trace_view();
    return frozen;
  }

  /// Turns the first `size` bytes into a Slice and gives up the rest.
  [[nodiscard]] Slice freeze_all(std::size_t size) && noexcept {
    LINKSPAN_ASSERT(size <= size_, "frozen bytes are inside the block");
    Slice frozen(std::exchange(data_, nullptr), size, std::move(storage_));
    size_ = 0;
    return frozen;
  }

  void reset() noexcept {
    storage_ = StorageRef();
    data_ = nullptr;
    size_ = 0;
  }

 private:
  void trace_view() const noexcept { storage_.trace().shows(data_, size_); }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  StorageRef storage_;
};

static_assert(sizeof(Block) == (kBufferDebug ? 40 : 24));

/// Where Blocks come from. A resource with one owner; blocks may outlive it.
class LINKSPAN_API BlockAllocator {
 public:
  virtual ~BlockAllocator();
  /// A Block of at least `size` bytes, or an empty one when that is refused: a bound of the allocator, or
  /// memory.
  [[nodiscard]] virtual Block allocate(std::size_t size) noexcept = 0;
};

}  // namespace linkspan
