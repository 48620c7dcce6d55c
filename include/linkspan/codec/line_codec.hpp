// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// LineCodec: lines of text, which end in \n or \r\n.
// Not for: other delimiters. Lines to be sent are not searched for line ends in them.
// Cost: nothing is copied; each byte received is looked at once.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>

#include "linkspan/codec/frame_codec.hpp"

namespace linkspan {

struct LineOptions {
  /// Of one line, without its end. A longer one is an error, before its end has come.
  std::size_t max_line_bytes = std::size_t{64} << 10;
  bool strip = true;  ///< the end is not passed on, and is put behind what is sent
  /// The end that is put behind them is \r\n instead of \n.
  bool send_carriage_return = false;

  LineOptions() = default;
};

/// Errors that it passes on: limit_exceeded (a line above the limit), truncated (the peer ended in a line).
class LINKSPAN_API LineCodec final : public FrameCodec {
 public:
  explicit LineCodec(LineOptions options = {}) noexcept : options_(options) {}
  ~LineCodec() override;

  void on_write(Chain&& line) override;

 private:
  FrameStep next(const Chain& input) override;

  LineOptions options_;
  // What was searched of a line that is incomplete; whole slices, so that none is looked at again.
  std::size_t searched_slices_ = 0;
  std::size_t searched_bytes_ = 0;
  bool after_carriage_return_ = false;
};

}  // namespace linkspan
