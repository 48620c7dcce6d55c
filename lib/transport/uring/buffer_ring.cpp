// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/buffer_ring.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

// The rest is for the application, so that a small pool is not all in the ring.
constexpr std::size_t kBudgetShare = 4;

constexpr std::size_t ring_bytes(unsigned slots) noexcept {
  return slots * sizeof(io_uring_buf);
}

}  // namespace

unsigned BufferRing::affordable_slots(const BlockPool& pool, ReceiveClass receive_class,
                                      unsigned slots) noexcept {
  const std::size_t affordable = pool.options().budget_bytes / kBudgetShare / blocks_of(receive_class).bytes;
  return std::bit_floor(static_cast<unsigned>(std::min<std::size_t>(affordable, std::min(slots, kSlotsMax))));
}

Result<std::unique_ptr<BufferRing>> BufferRing::create(Ring& ring, BlockPool& pool,
                                                       ReceiveClass receive_class, unsigned slots) {
  // Mapped, because the kernel wants whole pages.
  void* memory =
      ::mmap(nullptr, ring_bytes(slots), PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
  if (memory == MAP_FAILED) return Error(system_error_code(errno), "mapping the buffer ring");
  std::unique_ptr<BufferRing> buffers(
      new BufferRing(pool, receive_class, static_cast<io_uring_buf_ring*>(memory), slots));

  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uintptr_t>(memory);
  registration.ring_entries = slots;
  registration.bgid = buffers->group();
  const int error = ring.register_buffers(registration);
  if (error == EINVAL) {
    return Error(system_error_code(error),
                 "this kernel has no provided-buffer rings, which came with Linux 5.19");
  }
  if (error != 0) return Error(system_error_code(error), "registering the buffer ring");
  return buffers;
}

BufferRing::~BufferRing() {
  ::munmap(ring_, ring_bytes(slots()));
}

unsigned BufferRing::first_blocks() const noexcept {
  return std::min(kFirstBlocks, slots());
}

bool BufferRing::provide(unsigned slot) noexcept {
  Block& block = blocks_[slot];
  if (!block) block = pool_.allocate(blocks_of(receive_class_).bytes);
  if (!block) return false;
  io_uring_buf_ring_add(ring_, block.data(), static_cast<unsigned>(block.size()),
                        static_cast<unsigned short>(slot), io_uring_buf_ring_mask(slots()), 0);
  io_uring_buf_ring_advance(ring_, 1);
  ++provided_;
  return true;
}

void BufferRing::refill() noexcept {
  for (unsigned slot = 0; slot < wanted_; ++slot) {
    if (!blocks_[slot] && !provide(slot)) return;
  }
}

void BufferRing::ran_out() noexcept {
  if (provided_ == wanted_) wanted_ = std::min(2 * wanted_, slots());
  refill();
}

BufferRing::Received BufferRing::take(unsigned completion_flags, std::size_t size) noexcept {
  Block& block = filled(completion_flags);
  Received received{Slice(), size == block.size()};
  if (size != 0) received.data = take_received(block, size, receive_class_, pool_);
  provide_again(completion_flags);
  return received;
}

Block& BufferRing::filled(unsigned completion_flags) noexcept {
  const unsigned slot = completion_flags >> IORING_CQE_BUFFER_SHIFT;
  LINKSPAN_ASSERT(slot < slots() && blocks_[slot], "the kernel fills what it was given, once");
  --provided_;
  used_ = true;
  return blocks_[slot];
}

void BufferRing::provide_again(unsigned completion_flags) noexcept {
  const unsigned slot = completion_flags >> IORING_CQE_BUFFER_SHIFT;
  if (blocks_[slot].size() < blocks_of(receive_class_).least_bytes) blocks_[slot].reset();
  static_cast<void>(provide(slot));
}

void BufferRing::withdraw() noexcept {
  // The kernel looks at the tail when a receive needs a block, and there is none: so it may go back.
  io_uring_buf_ring_advance(ring_, -static_cast<int>(provided_));
  provided_ = 0;
  wanted_ = first_blocks();
  for (Block& block : blocks_) block.reset();
}

}  // namespace linkspan
