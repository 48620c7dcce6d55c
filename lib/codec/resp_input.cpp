// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/resp_input.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace linkspan::detail {

RespInput::Number RespInput::read_any_number(const Chain& input) noexcept {
  std::array<char, kNumberLineMostBytes> line;
  std::size_t size = 0;
  RespInput ahead = *this;
  while (size != line.size()) {
    const std::string_view here = ahead.contiguous(input);
    if (here.empty()) return {Outcome::wait, 0};
    if (here.front() == '\n' && size != 0 && line[size - 1] == '\r') break;
    line[size++] = here.front();
    ahead.skip(input, 1);
  }
  if (size == line.size()) return {Outcome::too_long, 0};
  const std::string_view digits(line.data() + 1, size - 2);  // between the sign and \r
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const std::size_t minus = digits.starts_with('-') ? 1 : 0;
  const bool leading_zero = digits.size() > minus && digits[minus] == '0' && digits.size() != 1;
  if (size < 3 || error != std::errc() || end != digits.data() + digits.size() || leading_zero) {
    return {Outcome::malformed, 0};
  }
  ahead.skip(input, 1);
  *this = ahead;
  return {Outcome::ok, value};
}

}  // namespace linkspan::detail
