// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/grpc_message_codec.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "linkspan/buffer/cursor.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kPrefixBytes = 5;
constexpr std::size_t kLengthMost = std::numeric_limits<std::uint32_t>::max();

std::string above_limit(std::size_t message_bytes, std::size_t max_message_bytes) {
  return "a message of " + std::to_string(message_bytes) + " bytes is above max_message_bytes, " +
         std::to_string(max_message_bytes);
}

}  // namespace

GrpcMessageCodec::~GrpcMessageCodec() = default;

FrameStep GrpcMessageCodec::next(const Chain& input) {
  Cursor cursor(input);
  const std::uint8_t flag = *cursor.read_big_endian<std::uint8_t>();
  if (flag > 1) {
    return FrameStep::error(errc::malformed,
                            "a message begins with " + std::to_string(flag) + " instead of 0 or 1");
  }
  const auto length = cursor.read_big_endian<std::uint32_t>();
  if (!length) return FrameStep::wait(kPrefixBytes);
  if (*length > options_.max_message_bytes) {
    return FrameStep::error(errc::limit_exceeded, above_limit(*length, options_.max_message_bytes));
  }
  compressed_ = flag == 1;
  return FrameStep::frame(kPrefixBytes + *length, kPrefixBytes);
}

void GrpcMessageCodec::on_write(GrpcMessage&& message) {
  const std::size_t most = std::min(options_.max_message_bytes, kLengthMost);
  const std::size_t size = message.data.size();
  if (size > most) return pass_error(make_error_code(errc::limit_exceeded), above_limit(size, most));
  std::array<std::byte, kPrefixBytes> prefix;
  prefix[0] = std::byte{message.compressed};
  for (std::size_t i = 1; i < kPrefixBytes; ++i) {
    prefix[i] = static_cast<std::byte>(size >> (8 * (kPrefixBytes - 1 - i)));
  }
  if (!headers_.prepend(prefix, message.data, channel().loop().pool())) {
    return pass_error(make_error_code(errc::pool_exhausted), "no block for the prefix of a message");
  }
  write(std::move(message.data));
}

}  // namespace linkspan
