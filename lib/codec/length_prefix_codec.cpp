// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/length_prefix_codec.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "linkspan/buffer/cursor.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kPrefixBytes = sizeof(std::uint32_t);
constexpr std::size_t kPrefixBlockBytes = 512;

}  // namespace

LengthPrefixCodec::~LengthPrefixCodec() = default;

void LengthPrefixCodec::on_read(Chain&& bytes) {
  if (failed_) return;
  input_.append(std::move(bytes));
  decode();
}

void LengthPrefixCodec::on_read_end() {
  ended_ = true;
  decode();
}

void LengthPrefixCodec::on_read_resumed() {
  decode();
}

Chain LengthPrefixCodec::take_unread() {
  return std::move(input_);
}

void LengthPrefixCodec::decode() {
  // A frame that is passed on may pause reading, close the channel, or take this handler out.
  while (!failed_ && !removed() && channel().reading()) {
    if (!frame_bytes_) {
      frame_bytes_ = Cursor(input_).read_big_endian<std::uint32_t>();
      if (frame_bytes_ && *frame_bytes_ > options_.max_frame_bytes) {
        fail_reading(errc::limit_exceeded, above_limit(*frame_bytes_));
        return;
      }
    }
    if (!frame_bytes_ || input_.size() - kPrefixBytes < *frame_bytes_) {
      if (!std::exchange(ended_, false)) return;
      if (input_.empty()) {
        pass_read_end();
      } else {
        fail_reading(errc::truncated, "the peer ended in the middle of a frame");
      }
      return;
    }
    input_.drop_front(kPrefixBytes);
    Chain frame = input_.split_front(*std::exchange(frame_bytes_, std::nullopt));
    pass(std::move(frame));
  }
}

void LengthPrefixCodec::on_write(Chain&& frame) {
  constexpr std::size_t kPrefixMax = std::numeric_limits<std::uint32_t>::max();
  if (frame.size() > std::min(options_.max_frame_bytes, kPrefixMax)) {
    pass_error(make_error_code(errc::limit_exceeded), above_limit(frame.size()));
    return;
  }
  if (prefixes_.size() < kPrefixBytes) {
    prefixes_ = channel().loop().pool().allocate(kPrefixBlockBytes);
    if (!prefixes_) {
      pass_error(make_error_code(errc::pool_exhausted), "no block for the prefix of a frame");
      return;
    }
  }
  const auto frame_bytes = static_cast<std::uint32_t>(frame.size());
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    prefixes_.data()[i] = static_cast<std::byte>(frame_bytes >> (8 * (kPrefixBytes - 1 - i)));
  }
  frame.prepend(prefixes_.freeze(kPrefixBytes));
  write(std::move(frame));
}

void LengthPrefixCodec::fail_reading(errc code, std::string_view detail) {
  failed_ = true;
  input_.clear();
  pass_error(make_error_code(code), detail);
}

std::string LengthPrefixCodec::above_limit(std::size_t frame_bytes) const {
  return "a frame of " + std::to_string(frame_bytes) + " bytes is above max_frame_bytes, " +
         std::to_string(options_.max_frame_bytes);
}

}  // namespace linkspan
