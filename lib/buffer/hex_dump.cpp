// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/hex_dump.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "linkspan/buffer/cursor.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kBytesPerLine = 16;

void append_hex(std::string& text, std::size_t value, unsigned digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  while (digits-- != 0) text += kDigits[(value >> (4 * digits)) & 15];
}

}  // namespace

std::string hex_dump(const Chain& chain, std::size_t max_bytes) {
  constexpr unsigned kOffsetDigits = 8;
  std::string text;
  Cursor cursor(chain);
  while (cursor.remaining() != 0 && cursor.position() < max_bytes) {
    const std::size_t size = std::min({kBytesPerLine, cursor.remaining(), max_bytes - cursor.position()});
    append_hex(text, cursor.position(), kOffsetDigits);
    text += "  ";
    std::array<char, kBytesPerLine> readable;
    for (std::size_t i = 0; i < kBytesPerLine; ++i) {
      if (i == kBytesPerLine / 2) text += ' ';
      if (i >= size) {
        text += "   ";
        continue;
      }
      const auto byte = cursor.read_big_endian<std::uint8_t>().value_or(0);
      append_hex(text, byte, 2);
      text += ' ';
      readable[i] = byte >= ' ' && byte <= '~' ? static_cast<char>(byte) : '.';
    }
    text += " |";
    text.append(readable.data(), size);
    text += "|\n";
  }
  if (cursor.remaining() != 0) text += "... and " + std::to_string(cursor.remaining()) + " more bytes\n";
  return text;
}

}  // namespace linkspan
