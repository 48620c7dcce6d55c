// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Storage: the count in front of shared memory, and how that memory is given back. Allocators derive from it.
// StorageRef is one reference to it, and the only thing that counts.
// Not for: users of buffers; they hold Blocks and Slices.
// Cost: 32 bytes. The last owner releases with a plain load, others with one locked instruction.
// Threads: the count is safe from any thread; the release function runs on the thread that drops the last
// owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "linkspan/buffer/buffer_trace.hpp"

namespace linkspan {

class LINKSPAN_BUFFER_ABI StorageRef;

class LINKSPAN_BUFFER_ABI Storage {
 public:
  /// Gives the memory and the storage itself back. Called exactly once per life.
  using ReleaseFunction = void (*)(Storage*) noexcept;

  /// Whether the sole owner may write to the memory.
  enum class Access : std::uint32_t { read_only, writable };

  /// `kind` is for reports (buffer_debug.hpp).
  Storage(const std::byte* data, std::size_t capacity, Access access, ReleaseFunction release_function,
          BufferKind kind = BufferKind::other) noexcept
      : access_(access),
        data_(data),
        capacity_(capacity),
        release_(release_function),
        trace_(kind, capacity) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Where the memory begins; it has capacity() bytes.
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// For allocators: whether it is one of theirs.
  [[nodiscard]] bool released_by(ReleaseFunction function) const noexcept { return release_ == function; }

 protected:
  ~Storage() = default;

  /// For storages that hold the owner of their memory, and know where it is only once they hold it.
  void set_data(const std::byte* data) noexcept { data_ = data; }

  /// Starts another life with one owner: for allocators that keep released storages.
  void revive() noexcept {
    trace_.revive(data_);
    references_.store(1, std::memory_order_relaxed);
  }

 private:
  friend class StorageRef;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }

  void release() noexcept {
    // A sole owner cannot gain a second one meanwhile: only an owner can share. So no locked instruction
    // then.
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      trace_.end(data_);
      release_(this);
    }
  }

  std::atomic<std::uint32_t> references_{1};
  Access access_;
  const std::byte* data_;
  std::size_t capacity_;
  ReleaseFunction release_;
  [[no_unique_address]] detail::StorageTrace trace_;
};

static_assert(sizeof(Storage) == (kBufferDebug ? 40 : 32));

/// One counted reference, or none. Copying counts, moving does not.
class LINKSPAN_BUFFER_ABI StorageRef {
 public:
  StorageRef() noexcept = default;
  /// Takes the one ownership that `storage` was made with.
  explicit StorageRef(Storage& storage) noexcept : storage_(&storage), trace_(storage.trace_) {}
  StorageRef(const StorageRef& other) noexcept : storage_(other.storage_), trace_(other.trace_) {
    if (storage_ != nullptr) storage_->retain();
  }
  StorageRef(StorageRef&& other) noexcept
      : storage_(std::exchange(other.storage_, nullptr)), trace_(std::move(other.trace_)) {}
  StorageRef& operator=(StorageRef other) noexcept {
    swap(other);
    return *this;
  }
  ~StorageRef() {
    trace_.end();
    if (storage_ != nullptr) storage_->release();
  }

  /// A copy of a reference that is there: no test whether it is.
  [[nodiscard]] StorageRef share() const noexcept {
    StorageRef shared(storage_, trace_);
    storage_->retain();
    return shared;
  }

  /// There is memory that nobody else holds and that may be written to. A sole owner cannot gain a second one
  /// meanwhile, and has seen what the others did before they let go.
  [[nodiscard]] bool writable() const noexcept {
    return storage_ != nullptr && storage_->access_ == Storage::Access::writable &&
           storage_->references_.load(std::memory_order_acquire) == 1;
  }
  /// References of that memory, which is there. Only a sole holder can rely on it.
  [[nodiscard]] std::uint32_t holders() const noexcept {
    return storage_->references_.load(std::memory_order_acquire);
  }
  /// Bytes of the memory in front of `data`, if they may be written to.
  [[nodiscard]] std::size_t headroom(const std::byte* data) const noexcept {
    return writable() ? static_cast<std::size_t>(data - storage_->data_) : 0;
  }

  void swap(StorageRef& other) noexcept {
    std::swap(storage_, other.storage_);
    trace_.swap(other.trace_);
  }

  [[nodiscard]] Storage* get() const noexcept { return storage_; }
  Storage* operator->() const noexcept { return storage_; }
  explicit operator bool() const noexcept { return storage_ != nullptr; }
  [[nodiscard]] const detail::HolderTrace& trace() const noexcept { return trace_; }

 private:
  StorageRef(Storage* storage, const detail::HolderTrace& trace) noexcept
      : storage_(storage), trace_(trace) {}

  Storage* storage_ = nullptr;
  [[no_unique_address]] detail::HolderTrace trace_;
};

}  // namespace linkspan
