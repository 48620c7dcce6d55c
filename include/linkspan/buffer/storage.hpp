// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Storage: the count in front of shared memory, and how that memory is given back. Allocators derive from it.
// Not for: users of buffers; Block and Slice own storages, and only they can count.
// Cost: 24 bytes. The last owner releases with a plain load, others with one locked instruction.
// Threads: the count is safe from any thread; the release function runs on the thread that drops the last
// owner.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace linkspan {

class Storage {
 public:
  /// Gives the memory and the storage itself back. Called exactly once per life.
  using ReleaseFunction = void (*)(Storage*) noexcept;

  Storage(std::size_t capacity, ReleaseFunction release_function) noexcept
      : capacity_(capacity), release_(release_function) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 protected:
  ~Storage() = default;

  /// Starts another life with one owner: for allocators that keep released storages.
  void revive() noexcept { references_.store(1, std::memory_order_relaxed); }

 private:
  friend class Block;
  friend class Slice;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }

  void release() noexcept {
    // A sole owner cannot gain a second one meanwhile: only an owner can share. So no locked instruction
    // then.
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      release_(this);
    }
  }

  [[nodiscard]] bool sole_owner() const noexcept { return references_.load(std::memory_order_acquire) == 1; }

  std::atomic<std::uint32_t> references_{1};
  std::size_t capacity_;
  ReleaseFunction release_;
};

static_assert(sizeof(Storage) == 24);

}  // namespace linkspan
