// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// DelimiterCodec: frames that end in one of several delimiters.
// Not for: lines (LineCodec); frames that may hold a delimiter's bytes.
// Cost: nothing is copied; each byte received is looked at once, and where a delimiter may begin, as many as
// it has are looked at again.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "linkspan/codec/frame_codec.hpp"

namespace linkspan {

struct DelimiterOptions {
  /// Tried in this order where one may begin: put "\r\n" in front of "\r". 16 at most, of 1 to 64 bytes. The
  /// first one ends the frames that are sent.
  std::vector<std::string> delimiters{};
  bool strip = true;  ///< the delimiter is not passed on, and is put behind what is sent
  /// Of one frame, without its delimiter. A longer one is an error, before its end has come.
  std::size_t max_frame_bytes = std::size_t{64} << 10;

  DelimiterOptions() = default;
};

/// Errors that it passes on: limit_exceeded (a frame above the limit), truncated (the peer ended in a frame).
class LINKSPAN_API DelimiterCodec final : public FrameCodec {
 public:
  /// Throws Exception (invalid_argument) for delimiters that cannot be.
  explicit DelimiterCodec(DelimiterOptions options);
  ~DelimiterCodec() override;

  void on_write(Chain&& frame) override;

 private:
  enum class Match { no, yes, incomplete };
  FrameStep next(const Chain& input) override;
  [[nodiscard]] static Match match(const Chain& input, std::size_t slice, std::size_t offset,
                                   const std::string& delimiter) noexcept;
  [[nodiscard]] FrameStep found(std::size_t at, std::size_t delimiter_bytes);
  [[nodiscard]] FrameStep above_limit() const;

  DelimiterOptions options_;
  std::string first_bytes_;  // that delimiters begin with
  Slice end_;                // the first delimiter
  // How far an incomplete frame was searched: the slice, the offset in it, and in the input.
  std::size_t slice_ = 0;
  std::size_t offset_ = 0;
  std::size_t position_ = 0;
};

}  // namespace linkspan
