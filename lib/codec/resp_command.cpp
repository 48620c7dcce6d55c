// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/resp_command.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace linkspan {
namespace {

constexpr std::size_t kRestrictedArguments = 10;
constexpr std::size_t kRestrictedBulkBytes = std::size_t{16} << 10;
constexpr std::size_t kArgumentsKept = 1024;  // memory for more is given back
constexpr std::size_t kLineEndBytes = 2;

FrameStep protocol_error(errc code, std::string what) {
  return FrameStep::error(code, "Protocol error: " + std::move(what));
}

bool is_space(char c) noexcept {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Reads what is between double quotes, and the one that ends it; false when that is missing, or something
/// else than white space follows.
bool read_quoted(std::string_view& line, std::string& out) {
  while (!line.empty()) {
    const char c = line.front();
    line.remove_prefix(1);
    if (c == '"') return line.empty() || is_space(line.front());
    if (c != '\\' || line.empty()) {
      out += c;
      continue;
    }
    if (line.front() == 'x' && line.size() >= 3 && hex_digit(line[1]) >= 0 && hex_digit(line[2]) >= 0) {
      out += static_cast<char>(hex_digit(line[1]) * 16 + hex_digit(line[2]));
      line.remove_prefix(3);
      continue;
    }
    constexpr std::string_view kNames = "nrtba";
    constexpr std::string_view kMeanings = "\n\r\t\b\a";
    const std::size_t known = kNames.find(line.front());
    out += known == std::string_view::npos ? line.front() : kMeanings[known];
    line.remove_prefix(1);
  }
  return false;
}

/// The same between single quotes, where only \' has a meaning.
bool read_single_quoted(std::string_view& line, std::string& out) {
  while (!line.empty()) {
    if (line.starts_with("\\'")) {
      out += '\'';
      line.remove_prefix(2);
      continue;
    }
    const char c = line.front();
    line.remove_prefix(1);
    if (c == '\'') return line.empty() || is_space(line.front());
    out += c;
  }
  return false;
}

}  // namespace

std::string_view RespCommand::put_together(std::size_t index) {
  Argument& argument = arguments_[index];
  together_.append(chain(index).flatten(CopyPlace::framing));
  argument.data = together_.back().view().data();
  return {argument.data, argument.size};
}

void RespCommand::clear() noexcept {
  bytes_.clear();
  together_.clear();
  arguments_.clear();
  if (arguments_.capacity() > kArgumentsKept) std::vector<Argument>().swap(arguments_);
}

RespCommandDecoder::~RespCommandDecoder() = default;

FrameStep RespCommandDecoder::next(const Chain& input) {
  if (arguments_left_ == kUnknown) {
    if (input.front().view().front() != '*') return next_inline(input);
    const FrameStep step = begin(input);
    if (arguments_left_ == kUnknown) return step;
  }
  while (arguments_left_ != 0) {
    FrameStep step = next_bulk(input);
    if (step.kind != FrameStep::Kind::frame) return step;
    --arguments_left_;
  }
  arguments_left_ = kUnknown;
  const std::size_t size = position_.offset();
  position_.restart();
  return FrameStep::frame(size);
}

// The number of arguments; nothing has come of them so far.
FrameStep RespCommandDecoder::begin(const Chain& input) {
  const detail::RespInput::Number count = position_.read_number(input);
  switch (count.outcome) {
    case detail::RespInput::Outcome::ok: break;
    case detail::RespInput::Outcome::wait: return FrameStep::wait(input.size() + 1);
    case detail::RespInput::Outcome::too_long:
      return protocol_error(errc::limit_exceeded, "too big mbulk count string");
    case detail::RespInput::Outcome::malformed:
      return protocol_error(errc::malformed, "invalid multibulk length");
  }
  const auto arguments = static_cast<std::size_t>(std::max<std::int64_t>(count.value, 0));
  if (arguments > limits_.max_arguments) {
    return protocol_error(errc::limit_exceeded, "invalid multibulk length");
  }
  if (restricted_ && arguments > kRestrictedArguments) {
    return protocol_error(errc::limit_exceeded, "unauthenticated multibulk length");
  }
  arguments_left_ = static_cast<std::int64_t>(arguments);
  return FrameStep::wait(0);
}

// One argument; a frame step means that it is there.
FrameStep RespCommandDecoder::next_bulk(const Chain& input) {
  if (bulk_bytes_ == kUnknown) {
    const std::string_view here = position_.contiguous(input);
    if (here.empty()) return FrameStep::wait(input.size() + 1);
    if (here.front() != '$') {
      return protocol_error(errc::malformed, std::string("expected '$', got '") + here.front() + "'");
    }
    const detail::RespInput::Number length = position_.read_number(input);
    if (length.outcome == detail::RespInput::Outcome::wait) return FrameStep::wait(input.size() + 1);
    if (length.outcome == detail::RespInput::Outcome::too_long) {
      return protocol_error(errc::limit_exceeded, "too big bulk count string");
    }
    if (length.outcome == detail::RespInput::Outcome::malformed || length.value < 0) {
      return protocol_error(errc::malformed, "invalid bulk length");
    }
    const auto size = static_cast<std::size_t>(length.value);
    if (size > limits_.max_bulk_bytes) return protocol_error(errc::limit_exceeded, "invalid bulk length");
    if (restricted_ && size > kRestrictedBulkBytes) {
      return protocol_error(errc::limit_exceeded, "unauthenticated bulk length");
    }
    if (size > limits_.max_command_bytes ||
        position_.offset() + kLineEndBytes > limits_.max_command_bytes - size) {
      return protocol_error(errc::limit_exceeded, "a command is above max_command_bytes, " +
                                                      std::to_string(limits_.max_command_bytes));
    }
    bulk_bytes_ = length.value;
  }
  const auto size = static_cast<std::size_t>(bulk_bytes_);
  const std::size_t begin = position_.offset();
  if (input.size() < begin + size + kLineEndBytes) return FrameStep::wait(begin + size + kLineEndBytes);
  const std::string_view here = position_.contiguous(input);
  command_.arguments_.push_back({here.size() >= size ? here.data() : nullptr, size, begin});
  position_.skip(input, size);
  if (!position_.skip_line_end(input)) {
    return protocol_error(errc::malformed, "expected \\r\\n behind a bulk string");
  }
  bulk_bytes_ = kUnknown;
  return FrameStep::frame(size);
}

FrameStep RespCommandDecoder::next_inline(const Chain& input) {
  for (;;) {
    const std::string_view here = position_.contiguous(input);
    const std::size_t at = here.find('\n');
    const bool ended = at != std::string_view::npos;
    position_.skip(input, ended ? at + 1 : here.size());
    if (position_.offset() > limits_.max_inline_bytes + (ended ? 1 : 0)) {
      return protocol_error(errc::limit_exceeded, "too big inline request");
    }
    if (ended) break;
    if (position_.offset() == input.size()) return FrameStep::wait(input.size() + 1);
  }
  const std::size_t size = position_.offset();
  position_.restart();
  std::string line(size - 1, '\0');
  input.copy_to(std::as_writable_bytes(std::span(line)), 0, CopyPlace::framing);
  if (!split_line(line)) return protocol_error(errc::malformed, "unbalanced quotes in request");
  return FrameStep::frame(size, command_.arguments_.empty() ? size : 0);
}

// As Redis splits it: quotes and escapes, and an end at a zero byte.
bool RespCommandDecoder::split_line(std::string_view line) {
  line = line.substr(0, line.find('\0'));
  line_.clear();
  for (;;) {
    while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
    if (line.empty()) return true;
    const std::size_t begin = line_.size();
    while (!line.empty() && !is_space(line.front())) {
      const char c = line.front();
      line.remove_prefix(1);
      if (c == '"') {
        if (!read_quoted(line, line_)) return false;
        break;
      }
      if (c == '\'') {
        if (!read_single_quoted(line, line_)) return false;
        break;
      }
      line_ += c;
    }
    command_.arguments_.push_back({nullptr, line_.size() - begin, begin});
  }
}

void RespCommandDecoder::pass_frame(Chain&& frame) {
  struct Cleared {  // also when a handler throws
    RespCommand& command;
    ~Cleared() { command.clear(); }
  } const cleared{command_};
  if (command_.arguments_.empty()) return;  // an array of none, or a line of white space
  if (frame.front().view().front() == '*') {
    command_.bytes_ = std::move(frame);
  } else {
    // Empty arguments have to point somewhere, too.
    line_ += '\0';
    Slice slice = Slice::adopt(std::exchange(line_, {}));
    for (RespCommand::Argument& argument : command_.arguments_) {
      argument.data = slice.view().data() + argument.offset;
    }
    command_.bytes_.append(std::move(slice));
  }
  pass(std::move(command_));
}

}  // namespace linkspan
