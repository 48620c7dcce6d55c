// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BufferRing: blocks of the loop's pool, of one receive class, provided to the kernel to receive into. A
// block that was filled goes to the application for good and its slot gets another one; so nobody can starve
// the ring by holding data, but for the pool's budget. When the pool refuses, the ring has fewer blocks until
// some are back. It begins with few and doubles when the kernel runs out of them.
//
// Has to outlive the Ring that it is registered with, as the kernel writes into its blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lib/transport/receive_sizer.hpp"
#include "lib/transport/uring/ring.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/block_pool.hpp"

namespace linkspan {

class BufferRing {
 public:
  static constexpr unsigned kSlotsMax = 256;  // whose entries are a page
  static constexpr unsigned kFirstBlocks = 4;

  /// How many slots of `receive_class` are worth having with this pool: at most `slots`, a power of two, and
  /// no more than a quarter of the budget. 0: not even one.
  [[nodiscard]] static unsigned affordable_slots(const BlockPool& pool, ReceiveClass receive_class,
                                                 unsigned slots) noexcept;
  /// Registers an empty ring of `slots`, a power of two.
  [[nodiscard]] static Result<std::unique_ptr<BufferRing>> create(Ring& ring, BlockPool& pool,
                                                                  ReceiveClass receive_class, unsigned slots);
  ~BufferRing();
  BufferRing(const BufferRing&) = delete;
  BufferRing& operator=(const BufferRing&) = delete;

  /// What submissions call it.
  [[nodiscard]] unsigned short group() const noexcept { return static_cast<unsigned short>(receive_class_); }

  /// The kernel has a block, or gets some now. False: the pool has refused and will say when it has one
  /// again.
  [[nodiscard]] bool ready() noexcept {
    if (provided_ == 0) refill();
    return provided_ != 0;
  }
  /// The kernel found no block. If it had all of them, there will be twice as many.
  void ran_out() noexcept;
  /// The pool can serve again. A ring that nobody needs stays empty.
  void memory_returned() noexcept {
    if (provided_ != 0) refill();
  }

  struct Received {
    Slice data;
    bool filled;  ///< it had room for no more
  };
  /// What the kernel has received into the slot that a completion names; the slot is provided again.
  [[nodiscard]] Received take(unsigned completion_flags, std::size_t size) noexcept;

  /// The same in two steps: the block itself, whose front may be taken; then it is provided again, or another
  /// one if too little of it is left.
  [[nodiscard]] Block& filled(unsigned completion_flags) noexcept;
  void provide_again(unsigned completion_flags) noexcept;

  /// Gives all blocks back to the pool. Only while no receive is armed with this ring.
  void withdraw() noexcept;
  /// Something was received since the last call.
  [[nodiscard]] bool was_used() noexcept { return std::exchange(used_, false); }

 private:
  BufferRing(BlockPool& pool, ReceiveClass receive_class, io_uring_buf_ring* ring, unsigned slots)
      : pool_(pool), receive_class_(receive_class), ring_(ring), blocks_(slots) {}

  [[nodiscard]] unsigned slots() const noexcept { return static_cast<unsigned>(blocks_.size()); }
  [[nodiscard]] unsigned first_blocks() const noexcept;
  bool provide(unsigned slot) noexcept;
  void refill() noexcept;

  BlockPool& pool_;
  const ReceiveClass receive_class_;
  io_uring_buf_ring* const ring_;  // pages of its own, shared with the kernel
  std::vector<Block> blocks_;      // by slot; empty where nothing is provided
  unsigned wanted_ = first_blocks();
  unsigned provided_ = 0;  // blocks whose completions have not been seen yet
  bool used_ = false;
};

}  // namespace linkspan
