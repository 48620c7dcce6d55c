// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/hex_dump.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::chain_of;

TEST_CASE("a hex dump shows offsets, bytes and text, however the bytes are cut") {
  const std::string text = std::string("GET / HTTP/1.1\r\n") + '\0' + "\x7f\xff~";
  const std::string expected =
      "00000000  47 45 54 20 2f 20 48 54  54 50 2f 31 2e 31 0d 0a  |GET / HTTP/1.1..|\n"
      "00000010  00 7f ff 7e                                       |...~|\n";
  for (std::size_t piece = 1; piece <= text.size(); ++piece)
    CHECK(hex_dump(chain_of(text, piece)) == expected);
  CHECK(hex_dump(Slice::immortal(text)) == expected);
}

TEST_CASE("a hex dump stops at its limit and says how much more there is") {
  const std::string text(300, 'a');
  const std::string dump = hex_dump(Chain(Slice::immortal(text)), 18);
  CHECK(dump ==
        "00000000  61 61 61 61 61 61 61 61  61 61 61 61 61 61 61 61  |aaaaaaaaaaaaaaaa|\n"
        "00000010  61 61                                             |aa|\n"
        "... and 282 more bytes\n");
  CHECK(hex_dump(Chain(Slice::immortal(text)), 0) == "... and 300 more bytes\n");
  CHECK(hex_dump(Chain()).empty());
}
