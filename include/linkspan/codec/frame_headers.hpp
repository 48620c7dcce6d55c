// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FrameHeaders: where codecs get the few bytes from that they put in front of a frame.
// Not for: payloads.
// Cost: the bytes of a pool block that many headers share; nothing where the frame has headroom.
// Threads: the loop's thread only.
#pragma once

#include <cstddef>
#include <span>

#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

class LINKSPAN_API FrameHeaders {
 public:
  static constexpr std::size_t kHeaderMostBytes = 16;

  /// Puts `header` in front of the frame: into its headroom, if nobody else can see that (Slice::headroom),
  /// or as a slice of its own. False: `allocator` has refused a block.
  [[nodiscard]] bool prepend(std::span<const std::byte> header, Chain& frame, BlockAllocator& allocator);

 private:
  Block block_;
};

}  // namespace linkspan
