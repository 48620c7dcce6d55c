// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/buffer_ring.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "lib/transport/received.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

// Kept free for the application, so that a small pool is not all in the ring.
constexpr std::size_t kBudgetShare = 4;

constexpr std::size_t ring_bytes(unsigned slots) noexcept {
  return slots * sizeof(io_uring_buf);
}

constexpr std::uint64_t bit_of(unsigned slot) noexcept {
  return std::uint64_t{1} << slot;
}

}  // namespace

Result<std::unique_ptr<BufferRing>> BufferRing::create(Ring& ring, BlockPool& pool, unsigned slots) {
  const std::size_t affordable = pool.options().budget_bytes / kBudgetShare / kBlockBytes;
  slots = std::bit_floor(
      static_cast<unsigned>(std::clamp<std::size_t>(affordable, 1, std::min(slots, kSlotsMax))));
  // Mapped, because the kernel wants whole pages.
  void* memory =
      ::mmap(nullptr, ring_bytes(slots), PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
  if (memory == MAP_FAILED) return Error(system_error_code(errno), "mapping the buffer ring");
  std::unique_ptr<BufferRing> buffers(new BufferRing(pool, static_cast<io_uring_buf_ring*>(memory), slots));

  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uintptr_t>(memory);
  registration.ring_entries = slots;
  registration.bgid = kGroup;
  const int error = ring.register_buffers(registration);
  if (error == EINVAL) {
    return Error(system_error_code(error),
                 "this kernel has no provided-buffer rings, which came with Linux 5.19");
  }
  if (error != 0) return Error(system_error_code(error), "registering the buffer ring");
  return buffers;
}

BufferRing::~BufferRing() {
  ::munmap(ring_, ring_bytes(slots_));
}

void BufferRing::provide(unsigned slot) noexcept {
  Block& block = blocks_[slot];
  io_uring_buf_ring_add(ring_, block.data(), static_cast<unsigned>(block.size()),
                        static_cast<unsigned short>(slot), io_uring_buf_ring_mask(slots_), 0);
  io_uring_buf_ring_advance(ring_, 1);
  provided_ |= bit_of(slot);
}

void BufferRing::refill() noexcept {
  const std::uint64_t all = ~std::uint64_t{0} >> (kSlotsMax - slots_);
  for (std::uint64_t empty = all & ~provided_; empty != 0; empty &= empty - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(empty));
    blocks_[slot] = pool_.allocate(kBlockBytes);
    if (!blocks_[slot]) return;
    provide(slot);
  }
}

Slice BufferRing::take(unsigned completion_flags, std::size_t size) noexcept {
  const unsigned slot = completion_flags >> IORING_CQE_BUFFER_SHIFT;
  LINKSPAN_ASSERT(slot < slots_ && (provided_ & bit_of(slot)) != 0,
                  "the kernel fills what it was given, once");
  provided_ &= ~bit_of(slot);
  Block& block = blocks_[slot];
  Slice received;
  if (size != 0) received = take_received(block, size, pool_);
  if (block.size() < kLeastBytes) block = pool_.allocate(kBlockBytes);
  if (block) provide(slot);
  return received;
}

}  // namespace linkspan
