// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/length_prefix_codec.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "linkspan/buffer/cursor.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kPrefixBytes = sizeof(std::uint32_t);

}  // namespace

LengthPrefixCodec::~LengthPrefixCodec() = default;

FrameStep LengthPrefixCodec::next(const Chain& input) {
  const auto frame_bytes = Cursor(input).read_big_endian<std::uint32_t>();
  if (!frame_bytes) return FrameStep::wait(kPrefixBytes);
  if (*frame_bytes > options_.max_frame_bytes) {
    return FrameStep::error(errc::limit_exceeded, above_limit(*frame_bytes));
  }
  return FrameStep::frame(kPrefixBytes + *frame_bytes, kPrefixBytes);
}

void LengthPrefixCodec::on_write(Chain&& frame) {
  constexpr std::size_t kPrefixMax = std::numeric_limits<std::uint32_t>::max();
  if (frame.size() > std::min(options_.max_frame_bytes, kPrefixMax)) {
    pass_error(make_error_code(errc::limit_exceeded), above_limit(frame.size()));
    return;
  }
  const auto frame_bytes = static_cast<std::uint32_t>(frame.size());
  std::array<std::byte, kPrefixBytes> prefix;
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    prefix[i] = static_cast<std::byte>(frame_bytes >> (8 * (kPrefixBytes - 1 - i)));
  }
  if (!headers_.prepend(prefix, frame, channel().loop().pool())) {
    pass_error(make_error_code(errc::pool_exhausted), "no block for the prefix of a frame");
    return;
  }
  write(std::move(frame));
}

std::string LengthPrefixCodec::above_limit(std::size_t frame_bytes) const {
  return "a frame of " + std::to_string(frame_bytes) + " bytes is above max_frame_bytes, " +
         std::to_string(options_.max_frame_bytes);
}

}  // namespace linkspan
