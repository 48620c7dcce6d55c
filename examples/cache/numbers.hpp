// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Numbers as Redis reads them: no plus, no leading zeros, no spaces.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace linkspan::cache {

template <std::integral T = long long>
std::optional<T> parse_number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::size_t sign = text.starts_with('-') ? 1 : 0;
  const bool padded = text.size() > sign && text[sign] == '0' && text.size() != 1;
  if (error != std::errc() || end != text.data() + text.size() || padded) return std::nullopt;
  return value;
}

}  // namespace linkspan::cache
