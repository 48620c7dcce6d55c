// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/buffer/checksum.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace linkspan;

namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The definition, bit by bit.
std::uint32_t by_definition(std::uint32_t polynomial, std::span<const std::byte> data) {
  std::uint32_t state = 0xFFFFFFFF;
  for (const std::byte byte : data) {
    state ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? polynomial : 0);
  }
  return ~state;
}

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937 generator(static_cast<unsigned>(size) + 1);
  std::vector<std::byte> made(size);
  for (std::byte& byte : made) byte = static_cast<std::byte>(generator());
  return made;
}

}  // namespace

TEST_CASE("checksums are those that the standards give as examples") {
  CHECK(crc32(bytes("")) == 0);
  CHECK(crc32(bytes("123456789")) == 0xCBF43926);
  CHECK(crc32c(bytes("")) == 0);
  CHECK(crc32c(bytes("123456789")) == 0xE3069283);
  CHECK(crc32c(bytes(std::string(32, '\0'))) == 0x8A9136AA);  // RFC 3720, B.4
  CHECK(crc32c(bytes(std::string(32, '\xff'))) == 0x62A8AB43);
}

TEST_CASE("both ways to compute a checksum agree with its definition at every length and place") {
  const std::vector<std::byte> data = random_bytes(700);
  for (std::size_t offset : {0, 1, 7, 15}) {
    for (std::size_t size = 0; size + offset <= data.size(); size += size < 300 ? 1 : 37) {
      const auto part = std::span(data).subspan(offset, size);
      for (const auto& [kind, polynomial] :
           {std::pair(ChecksumKind::crc32, 0xEDB88320U), std::pair(ChecksumKind::crc32c, 0x82F63B78U)}) {
        const std::uint32_t wanted = by_definition(polynomial, part);
        REQUIRE(~detail::crc_by_tables(kind, ~0U, part.data(), part.size()) == wanted);
        if (detail::has_carryless_multiplication()) {
          REQUIRE(~detail::crc_by_multiplication(kind, ~0U, part.data(), part.size()) == wanted);
        }
        REQUIRE(checksum(kind, part) == wanted);
      }
    }
  }
}

TEST_CASE("a checksum goes on where another one has ended, also from slice to slice") {
  const std::vector<std::byte> data = random_bytes(5000);
  for (const ChecksumKind kind : {ChecksumKind::crc32, ChecksumKind::crc32c}) {
    const std::uint32_t whole = checksum(kind, data);
    for (std::size_t cut = 0; cut <= data.size(); cut += 113) {
      const auto front = std::span(data).first(cut);
      const auto back = std::span(data).subspan(cut);
      CHECK(checksum(kind, back, checksum(kind, front)) == whole);
      Chain chain(Slice::copy(front));
      chain.append(Slice::copy(back));
      CHECK(checksum(kind, chain) == whole);
    }
  }
  CHECK(checksum(ChecksumKind::none, data) == 0);
  CHECK(checksum(ChecksumKind::none, Chain(Slice::copy(data)), 7) == 0);
}

TEST_CASE("every changed bit changes a checksum") {
  std::vector<std::byte> data = random_bytes(200);
  for (const ChecksumKind kind : {ChecksumKind::crc32, ChecksumKind::crc32c}) {
    const std::uint32_t before = checksum(kind, data);
    for (std::size_t bit = 0; bit < 8 * data.size(); ++bit) {
      data[bit / 8] ^= std::byte{1} << (bit % 8);
      CHECK(checksum(kind, data) != before);
      data[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}
