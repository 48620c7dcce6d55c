// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// LengthFieldCodec: frames with their length somewhere in a header. LengthPrefixCodec is the usual case, and
// shorter to set up.
// Not for: lengths that are varints (VarintLengthCodec).
// Cost: nothing is copied or put together; one comparison for what arrives while a frame is incomplete.
// Threads: a handler: the loop's thread only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "linkspan/codec/frame_codec.hpp"
#include "linkspan/codec/frame_headers.hpp"

namespace linkspan {

struct LengthFieldOptions {
  std::size_t offset = 0;  ///< bytes in front of the length field; 1 KiB at most
  std::size_t width = 4;   ///< of the field: 1, 2, 3, 4 or 8 bytes
  std::endian order = std::endian::big;
  /// What the field's value counts beside the bytes behind it, negated: a field that counts the whole frame
  /// has -(offset + width), one in front of a checksum that it does not count the checksum's size.
  std::int64_t adjustment = 0;
  std::size_t strip_bytes = 0;  ///< taken off the front of what is passed on; offset + width at most
  /// Of a whole frame, header included. A larger one is an error before anything is allocated for it.
  std::size_t max_frame_bytes = std::size_t{64} << 20;

  LengthFieldOptions() = default;
};

/// Frames are written in the shape in which they are read: whole where nothing is stripped; and where the
/// field stands in front and is stripped, it is put there again. Other headers cannot be made up: writing
/// fails with errc::unavailable.
///
/// Errors that it passes on: limit_exceeded, malformed (the adjusted length is negative), truncated (the peer
/// ended in a frame), pool_exhausted (no block for a field that is written).
class LINKSPAN_API LengthFieldCodec final : public FrameCodec {
 public:
  /// Throws Exception (invalid_argument) when the options contradict one another.
  explicit LengthFieldCodec(const LengthFieldOptions& options);
  ~LengthFieldCodec() override;

  void on_write(Chain&& frame) override;

 private:
  FrameStep next(const Chain& input) override;
  void fail_writing(errc code, const std::string& detail);

  LengthFieldOptions options_;
  FrameHeaders headers_;
};

}  // namespace linkspan
