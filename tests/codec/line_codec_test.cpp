// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/line_codec.hpp"

#include <doctest/doctest.h>

#include <string_view>

#include "codec/frame_events.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

MakeCodec lines(std::size_t most, bool strip = true) {
  LineOptions options;
  options.max_line_bytes = most;
  options.strip = strip;
  return codec<LineCodec>(options);
}

}  // namespace

TEST_CASE("lines end in line feeds, with or without a carriage return, and lose both") {
  CHECK(events_of(lines(10), "a\nb\r\n\n\r\nc\rd\r\r\n") == "[a][b][][][c\rd\r]end");
}

TEST_CASE("lines keep their ends when they are asked to") {
  CHECK(events_of(lines(3, false), "abc\nabc\r\n\n\r\nc\r\r\n") == "[abc\n][abc\r\n][\n][\r\n][c\r\r\n]end");
  CHECK(events_of(lines(3, false), "abcd\r\n") == "a line is above max_line_bytes, 3");
}

TEST_CASE("lines that are split anywhere in three give the same events") {
  for (const std::string_view bytes :
       {"ab\r\n\nc\n", "abc\r\nabc\n", "abcd\nx\n", "abcde", "ab\nc", "abc\r"}) {
    CHECK(events_of(lines(3), bytes) != "");
  }
}

TEST_CASE("a line at the limit passes, a longer one is an error, and nothing is read behind it") {
  CHECK(events_of(lines(3), "abc\r\nabcd\nx\n") == "[abc]a line is above max_line_bytes, 3");
  CHECK(events_of(lines(3), "abcde") == "a line is above max_line_bytes, 3");
}

TEST_CASE("the peer's end in a line is an error") {
  CHECK(events_of(lines(3), "ab\nc") == "[ab]the peer ended in the middle of a frame");
}

TEST_CASE("lines that are sent get an end, or have one when they keep it") {
  CHECK(sent(lines(3), {"abc", "", "d"}) == "abc\n\nd\n");
  LineOptions options;
  options.send_carriage_return = true;
  CHECK(sent(codec<LineCodec>(options), {"abc", ""}) == "abc\r\n\r\n");
  CHECK(sent(lines(3), {"abcd"}) == "a line is above max_line_bytes, 3");
  CHECK(sent(lines(3, false), {"abc\r\n", "abc\n", "\n", "ab"}) == "abc\r\nabc\n\nab");
  CHECK(sent(lines(3, false), {"abcd"}) == "a line is above max_line_bytes, 3");
  CHECK(sent(lines(3, false), {"abcd\r\n"}) == "a line is above max_line_bytes, 3");
}
