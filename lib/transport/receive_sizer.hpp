// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Receive classes: how much memory a stream receives into, chosen by what it has been doing. Small for
// interactive traffic, so that a message that is kept keeps little alive; bulk for throughput, as each
// receive costs about the same whatever it brings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/copy_ledger.hpp"

namespace linkspan {

enum class ReceiveClass : std::uint8_t { small, medium, bulk };
inline constexpr std::size_t kReceiveClasses = 3;

/// What becomes of the blocks of a class.
struct ReceiveBlocks {
  std::size_t bytes;         // a block's size
  std::size_t least_bytes;   // it serves another receive while this much of it is left
  std::size_t copied_bytes;  // receives of at most this are copied out, and it stays as it was
};

/// A small block is handed over with what it has received, unless that fits into the pool's smallest class.
/// The others serve several receives, so what fits into a small block is copied out of them. Therefore: a
/// receive that fits into a small block keeps no more than a small block alive.
[[nodiscard]] constexpr ReceiveBlocks blocks_of(ReceiveClass receive_class) noexcept {
  constexpr std::size_t kKiB = 1024;
  switch (receive_class) {
    case ReceiveClass::small: return {4 * kKiB, 4 * kKiB, 512};
    case ReceiveClass::medium: return {64 * kKiB, 32 * kKiB, 4 * kKiB};
    case ReceiveClass::bulk: break;
  }
  return {256 * kKiB, 68 * kKiB, 4 * kKiB};  // the longest datagram fits, with what comes with it
}

/// Chooses the class of one stream. It grows by one with each receive that fills its block, so a bulk stream
/// gets large blocks at its third receive; it shrinks by one after kPatience receives in a row that would
/// have left room in a block of the class below. So a stream that now and then sends something large stays
/// where it is.
class ReceiveSizer {
 public:
  static constexpr unsigned kPatience = 16;

  [[nodiscard]] ReceiveClass receive_class() const noexcept { return class_; }

  /// A receive brought `bytes`; `filled`: that was all it had room for.
  void received(std::size_t bytes, bool filled) noexcept {
    if (filled) {
      fitting_ = 0;
      if (class_ != ReceiveClass::bulk) class_ = next(+1);
    } else if (class_ == ReceiveClass::small) {
      return;
    } else if (bytes >= blocks_of(next(-1)).bytes) {
      fitting_ = 0;
    } else if (++fitting_ == kPatience) {
      fitting_ = 0;
      class_ = next(-1);
    }
  }

  /// Nothing has come for long: from the beginning.
  void reset() noexcept { *this = ReceiveSizer(); }

 private:
  [[nodiscard]] ReceiveClass next(int step) const noexcept {
    return static_cast<ReceiveClass>(static_cast<int>(class_) + step);
  }

  ReceiveClass class_ = ReceiveClass::small;
  std::uint8_t fitting_ = 0;  // receives in a row that would have fitted into the class below
};

static_assert(sizeof(ReceiveSizer) == 2);

/// The first `size` bytes of `block`, of `receive_class`, as a slice. Afterwards the block has room for
/// another receive, or is empty. When `allocator` has no block to copy to, they are handed over after all.
[[nodiscard]] inline Slice take_received(Block& block, std::size_t size, ReceiveClass receive_class,
                                         BlockAllocator& allocator) noexcept {
  const ReceiveBlocks blocks = blocks_of(receive_class);
  if (size <= blocks.copied_bytes) {
    if (Block copy = allocator.allocate(size)) {
      copy_bytes(copy.data(), block.data(), size, CopyPlace::receive);
      return std::move(copy).freeze_all(size);
    }
  }
  if (block.size() - size < blocks.least_bytes) return std::move(block).freeze_all(size);
  return block.freeze(size);
}

}  // namespace linkspan
