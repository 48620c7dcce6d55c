// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/frame_headers.hpp"

#include "linkspan/base/assert.hpp"

namespace linkspan {

bool FrameHeaders::prepend(std::span<const std::byte> header, Chain& frame, BlockAllocator& allocator) {
  constexpr std::size_t kBlockBytes = 512;
  LINKSPAN_ASSERT(header.size() <= kHeaderMostBytes, "a frame's header has at most 16 bytes");
  if (frame.prepend_in_place(header)) return true;
  if (block_.size() < header.size() || !block_) {
    block_ = allocator.allocate(kBlockBytes);
    if (!block_) return false;
  }
  for (std::size_t i = 0; i < header.size(); ++i) block_.data()[i] = header[i];
  frame.prepend(block_.freeze(header.size()));
  return true;
}

}  // namespace linkspan
