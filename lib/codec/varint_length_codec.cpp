// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/varint_length_codec.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "linkspan/buffer/cursor.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kLengthMostBytes = 5;
constexpr std::size_t kFrameMost = std::numeric_limits<std::uint32_t>::max();

std::string above_limit(std::uint64_t frame_bytes, std::size_t max_frame_bytes) {
  return "a frame of " + std::to_string(frame_bytes) + " bytes is above max_frame_bytes, " +
         std::to_string(max_frame_bytes);
}

}  // namespace

VarintLengthCodec::~VarintLengthCodec() = default;

FrameStep VarintLengthCodec::next(const Chain& input) {
  Cursor cursor(input);
  const Cursor::Varint length = cursor.read_varint();
  const bool too_long = length.status == Cursor::VarintStatus::incomplete && input.size() >= kLengthMostBytes;
  if (too_long || length.status == Cursor::VarintStatus::malformed || length.value > kFrameMost ||
      cursor.position() > kLengthMostBytes) {
    return FrameStep::error(errc::malformed, "the length of a frame has more than 5 bytes or 32 bits");
  }
  if (length.status == Cursor::VarintStatus::incomplete) return FrameStep::wait(input.size() + 1);
  if (length.value > options_.max_frame_bytes) {
    return FrameStep::error(errc::limit_exceeded, above_limit(length.value, options_.max_frame_bytes));
  }
  return FrameStep::frame(cursor.position() + length.value, cursor.position());
}

void VarintLengthCodec::on_write(Chain&& frame) {
  const std::size_t most = std::min(options_.max_frame_bytes, kFrameMost);
  if (frame.size() > most) {
    return pass_error(make_error_code(errc::limit_exceeded), above_limit(frame.size(), most));
  }
  std::array<std::byte, kLengthMostBytes> length;
  std::size_t bytes = 0;
  std::size_t rest = frame.size();
  for (; rest >= 0x80; rest >>= 7) length[bytes++] = static_cast<std::byte>(rest | 0x80);
  length[bytes++] = static_cast<std::byte>(rest);
  if (!headers_.prepend(std::span(length).first(bytes), frame, channel().loop().pool())) {
    return pass_error(make_error_code(errc::pool_exhausted), "no block for the length of a frame");
  }
  write(std::move(frame));
}

}  // namespace linkspan
