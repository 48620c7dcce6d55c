// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// VarintLengthCodec: frames with their size in front as a varint of up to 5 bytes: the delimited streams of
// Protocol Buffers (SerializeDelimitedToZeroCopyStream in C++, writeDelimitedTo in Java). A frame may be
// empty.
// Not for: lengths of a fixed width (LengthPrefixCodec, LengthFieldCodec).
// Cost: nothing is copied or put together; 1 to 5 bytes of a pool block for each frame sent.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>

#include "linkspan/codec/frame_codec.hpp"
#include "linkspan/codec/frame_headers.hpp"

namespace linkspan {

struct VarintLengthOptions {
  /// Of one frame, without its length, in both directions; 2^32 - 1 at most.
  std::size_t max_frame_bytes = std::size_t{64} << 20;

  VarintLengthOptions() = default;
};

/// Errors that it passes on: limit_exceeded, malformed (a length of more than 5 bytes or 32 bits), truncated
/// (the peer ended in a frame), pool_exhausted (no block for a length that is written).
class LINKSPAN_API VarintLengthCodec final : public FrameCodec {
 public:
  explicit VarintLengthCodec(VarintLengthOptions options = {}) noexcept : options_(options) {}
  ~VarintLengthCodec() override;

  void on_write(Chain&& frame) override;

 private:
  FrameStep next(const Chain& input) override;

  VarintLengthOptions options_;
  FrameHeaders headers_;
};

}  // namespace linkspan
