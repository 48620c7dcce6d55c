// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/cursor.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "linkspan/buffer/chain_writer.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::chain_of;

namespace {

using Status = Cursor::VarintStatus;

// Every way to cut `text` into two pieces, and the one into single bytes.
std::vector<Chain> segmentations(std::string_view text) {
  std::vector<Chain> chains;
  chains.push_back(chain_of(text, 1));
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Chain chain(Slice::copy(text.substr(0, cut)));
    chain.append(Slice::copy(text.substr(cut)));
    chains.push_back(std::move(chain));
  }
  return chains;
}

std::string varint(std::uint64_t value) {
  ChainWriter writer(heap_allocator());
  writer.write_varint(value);
  return writer.take().to_string();
}

}  // namespace

TEST_CASE("integers are read across every border, in both byte orders") {
  for (const Chain& chain : segmentations("\x01\x82\x03\x84\x05\x86\x07\x88")) {
    CHECK(Cursor(chain).read_big_endian<std::uint64_t>() == 0x0182038405860788u);
    CHECK(Cursor(chain).read_little_endian<std::uint64_t>() == 0x8807860584038201u);
    Cursor cursor(chain);
    CHECK(cursor.read_big_endian<std::uint8_t>() == 0x01);
    CHECK(cursor.read_big_endian<std::uint16_t>() == 0x8203);
    CHECK(cursor.read_little_endian<std::uint32_t>() == 0x07860584u);
    CHECK(cursor.position() == 7);
    CHECK(cursor.remaining() == 1);
    CHECK(cursor.read_big_endian<std::uint16_t>() == std::nullopt);
    CHECK(cursor.position() == 7);
    CHECK(cursor.read_big_endian<std::uint8_t>() == 0x88);
    CHECK(cursor.read_big_endian<std::uint8_t>() == std::nullopt);
    CHECK(cursor.contiguous().empty());
  }
}

TEST_CASE("varints are read across every border, and an incomplete one leaves the position alone") {
  std::vector<std::uint64_t> values{0, std::numeric_limits<std::uint64_t>::max()};
  for (unsigned bits = 0; bits < 64; ++bits) {
    values.push_back(std::uint64_t{1} << bits);
    values.push_back((std::uint64_t{1} << bits) - 1);
  }
  for (const std::uint64_t value : values) {
    const std::string encoded = varint(value);
    for (const Chain& chain : segmentations("x" + encoded + "y")) {
      Cursor cursor(chain);
      cursor.skip(1);
      const Cursor::Varint read = cursor.read_varint();
      REQUIRE(read.status == Status::ok);
      REQUIRE(read.value == value);
      REQUIRE(cursor.position() == 1 + encoded.size());
    }
    for (std::size_t size = 0; size < encoded.size(); ++size) {
      const Chain chain = chain_of(encoded.substr(0, size), 1);
      Cursor cursor(chain);
      REQUIRE(cursor.read_varint().status == Status::incomplete);
      REQUIRE(cursor.position() == 0);
    }
  }
}

TEST_CASE("a varint of more than 10 bytes or 64 bits is malformed and leaves the position alone") {
  const std::string nine(9, '\xff');
  for (const std::string& text : {nine + "\x02", nine + "\x81", nine + "\x80\x01", nine + "\xff\xff\x01"}) {
    for (const Chain& chain : segmentations(text)) {
      Cursor cursor(chain);
      CHECK(cursor.read_varint().status == Status::malformed);
      CHECK(cursor.position() == 0);
    }
  }
  const Chain largest = chain_of(nine + "\x01", 3);
  Cursor cursor(largest);
  CHECK(cursor.read_varint().value == std::numeric_limits<std::uint64_t>::max());
  const Chain padded = chain_of(std::string_view("\x80\x80\x00", 3), 1);
  CHECK(Cursor(padded).read_varint().status == Status::ok);
}

TEST_CASE("find gives the distance from the position to the next byte") {
  for (const Chain& chain : segmentations("GET /\nHost\n")) {
    Cursor cursor(chain);
    CHECK(cursor.find(std::byte{'G'}) == 0);
    CHECK(cursor.find(std::byte{'\n'}) == 5);
    cursor.skip(6);
    CHECK(cursor.find(std::byte{'\n'}) == 4);
    CHECK(cursor.find(std::byte{'G'}) == std::nullopt);
    cursor.skip(5);
    CHECK(cursor.find(std::byte{'\n'}) == std::nullopt);
  }
  const Chain empty;
  CHECK(Cursor(empty).find(std::byte{0}) == std::nullopt);
}

