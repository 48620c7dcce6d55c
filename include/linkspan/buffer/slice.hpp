// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Slice: an immutable, shared view of memory that it keeps alive. Copying a Slice shares the memory; moving
// it touches nothing. Where the memory comes from has one spelling each: copy, adopt, borrow, immortal (and
// map_file in mapped_file.hpp).
// Not for: memory that somebody still writes to; that is a Block (block.hpp).
// Cost: 24 bytes. A copy is one atomic increment, a release one atomic decrement, or a plain load for the
// last owner. A small slice keeps the whole block behind it alive.
// Threads: a Slice is a value, for one thread at a time; slices of one memory may live on different threads.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/base/assert.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/buffer/storage.hpp"

namespace linkspan {

namespace detail {
struct TraceAccess;
}

class LINKSPAN_BUFFER_ABI Block;

class LINKSPAN_BUFFER_ABI Slice {
 public:
  Slice() noexcept = default;
  Slice(const Slice& other) noexcept = default;
  Slice(Slice&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        storage_(std::move(other.storage_)) {}
  Slice& operator=(Slice other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    storage_.swap(other.storage_);
    return *this;
  }
  ~Slice() = default;

  /// A copy on the heap (counted as CopyPlace::user). Throws std::bad_alloc.
  [[nodiscard]] LINKSPAN_API static Slice copy(std::span<const std::byte> bytes);
  [[nodiscard]] static Slice copy(std::string_view text) { return copy(std::as_bytes(std::span(text))); }

  /// Takes over the string's memory.
  [[nodiscard]] LINKSPAN_API static Slice adopt(std::string&& text);
  [[nodiscard]] LINKSPAN_API static Slice adopt(std::vector<std::byte>&& bytes);
  [[nodiscard]] LINKSPAN_API static Slice adopt(std::unique_ptr<std::byte[]> bytes, std::size_t size);
  /// Keeps `owner` until the last slice is gone; `bytes` is memory that `owner` keeps valid and unchanged.
  template <class T, class Deleter>
  [[nodiscard]] static Slice adopt(std::unique_ptr<T, Deleter> owner, std::span<const std::byte> bytes) {
    return adopt(bytes, [owner = std::move(owner)]() noexcept {});
  }
  [[nodiscard]] LINKSPAN_API static Slice adopt(std::shared_ptr<const void> owner,
                                                std::span<const std::byte> bytes);
  /// Calls `free_memory` exactly once, on the thread that drops the last slice; what it throws is logged and
  /// dropped. If this throws (std::bad_alloc), `free_memory` is not called and the memory stays the caller's.
  template <std::invocable F>
  [[nodiscard]] static Slice adopt(std::span<const std::byte> bytes, F free_memory) {
    return with_callback(bytes, std::move(free_memory), BufferKind::adopted);
  }

  /// Memory that stays the caller's: it has to stay valid and unchanged until `completion` runs. That happens
  /// exactly once, on the thread that drops the last slice, when nothing will read the memory again.
  template <std::invocable F>
  [[nodiscard]] static Slice borrow(std::span<const std::byte> bytes, F completion) {
    return with_callback(bytes, std::move(completion), BufferKind::borrowed);
  }

  /// Memory that is never freed nor changed, such as a string literal.
  [[nodiscard]] static Slice immortal(std::span<const std::byte> bytes) noexcept {
    return {bytes.data(), bytes.size(), StorageRef()};
  }
  [[nodiscard]] static Slice immortal(std::string_view text) noexcept {
    return immortal(std::as_bytes(std::span(text)));
  }
  template <class T>
  requires(std::same_as<T, std::string> || std::same_as<T, std::vector<std::byte>>) static Slice
      immortal(T&& temporary) = delete;  // would be gone before it is read

  /// For allocators: a view of memory that `storage` keeps, and what keeps this one.
  [[nodiscard]] static Slice over(std::span<const std::byte> bytes, StorageRef storage) noexcept {
    return {bytes.data(), bytes.size(), std::move(storage)};
  }

  [[nodiscard]] const StorageRef& storage() const noexcept { return storage_; }

  [[nodiscard]] const std::byte* data() const noexcept {
    storage_.trace().check();
    return data_;
  }
  [[nodiscard]] std::size_t size() const noexcept {
    storage_.trace().check();
    return size_;
  }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data(), size_}; }
  [[nodiscard]] std::string_view view() const noexcept {
    return {reinterpret_cast<const char*>(data()), size_};
  }

