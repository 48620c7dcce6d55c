// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// LengthPrefixCodec: frames with their size in front, as 4 bytes in network order. The size is that of the
// frame without those 4 bytes; a frame may be empty.
// Not for: protocols whose length field stands elsewhere or counts itself.
// Cost: nothing is copied or put together: a frame is cut from what was received, and shares its memory. What
// arrives while a frame is incomplete costs one comparison. 4 bytes of a pool block for each frame sent.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/codec/frame_codec.hpp"
#include "linkspan/codec/frame_headers.hpp"

namespace linkspan {

struct LengthPrefixOptions {
  /// Of one frame, without its prefix, in both directions. A larger one is an error before anything is
  /// allocated for it.
  std::size_t max_frame_bytes = std::size_t{64} << 20;

  LengthPrefixOptions() = default;
};

/// Errors that it passes on: limit_exceeded (a frame above the limit, received or to be sent), truncated (the
/// peer ended in the middle of a frame), pool_exhausted (no block for a prefix; that frame is dropped). After
/// an error in what was received, it reads no further.
class LINKSPAN_API LengthPrefixCodec final : public FrameCodec {
 public:
  explicit LengthPrefixCodec(LengthPrefixOptions options = {}) noexcept : options_(options) {}
  ~LengthPrefixCodec() override;

  void on_write(Chain&& frame) override;

 private:
  FrameStep next(const Chain& input) override;
  [[nodiscard]] std::string above_limit(std::size_t frame_bytes) const;

  LengthPrefixOptions options_;
  FrameHeaders headers_;
};

}  // namespace linkspan