TEST_CASE("take shares memory, copy_to copies, and both move on") {
  const std::string text = "0123456789";
  for (const Chain& chain : segmentations(text)) {
    for (std::size_t first = 0; first <= text.size(); ++first) {
      for (std::size_t second = 0; second <= text.size() - first; ++second) {
        const CopyScope scope;
        Cursor cursor(chain);
        const Chain front = cursor.take(first);
        const Chain middle = cursor.take(second);
        REQUIRE(scope.copied().total() == 0);
        REQUIRE(front == text.substr(0, first));
        REQUIRE(middle == text.substr(first, second));
        std::string rest(cursor.remaining(), '\0');
        cursor.copy_to(std::as_writable_bytes(std::span(rest)));
        REQUIRE(rest == text.substr(first + second));
        REQUIRE(cursor.remaining() == 0);
      }
    }
  }
}

TEST_CASE("contiguous ends where the slice ends") {
  const Chain chain = chain_of("abcdef", 4);
  Cursor cursor(chain);
  CHECK(cursor.contiguous().size() == 4);
  cursor.skip(3);
  CHECK(cursor.contiguous().size() == 1);
  cursor.skip(1);
  CHECK(cursor.contiguous().size() == 2);
  cursor.skip(0);
  CHECK(cursor.contiguous().size() == 2);
}

TEST_CASE("signed integers and zigzag varints are read as they were written, across every border") {
  const std::array<std::int64_t, 8> values{0,
                                           -1,
                                           1,
                                           -64,
                                           64,
                                           -300,
                                           std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::int64_t>::max()};
  ChainWriter writer(heap_allocator());
  for (const std::int64_t value : values) {
    writer.write_zigzag(value);
    writer.write_big_endian(value);
    writer.write_little_endian(static_cast<std::int16_t>(value));
  }
  const std::string text = writer.take().to_string();
  for (std::size_t piece = 1; piece < 20; ++piece) {
    const Chain chain = chain_of(text, piece);
    Cursor cursor(chain);
    for (const std::int64_t value : values) {
      const Cursor::Zigzag zigzag = cursor.read_zigzag();
      CHECK(zigzag.status == Cursor::VarintStatus::ok);
      CHECK(zigzag.value == value);
      CHECK(cursor.read_big_endian<std::int64_t>() == value);
      CHECK(cursor.read_little_endian<std::int16_t>() == static_cast<std::int16_t>(value));
    }
    CHECK(cursor.remaining() == 0);
    CHECK_FALSE(cursor.read_big_endian<std::int8_t>());
    CHECK(cursor.read_zigzag().status == Cursor::VarintStatus::incomplete);
  }
}

TEST_CASE("the zigzag of sint64 is that of protobuf") {
  ChainWriter writer(heap_allocator());
  for (const std::int64_t value : {0, -1, 1, -2, 2147483647}) writer.write_zigzag(value);
  CHECK(writer.take() == std::string_view("\x00\x01\x02\x03\xfe\xff\xff\xff\x0f", 9));
}

TEST_CASE("a sequence is found across slices, also after a false start") {
  const std::string text = "aab\raaab\r\n\r\nrest";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    CAPTURE(piece);
    const Chain chain = chain_of(text, piece);
    Cursor cursor(chain);
    CHECK(cursor.find("aaab") == 4);
    CHECK(cursor.find("\r\n\r\n") == 8);
    CHECK(cursor.find("rest") == 12);
    CHECK(cursor.find("rest!") == std::nullopt);
    CHECK(cursor.find("") == 0);
    CHECK(cursor.find_any_of("\n\r") == 3);
    CHECK(cursor.find_any_of("xyz") == std::nullopt);
    CHECK(cursor.find_any_of("") == std::nullopt);
    CHECK(cursor.starts_with("aab"));
    CHECK_FALSE(cursor.starts_with("aac"));
    cursor.skip(5);
    CHECK(cursor.find("aab") == 0);
    CHECK(cursor.find("\r\n") == 3);
    CHECK_FALSE(cursor.starts_with(text));
  }
}
