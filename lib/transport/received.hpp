// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What becomes of a block that the kernel has received into.
#pragma once

#include <cstddef>

#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/buffer/copy_ledger.hpp"

namespace linkspan {

/// The first `size` bytes of `block` as a slice. Small receives are copied out (CopyPlace::receive), so that
/// a few bytes do not keep a large block alive, and `block` is whole as before; otherwise it keeps what is
/// behind them.
[[nodiscard]] inline Slice take_received(Block& block, std::size_t size, BlockAllocator& allocator) {
  if (size < kReferenceThreshold) {
    if (Block small = allocator.allocate(size)) {
      copy_bytes(small.data(), block.data(), size, CopyPlace::receive);
      return std::move(small).freeze_all(size);
    }
  }
  return block.freeze(size);
}

}  // namespace linkspan
