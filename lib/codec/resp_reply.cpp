// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/resp_reply.hpp"

#include <charconv>
#include <string>
#include <utility>

namespace linkspan {
namespace {

constexpr std::size_t kValuesKept = 1024;  // memory for more is given back
constexpr std::size_t kLineEndBytes = 2;
constexpr char kAttribute = '|';

FrameStep malformed(std::string what) {
  return FrameStep::error(errc::malformed, std::move(what));
}

FrameStep above(const char* what, const char* limit, std::size_t value) {
  return FrameStep::error(errc::limit_exceeded,
                          std::string(what) + " above " + limit + ", " + std::to_string(value));
}

FrameStep go_on() {
  return FrameStep::frame(1);
}

bool is_number(std::string_view text, std::int64_t& value) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

// --- RespReply --------------------------------------------------------------------------------------------

std::string_view RespReply::put_together(std::size_t index) {
  Node& node = nodes_[index];
  together_.append(bytes_.share(node.offset, node.size).flatten(CopyPlace::framing));
  node.data = together_.back().view().data();
  return {node.data, node.size};
}

void RespReply::clear() noexcept {
  bytes_.clear();
  together_.clear();
  nodes_.clear();
  if (nodes_.capacity() > kValuesKept) std::vector<Node>().swap(nodes_);
}

std::optional<double> RespValue::real() const {
  const std::string_view digits = text();
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::size_t RespValue::size() const noexcept {
  switch (type()) {
    case RespType::array:
    case RespType::map:
    case RespType::set:
    case RespType::push: return static_cast<std::size_t>(integer());
    default: return 0;
  }
}

// --- RespReplyDecoder -------------------------------------------------------------------------------------

RespReplyDecoder::~RespReplyDecoder() = default;

FrameStep RespReplyDecoder::next(const Chain& input) {
  complete_ = false;
  while (!complete_) {
    FrameStep step = bulk_bytes_ == kNoBulk ? next_value(input) : next_bulk(input);
    if (step.kind != FrameStep::Kind::frame) return step;
    if (position_.offset() > limits_.max_reply_bytes) {
      return above("a reply is", "max_reply_bytes", limits_.max_reply_bytes);
    }
  }
  const std::size_t size = position_.offset();
  position_.restart();
  line_end_.restart();
  return FrameStep::frame(size);
}

FrameStep RespReplyDecoder::next_value(const Chain& input) {
  const std::string_view here = position_.contiguous(input);
  if (here.empty()) return FrameStep::wait(input.size() + 1);
  if (reply_.nodes_.size() >= limits_.max_values) {
    return above("a reply's values are", "max_values", limits_.max_values);
  }
  switch (const char sign = here.front()) {
    case '+':
    case '-':
    case ':':
    case '_':
    case '#':
    case ',':
    case '(': return next_line(input, sign);
    case '$':
    case '!':
    case '=':
    case '*':
    case '%':
    case '~':
    case '>':
    case kAttribute: return next_length(input, sign);
    default: return malformed(std::string("a value begins with '") + sign + "'");
  }
}

FrameStep RespReplyDecoder::next_line(const Chain& input, char sign) {
  if (line_end_.offset() <= position_.offset()) {
    line_end_ = position_;
    line_end_.skip(input, 1);
  }
  for (;;) {
    const std::string_view here = line_end_.contiguous(input);
    const std::size_t at = here.find('\n');
    const bool ended = at != std::string_view::npos;
    line_end_.skip(input, ended ? at + 1 : here.size());
    const std::size_t searched = line_end_.offset() - position_.offset() - 1;
    if (searched > limits_.max_line_bytes + (ended ? kLineEndBytes : 1)) {
      return above("a line is", "max_line_bytes", limits_.max_line_bytes);
    }
    if (ended) break;
    if (line_end_.offset() == input.size()) return FrameStep::wait(input.size() + 1);
  }
  const std::size_t begin = position_.offset() + 1;
  const std::size_t whole = line_end_.offset() - begin;  // with its end
  position_.skip(input, 1);
  const std::string_view here = position_.contiguous(input);
  if (whole < kLineEndBytes) return malformed("a line ends without \\r");
  const std::size_t size = whole - kLineEndBytes;
  const char* data = here.size() >= size ? here.data() : nullptr;
  position_.skip(input, size);
  if (!position_.skip_line_end(input)) return malformed("a line ends without \\r");
  reply_.nodes_.push_back({data, size, begin, 0, 0, static_cast<RespType>(sign)});

  if (sign == '+' || sign == '-') return value_done();
  // The others are short, and looked at.
  RespReply::Node& node = reply_.nodes_.back();
  const std::string gathered = data != nullptr ? std::string() : input.share(begin, size).to_string();
  const std::string_view text = data != nullptr ? std::string_view(data, size) : gathered;
  switch (sign) {
    case ':':
      if (!is_number(text, node.number)) return malformed("an integer that is none");
      break;
    case '#':
      if (text != "t" && text != "f") return malformed("a boolean that is neither t nor f");
      node.number = text == "t" ? 1 : 0;
      break;
    case '_':
      if (!text.empty()) return malformed("a null with a text");
      break;
    default: break;
  }
  return value_done();
}

FrameStep RespReplyDecoder::next_length(const Chain& input, char sign) {
  const detail::RespInput::Number length = position_.read_number(input);
  switch (length.outcome) {
    case detail::RespInput::Outcome::ok: break;
    case detail::RespInput::Outcome::wait: return FrameStep::wait(input.size() + 1);
    case detail::RespInput::Outcome::too_long: return malformed("a length of too many digits");
    case detail::RespInput::Outcome::malformed: return malformed("a length that is no number");
  }
  if (length.value == -1 && (sign == '$' || sign == '*')) {
    reply_.nodes_.push_back({nullptr, 0, position_.offset(), 0, 0, RespType::null});
    return value_done();
  }
  if (length.value < 0) return malformed("a negative length");
  if (sign != '$' && sign != '!' && sign != '=') return open_array(sign, length.value);
  const auto size = static_cast<std::size_t>(length.value);
  if (size > limits_.max_bulk_bytes) return above("a string is", "max_bulk_bytes", limits_.max_bulk_bytes);
  if (size > limits_.max_reply_bytes || position_.offset() > limits_.max_reply_bytes - size) {
    return above("a reply is", "max_reply_bytes", limits_.max_reply_bytes);
  }
  bulk_bytes_ = length.value;
  bulk_sign_ = sign;
  return go_on();
}

FrameStep RespReplyDecoder::next_bulk(const Chain& input) {
  const auto size = static_cast<std::size_t>(bulk_bytes_);
  const std::size_t begin = position_.offset();
  if (input.size() < begin + size + kLineEndBytes) return FrameStep::wait(begin + size + kLineEndBytes);
  const std::string_view here = position_.contiguous(input);
  reply_.nodes_.push_back(
      {here.size() >= size ? here.data() : nullptr, size, begin, 0, 0, static_cast<RespType>(bulk_sign_)});
  position_.skip(input, size);
  if (!position_.skip_line_end(input)) return malformed("no \\r\\n behind a string");
  bulk_bytes_ = kNoBulk;
  return value_done();
}

FrameStep RespReplyDecoder::open_array(char sign, std::int64_t length) {
  const bool pairs = sign == '%' || sign == kAttribute;
  const std::size_t values_left = limits_.max_values - reply_.nodes_.size();
  const auto count = static_cast<std::size_t>(length);
  if (count > values_left / (pairs ? 2 : 1)) {
    return above("a reply's values are", "max_values", limits_.max_values);
  }
  if (open_.size() >= limits_.max_depth) {
    return above("a reply's depth is", "max_depth", limits_.max_depth);
  }
  const std::size_t values = pairs ? 2 * count : count;
  if (values == 0 && sign == kAttribute) return go_on();
  reply_.nodes_.push_back(
      {nullptr, 0, position_.offset(), static_cast<std::int64_t>(values), 0, static_cast<RespType>(sign)});
  if (values == 0) return value_done();
  open_.push_back({reply_.nodes_.size() - 1, values});
  return go_on();
}

// The last node is whole; so are perhaps the arrays that it is the last value of.
FrameStep RespReplyDecoder::value_done() {
  std::vector<RespReply::Node>& nodes = reply_.nodes_;
  nodes.back().next = nodes.size();
  while (!open_.empty()) {
    if (--open_.back().values_left != 0) return go_on();
    const std::size_t array = open_.back().node;
    open_.pop_back();
    nodes[array].next = nodes.size();
    if (nodes[array].type == static_cast<RespType>(kAttribute)) {
      nodes.resize(array);  // the value that it describes comes next
      return go_on();
    }
  }
  complete_ = true;
  return go_on();
}

void RespReplyDecoder::pass_frame(Chain&& frame) {
  struct Cleared {  // also when a handler throws
    RespReply& reply;
    ~Cleared() { reply.clear(); }
  } const cleared{reply_};
  reply_.bytes_ = std::move(frame);
  pass(std::move(reply_));
}

}  // namespace linkspan
