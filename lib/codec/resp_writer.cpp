// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/resp_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace linkspan {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

}  // namespace

void RespWriter::simple_string(std::string_view text) {
  line('+', text);
}

void RespWriter::error(std::string_view text) {
  if (text.find_first_of(kLineEnd) == std::string_view::npos) return line('-', text);
  std::string clean(text);
  for (char& c : clean) {
    if (c == '\r' || c == '\n') c = ' ';
  }
  line('-', clean);
}

void RespWriter::line(char sign, std::string_view text) {
  if (text.size() >= writer_.options().reference_threshold_bytes) {
    if (!room(1)) return;
    *next_++ = static_cast<std::byte>(sign);
    close();
    writer_.write(text);
    if (room(kLineEnd.size())) put(kLineEnd);
    return;
  }
  if (!room(1 + text.size() + kLineEnd.size())) return;
  *next_++ = static_cast<std::byte>(sign);
  put(text);
  put(kLineEnd);
}

void RespWriter::bulk(std::string_view bytes) {
  if (bytes.size() >= writer_.options().reference_threshold_bytes) {
    number('$', static_cast<std::int64_t>(bytes.size()));
    close();
    writer_.write(bytes);
    if (room(kLineEnd.size())) put(kLineEnd);
    return;
  }
  if (!room(kNumberMostBytes + bytes.size() + kLineEnd.size())) return;
  put_number('$', static_cast<std::int64_t>(bytes.size()));
  put(bytes);
  put(kLineEnd);
}

void RespWriter::bulk(Chain&& bytes) {
  if (bytes.slice_count() == 1 && bytes.size() < writer_.options().reference_threshold_bytes) {
    return bulk(bytes.front().view());
  }
  number('$', static_cast<std::int64_t>(bytes.size()));
  close();
  writer_.append(std::move(bytes));
  if (room(kLineEnd.size())) put(kLineEnd);
}

void RespWriter::null() {
  const std::string_view text = version_ == RespVersion::two ? "$-1\r\n" : "_\r\n";
  if (room(text.size())) put(text);
}

void RespWriter::null_array() {
  const std::string_view text = version_ == RespVersion::two ? "*-1\r\n" : "_\r\n";
  if (room(text.size())) put(text);
}

void RespWriter::map(std::size_t pairs) {
  if (version_ == RespVersion::two) return array(2 * pairs);
  number('%', static_cast<std::int64_t>(pairs));
}

void RespWriter::set(std::size_t values) {
  number(version_ == RespVersion::two ? '*' : '~', static_cast<std::int64_t>(values));
}

void RespWriter::push(std::size_t values) {
  number(version_ == RespVersion::two ? '*' : '>', static_cast<std::int64_t>(values));
}

void RespWriter::boolean(bool value) {
  if (version_ == RespVersion::two) return integer(value ? 1 : 0);
  line('#', value ? "t" : "f");
}

void RespWriter::real(double value) {
  std::array<char, 32> digits;
  std::string_view text;
  if (std::isnan(value)) {
    text = "nan";
  } else if (std::isinf(value)) {
    text = value > 0 ? "inf" : "-inf";
  } else {
    const auto result = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    text = {digits.data(), static_cast<std::size_t>(result.ptr - digits.data())};
  }
  if (version_ == RespVersion::two) return bulk(text);
  line(',', text);
}

void RespWriter::verbatim(std::string_view format, std::string_view text) {
  if (version_ == RespVersion::two) return bulk(text);
  LINKSPAN_ASSERT(format.size() == 3, "a format has three letters");
  number('=', static_cast<std::int64_t>(format.size() + 1 + text.size()));
  if (!room(format.size() + 1)) return;
  put(format);
  put(":");
  close();
  writer_.write(text);
  if (room(kLineEnd.size())) put(kLineEnd);
}

void RespWriter::command(std::span<const std::string_view> arguments) {
  array(arguments.size());
  for (const std::string_view argument : arguments) bulk(argument);
}

Chain RespWriter::take() {
  close();
  return writer_.take();
}

// --- the open block ---------------------------------------------------------------------------------------

bool RespWriter::make_room(std::size_t bytes) {
  close();
  const std::span<std::byte> free = writer_.reserve(bytes);
  if (free.empty()) return false;
  begin_ = next_ = free.data();
  end_ = begin_ + free.size();
  return true;
}

void RespWriter::close() {
  if (next_ != begin_) writer_.commit(static_cast<std::size_t>(next_ - begin_));
  begin_ = next_ = end_ = nullptr;
}

void RespWriter::number(char sign, std::int64_t value) {
  if (room(kNumberMostBytes)) put_number(sign, value);
}

void RespWriter::put_number(char sign, std::int64_t value) noexcept {
  char* const to = reinterpret_cast<char*>(next_);
  *to = sign;
  char* const end = std::to_chars(to + 1, to + kNumberMostBytes, value).ptr;
  next_ += end - to;
  put(kLineEnd);
}

void RespWriter::put(std::string_view text) noexcept {
  if (text.empty()) return;
  copy_bytes(next_, text.data(), text.size(), CopyPlace::below_threshold);
  next_ += text.size();
}

}  // namespace linkspan
