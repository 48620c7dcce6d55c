// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FixedSizeCodec: frames that all have the same size.
// Not for: frames that say how long they are.
// Cost: nothing is copied or put together; one comparison for what arrives while a frame is incomplete.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>

#include "linkspan/codec/frame_codec.hpp"

namespace linkspan {

/// Errors that it passes on: truncated (the peer ended in a frame), invalid_argument (a frame of another size
/// is to be sent).
class LINKSPAN_API FixedSizeCodec final : public FrameCodec {
 public:
  /// Throws Exception (invalid_argument) for 0.
  explicit FixedSizeCodec(std::size_t frame_bytes);
  ~FixedSizeCodec() override;

  void on_write(Chain&& frame) override;

 private:
  FrameStep next(const Chain& input) override;

  std::size_t frame_bytes_;
};

}  // namespace linkspan