  /// `size` bytes from `offset` on, sharing the memory; asserts that they are inside.
  [[nodiscard]] Slice slice(std::size_t offset, std::size_t size) const {
    LINKSPAN_ASSERT(offset <= size_ && size <= size_ - offset,
                    "a slice lies inside the slice it is cut from");
    if (size == 0) return {};
    return {data_ + offset, size, StorageRef(storage_)};
  }

  /// Cuts off and returns the first `size` bytes.
  [[nodiscard]] Slice split_front(std::size_t size) {
    if (size == size_) return std::move(*this);
    Slice front = slice(0, size);
    drop_front(size);
    return front;
  }

  void drop_front(std::size_t size) noexcept {
    LINKSPAN_ASSERT(size <= size_, "dropped bytes are inside the slice");
    data_ += size;
    size_ -= size;
    trace_view();
  }
  void drop_back(std::size_t size) noexcept {
    LINKSPAN_ASSERT(size <= size_, "dropped bytes are inside the slice");
    size_ -= size;
    trace_view();
  }

  /// Appends `next` if it is the memory right behind this slice, in the same block; false otherwise. Nothing
  /// is copied: two neighbouring views become one.
  bool join(const Slice& next) noexcept {
    if (next.storage_.get() != storage_.get() || !storage_ || next.data_ != data_ + size_) return false;
    size_ += next.size_;
    trace_view();
    return true;
  }

  /// Bytes in front of this slice that nobody else can see; 0 unless this is the only owner and the memory
  /// may be written to.
  [[nodiscard]] std::size_t headroom() const noexcept { return storage_.headroom(data_); }
  /// Puts `bytes` in front, into the headroom (CopyPlace::below_threshold). False, and nothing is written,
  /// when it is too small.
  [[nodiscard]] LINKSPAN_API bool prepend_in_place(std::span<const std::byte> bytes) noexcept;

  /// Bytes of the block behind this slice, which it keeps alive; 0 for immortal memory.
  [[nodiscard]] std::size_t pinned_size() const noexcept { return storage_ ? storage_->capacity() : 0; }

  /// Which block is behind this slice, for telling whether two slices share one; nullptr: immortal memory.
  [[nodiscard]] const void* block_id() const noexcept { return storage_.get(); }

  /// Compares bytes.
  friend bool operator==(const Slice& a, const Slice& b) noexcept { return a.view() == b.view(); }

 private:
  friend class Block;
  friend struct detail::TraceAccess;

  template <class F>
  [[nodiscard]] static Slice with_callback(std::span<const std::byte> bytes, F&& callback, BufferKind kind);

  Slice(const std::byte* data, std::size_t size, StorageRef&& storage) noexcept
      : data_(data), size_(size), storage_(std::move(storage)) {
    trace_view();
  }

  void trace_view() const noexcept { storage_.trace().shows(data_, size_); }

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  StorageRef storage_;  // none: immortal
};

static_assert(sizeof(Slice) == (kBufferDebug ? 40 : 24));

namespace detail {

// Inside a catch block.
LINKSPAN_API void completion_threw() noexcept;

// Calls a function when the memory is released: one allocation holds the count and the function. Whoever
// drops the last slice may be anywhere, a destructor included, so nothing is thrown at it.
template <class F>
struct CallbackStorage final : Storage {
  CallbackStorage(std::span<const std::byte> bytes, F&& function, Access access, BufferKind kind)
      : Storage(bytes.data(), bytes.size(), access, &run, kind), callback(std::move(function)) {}

  static void run(Storage* self) noexcept {
    const std::unique_ptr<CallbackStorage> storage(static_cast<CallbackStorage*>(self));
    try {
      static_cast<void>(std::move(storage->callback)());
    } catch (...) {
      completion_threw();
    }
  }

  F callback;
};

}  // namespace detail

template <class F>
Slice Slice::with_callback(std::span<const std::byte> bytes, F&& callback, BufferKind kind) {
  auto* storage =
      new detail::CallbackStorage<F>(bytes, std::move(callback), Storage::Access::read_only, kind);
  return {bytes.data(), bytes.size(), StorageRef(*storage)};
}

}  // namespace linkspan
