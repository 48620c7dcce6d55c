// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/line_codec.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/buffer/cursor.hpp"

namespace linkspan {
namespace {

FrameStep above_limit(std::size_t max_line_bytes) {
  return FrameStep::error(errc::limit_exceeded,
                          "a line is above max_line_bytes, " + std::to_string(max_line_bytes));
}

std::size_t ending_bytes(const Chain& line) {
  if (line.empty() || line.back().view().back() != '\n') return 0;
  Cursor cursor(line);
  cursor.skip(line.size() - std::min<std::size_t>(line.size(), 2));
  return cursor.starts_with("\r") ? 2 : 1;
}

}  // namespace

LineCodec::~LineCodec() = default;

FrameStep LineCodec::next(const Chain& input) {
  for (; searched_slices_ != input.slice_count(); ++searched_slices_) {
    const std::string_view text = input[searched_slices_].view();
    const std::size_t at = text.find('\n');
    if (at != std::string_view::npos) {
      const bool carriage_return = at == 0 ? after_carriage_return_ : text[at - 1] == '\r';
      const std::size_t end_bytes = carriage_return ? 2 : 1;
      const std::size_t size = searched_bytes_ + at + 1;
      searched_slices_ = searched_bytes_ = 0;
      after_carriage_return_ = false;
      if (size - end_bytes > options_.max_line_bytes) return above_limit(options_.max_line_bytes);
      return FrameStep::frame(size, 0, options_.strip ? end_bytes : 0);
    }
    searched_bytes_ += text.size();
    after_carriage_return_ = text.back() == '\r';
  }
  // One byte more may be the \r of its end.
  if (searched_bytes_ > options_.max_line_bytes && searched_bytes_ - options_.max_line_bytes > 1) {
    return above_limit(options_.max_line_bytes);
  }
  return FrameStep::wait(input.size() + 1);
}

void LineCodec::on_write(Chain&& line) {
  const std::size_t end_bytes = options_.strip ? 0 : ending_bytes(line);
  if (line.size() - end_bytes > options_.max_line_bytes) {
    const FrameStep step = above_limit(options_.max_line_bytes);
    pass_error(make_error_code(step.code), step.detail);
    return;
  }
  if (options_.strip) line.append(Slice::immortal(options_.send_carriage_return ? "\r\n" : "\n"));
  write(std::move(line));
}

}  // namespace linkspan
