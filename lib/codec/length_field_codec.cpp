// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/length_field_codec.hpp"

#include <array>
#include <span>
#include <utility>

#include "linkspan/buffer/cursor.hpp"
#include "linkspan/channel/channel.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kOffsetMost = 1024;
constexpr std::int64_t kAdjustmentMost = std::int64_t{1} << 31;

// 128 bits, so that no field and no adjustment overflows.
__extension__ typedef __int128 Wide;

std::string above_limit(const std::string& frame_bytes, std::size_t max_frame_bytes) {
  return "a frame of " + frame_bytes + " bytes is above max_frame_bytes, " + std::to_string(max_frame_bytes);
}

std::uint64_t field_value(Cursor& cursor, const LengthFieldOptions& options) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < options.width; ++i) {
    const std::uint64_t byte = *cursor.read_big_endian<std::uint8_t>();
    value = options.order == std::endian::big ? value << 8 | byte : value | byte << (8 * i);
  }
  return value;
}

}  // namespace

LengthFieldCodec::LengthFieldCodec(const LengthFieldOptions& options) : options_(options) {
  const auto require = [](bool holds, const char* rule) {
    if (!holds) throw Exception(Error(errc::invalid_argument, std::string("length field: ") + rule));
  };
  const std::size_t width = options.width;
  require(options.offset <= kOffsetMost, "the offset is above 1024");
  require((width >= 1 && width <= 4) || width == 8, "the width is none of 1, 2, 3, 4 and 8");
  require(options.strip_bytes <= options.offset + width, "more is stripped than the field's end");
  require(options.adjustment >= -kAdjustmentMost && options.adjustment <= kAdjustmentMost,
          "the adjustment is beyond 2 GiB");
  require(options.max_frame_bytes >= options.offset + width, "max_frame_bytes is below the header");
}

LengthFieldCodec::~LengthFieldCodec() = default;

FrameStep LengthFieldCodec::next(const Chain& input) {
  const std::size_t header_bytes = options_.offset + options_.width;
  if (input.size() < header_bytes) return FrameStep::wait(header_bytes);
  Cursor cursor(input);
  cursor.skip(options_.offset);
  const std::uint64_t value = field_value(cursor, options_);
  const Wide behind = Wide{value} + options_.adjustment;
  if (behind < 0) {
    return FrameStep::error(errc::malformed, "a length field of " + std::to_string(value) +
                                                 " is too small for an adjustment of " +
                                                 std::to_string(options_.adjustment));
  }
  if (behind > Wide{options_.max_frame_bytes - header_bytes}) {
    return FrameStep::error(errc::limit_exceeded,
                            above_limit("more than " + std::to_string(value), options_.max_frame_bytes));
  }
  return FrameStep::frame(header_bytes + static_cast<std::size_t>(behind), options_.strip_bytes);
}

void LengthFieldCodec::on_write(Chain&& frame) {
  const bool whole = options_.strip_bytes == 0;
  if (!whole && (options_.offset != 0 || options_.strip_bytes != options_.width)) {
    return fail_writing(errc::unavailable, "a header of which a part was stripped cannot be written");
  }
  const std::size_t frame_bytes = frame.size() + (whole ? 0 : options_.width);
  if (frame_bytes > options_.max_frame_bytes) {
    return fail_writing(errc::limit_exceeded,
                        above_limit(std::to_string(frame_bytes), options_.max_frame_bytes));
  }
  if (!whole) {
    const Wide value = Wide{frame.size()} - options_.adjustment;
    if (value < 0 || (options_.width < 8 && value >> (8 * options_.width) != 0)) {
      return fail_writing(errc::limit_exceeded, "a frame of " + std::to_string(frame.size()) +
                                                    " bytes does not fit into a length field of " +
                                                    std::to_string(options_.width) + " bytes");
    }
    std::array<std::byte, sizeof(std::uint64_t)> field{};
    for (std::size_t i = 0; i < options_.width; ++i) {
      const std::size_t shift = 8 * (options_.order == std::endian::big ? options_.width - 1 - i : i);
      field[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> shift);
    }
    if (!headers_.prepend(std::span(field).first(options_.width), frame, channel().loop().pool())) {
      return fail_writing(errc::pool_exhausted, "no block for the length of a frame");
    }
  }
  write(std::move(frame));
}

void LengthFieldCodec::fail_writing(errc code, const std::string& detail) {
  pass_error(make_error_code(code), detail);
}

}  // namespace linkspan
