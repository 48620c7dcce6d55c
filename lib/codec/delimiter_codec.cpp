// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/delimiter_codec.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace linkspan {

DelimiterCodec::DelimiterCodec(DelimiterOptions options) : options_(std::move(options)) {
  constexpr std::size_t kDelimitersMost = 16;
  constexpr std::size_t kDelimiterMostBytes = 64;
  const auto& delimiters = options_.delimiters;
  if (delimiters.empty() || delimiters.size() > kDelimitersMost ||
      std::ranges::any_of(delimiters, [](const std::string& delimiter) {
        return delimiter.empty() || delimiter.size() > kDelimiterMostBytes;
      })) {
    throw Exception(Error(errc::invalid_argument, "1 to 16 delimiters of 1 to 64 bytes are needed"));
  }
  for (const std::string& delimiter : delimiters) first_bytes_ += delimiter.front();
  end_ = Slice::copy(delimiters.front());
}

DelimiterCodec::~DelimiterCodec() = default;

DelimiterCodec::Match DelimiterCodec::match(const Chain& input, std::size_t slice, std::size_t offset,
                                            const std::string& delimiter) noexcept {
  std::string_view left = delimiter;
  for (; slice != input.slice_count(); ++slice, offset = 0) {
    const std::string_view text = input[slice].view().substr(offset);
    const std::size_t size = std::min(text.size(), left.size());
    if (text.substr(0, size) != left.substr(0, size)) return Match::no;
    left.remove_prefix(size);
    if (left.empty()) return Match::yes;
  }
  return Match::incomplete;
}

FrameStep DelimiterCodec::next(const Chain& input) {
  while (slice_ != input.slice_count()) {
    const std::string_view text = input[slice_].view();
    const std::size_t at = text.find_first_of(first_bytes_, offset_);
    const std::size_t end = std::min(at, text.size());
    position_ += end - offset_;
    offset_ = end;
    if (position_ > options_.max_frame_bytes) return above_limit();
    if (at == std::string_view::npos) {
      ++slice_;
      offset_ = 0;
      continue;
    }
    for (const std::string& delimiter : options_.delimiters) {
      const Match matched = match(input, slice_, offset_, delimiter);
      if (matched == Match::yes) return found(position_, delimiter.size());
      if (matched == Match::incomplete) return FrameStep::wait(input.size() + 1);
    }
    ++offset_;
    ++position_;
  }
  return position_ > options_.max_frame_bytes ? above_limit() : FrameStep::wait(input.size() + 1);
}

FrameStep DelimiterCodec::found(std::size_t at, std::size_t delimiter_bytes) {
  slice_ = offset_ = position_ = 0;
  return FrameStep::frame(at + delimiter_bytes, 0, options_.strip ? delimiter_bytes : 0);
}

FrameStep DelimiterCodec::above_limit() const {
  return FrameStep::error(errc::limit_exceeded,
                          "a frame is above max_frame_bytes, " + std::to_string(options_.max_frame_bytes));
}

void DelimiterCodec::on_write(Chain&& frame) {
  const std::size_t end_bytes = options_.strip ? 0 : std::min(frame.size(), end_.size());
  if (frame.size() - end_bytes > options_.max_frame_bytes) {
    return pass_error(make_error_code(errc::limit_exceeded), above_limit().detail);
  }
  if (options_.strip) frame.append(end_);
  write(std::move(frame));
}

}  // namespace linkspan
