// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/line_codec.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"

using namespace linkspan;

namespace {

/// What came out: lines in brackets, then the end or the error.
struct Events final : Service<Chain> {
  explicit Events(std::string& seen_in) : seen(seen_in) {}
  void on_read(Chain&& line) override { seen += "[" + line.to_string() + "]"; }
  void on_read_end() override { seen += "end"; }
  void on_error(std::error_code, std::string_view detail) override { seen += detail; }
  std::string& seen;
};

std::string events_of(const std::vector<std::string_view>& pieces, std::size_t max_line_bytes) {
  std::string seen;
  LineOptions options;
  options.max_line_bytes = max_line_bytes;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append(std::make_unique<LineCodec>(options), std::make_unique<Events>(seen)));
  channel.open();
  for (const std::string_view piece : pieces) {
    if (!piece.empty()) channel.receive(piece);
  }
  channel.receive_end();
  return seen;
}

}  // namespace

TEST_CASE("lines end in line feeds, with or without a carriage return, and lose both") {
  CHECK(events_of({"a\nb\r\n\n\r\nc\rd\r\r\n"}, 10) == "[a][b][][][c\rd\r]end");
}

TEST_CASE("lines that are split anywhere in three give the same events") {
  for (const std::string_view bytes :
       {"ab\r\n\nc\n", "abc\r\nabc\n", "abcd\nx\n", "abcde", "ab\nc", "abc\r"}) {
    const std::string whole = events_of({bytes}, 3);
    for (std::size_t i = 0; i <= bytes.size(); ++i) {
      for (std::size_t j = i; j <= bytes.size(); ++j) {
        CHECK(events_of({bytes.substr(0, i), bytes.substr(i, j - i), bytes.substr(j)}, 3) == whole);
      }
    }
  }
}

TEST_CASE("a line at the limit passes, a longer one is an error, and nothing is read behind it") {
  CHECK(events_of({"abc\r\nabcd\nx\n"}, 3) == "[abc]a line is above max_line_bytes, 3");
  CHECK(events_of({"abcde"}, 3) == "a line is above max_line_bytes, 3");
}

TEST_CASE("the peer's end in a line is an error") {
  CHECK(events_of({"ab\nc"}, 3) == "[ab]the peer ended in the middle of a frame");
}
