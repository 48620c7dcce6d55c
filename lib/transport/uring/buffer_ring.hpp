// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BufferRing: blocks of the loop's pool, provided to the kernel to receive into. A block that was filled goes
// to the application for good and its slot gets another one; so nobody can starve the ring by holding data,
// but for the pool's budget. When the pool refuses, the ring has fewer blocks until refill().
//
// Has to outlive the Ring that it is registered with, as the kernel writes into its blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lib/transport/uring/ring.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/block_pool.hpp"

namespace linkspan {

class BufferRing {
 public:
  /// The largest receive. A block serves receives until less than kLeastBytes of it are left: so bulk comes
  /// in few and large receives, and many small ones share a block.
  static constexpr std::size_t kBlockBytes = 256 * 1024;
  static constexpr std::size_t kLeastBytes = 64 * 1024;
  static constexpr unsigned kSlotsMax = 64;
  /// Of the buffer group, in submissions.
  static constexpr unsigned kGroup = 0;

  /// At most `slots` slots, a power of two; fewer where they would need more than a quarter of the pool's
  /// budget.
  [[nodiscard]] static Result<std::unique_ptr<BufferRing>> create(Ring& ring, BlockPool& pool,
                                                                  unsigned slots);
  ~BufferRing();
  BufferRing(const BufferRing&) = delete;
  BufferRing& operator=(const BufferRing&) = delete;

  /// The kernel has a block, or gets one now. False: the pool has refused and will say when it has one again.
  [[nodiscard]] bool ready() noexcept {
    if (provided_ == 0) refill();
    return provided_ != 0;
  }
  /// Provides blocks for all empty slots, as far as the pool has them.
  void refill() noexcept;

  /// What the kernel has received into the slot that a completion names; the slot is provided again.
  [[nodiscard]] Slice take(unsigned completion_flags, std::size_t size) noexcept;

 private:
  BufferRing(BlockPool& pool, io_uring_buf_ring* ring, unsigned slots) noexcept
      : pool_(pool), ring_(ring), slots_(slots) {}

  void provide(unsigned slot) noexcept;

  BlockPool& pool_;
  io_uring_buf_ring* ring_;  // pages of its own, shared with the kernel
  unsigned slots_;
  std::uint64_t provided_ = 0;  // a bit for each slot whose completion has not been seen yet
  std::array<Block, kSlotsMax> blocks_;
};

}  // namespace linkspan
