// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/fixed_size_codec.hpp"

#include <string>
#include <utility>

namespace linkspan {

FixedSizeCodec::FixedSizeCodec(std::size_t frame_bytes) : frame_bytes_(frame_bytes) {
  if (frame_bytes == 0) throw Exception(Error(errc::invalid_argument, "frames have at least one byte"));
}

FixedSizeCodec::~FixedSizeCodec() = default;

FrameStep FixedSizeCodec::next(const Chain& input) {
  return input.size() < frame_bytes_ ? FrameStep::wait(frame_bytes_) : FrameStep::frame(frame_bytes_);
}

void FixedSizeCodec::on_write(Chain&& frame) {
  if (frame.size() != frame_bytes_) {
    return pass_error(make_error_code(errc::invalid_argument), "a frame of " + std::to_string(frame.size()) +
                                                                   " bytes is to be sent, and all have " +
                                                                   std::to_string(frame_bytes_));
  }
  write(std::move(frame));
}

}  // namespace linkspan
