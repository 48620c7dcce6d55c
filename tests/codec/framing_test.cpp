// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The codecs of lengths, delimiters and fixed sizes: what they read, however it is split, and what they
// write.
#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "codec/frame_events.hpp"
#include "linkspan/codec/delimiter_codec.hpp"
#include "linkspan/codec/fixed_size_codec.hpp"
#include "linkspan/codec/length_field_codec.hpp"
#include "linkspan/codec/varint_length_codec.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::string_literals::operator""s;

namespace {

MakeCodec length_field(const std::function<void(LengthFieldOptions&)>& set) {
  LengthFieldOptions options;
  set(options);
  return codec<LengthFieldCodec>(options);
}

MakeCodec delimiters(std::vector<std::string> all, bool strip = true, std::size_t most = 5) {
  DelimiterOptions options;
  options.delimiters = std::move(all);
  options.strip = strip;
  options.max_frame_bytes = most;
  return codec<DelimiterCodec>(options);
}

MakeCodec varint(std::size_t most = 300) {
  VarintLengthOptions options;
  options.max_frame_bytes = most;
  return codec<VarintLengthCodec>(options);
}

}  // namespace

TEST_CASE("a length field has any width and order, and what is stripped is put in front again") {
  for (const std::size_t width : {1UL, 2UL, 3UL, 4UL, 8UL}) {
    for (const std::endian order : {std::endian::big, std::endian::little}) {
      const MakeCodec make = length_field([&](LengthFieldOptions& options) {
        options.width = options.strip_bytes = width;
        options.order = order;
      });
      std::string field(width, '\0');
      field[order == std::endian::big ? width - 1 : 0] = '\x03';
      const std::string bytes = field + "abc" + std::string(width, '\0') + field + "def";
      CHECK(events_of(make, bytes) == "[abc][][def]end");
      CHECK(sent(make, {"abc", "", "def"}) == bytes);
    }
  }
}

TEST_CASE("a length field stands behind other bytes, counts more or less than what is behind it, and stays") {
  const MakeCodec whole = length_field([](LengthFieldOptions& options) {
    options.offset = 2;
    options.width = 1;
    options.adjustment = -3;  // it counts the header
  });
  CHECK(events_of(whole, "hd\x05xyhd\x03"s) == "[hd\x05xy][hd\x03]end");
  CHECK(sent(whole, {"hd\x05xy"}) == "hd\x05xy");
  CHECK(events_of(whole, "hd\x02xy"s) == "a length field of 2 is too small for an adjustment of -3");
  const MakeCodec checksum = length_field([](LengthFieldOptions& options) {
    options.width = 1;
    options.adjustment = 2;  // it does not count the two bytes of a checksum
    options.strip_bytes = 1;
  });
  CHECK(events_of(checksum, "\x01zcc\0cc"s) == "[zcc][cc]end");
  CHECK(sent(checksum, {"zcc", "cc"}) == "\x01zcc\0cc"s);
  CHECK(sent(checksum, {"c"}) == "a frame of 1 bytes does not fit into a length field of 1 bytes");
  const MakeCodec part = length_field([](LengthFieldOptions& options) {
    options.offset = options.width = 1;
    options.strip_bytes = 1;
  });
  CHECK(events_of(part, "h\x01z"s) == "[\x01z]end");
  CHECK(sent(part, {"z"}) == "a header of which a part was stripped cannot be written");
}

TEST_CASE("a length beyond the limit is an error that names it, before anything is kept for it") {
  const MakeCodec make = length_field([](LengthFieldOptions& options) {
    options.width = options.strip_bytes = 8;
    options.max_frame_bytes = 11;
  });
  const std::string zeros(7, '\0');
  CHECK(events_of(make, zeros + "\x03" + "abc") == "[abc]end");
  CHECK(events_of(make, zeros + "\x04") == "a frame of more than 4 bytes is above max_frame_bytes, 11");
  CHECK(events_of(make, std::string(8, '\xff')) ==
        "a frame of more than 18446744073709551615 bytes is above max_frame_bytes, 11");
  CHECK(sent(make, {"abcd"}) == "a frame of 12 bytes is above max_frame_bytes, 11");
  const MakeCodec narrow =
      length_field([](LengthFieldOptions& options) { options.width = options.strip_bytes = 1; });
  CHECK(sent(narrow, {std::string(256, 'x')}) ==
        "a frame of 256 bytes does not fit into a length field of 1 bytes");
}

TEST_CASE("options of a length field that contradict one another are told when it is made") {
  const auto refused = [](const std::function<void(LengthFieldOptions&)>& set) {
    LengthFieldOptions options;
    set(options);
    try {
      const LengthFieldCodec made(options);
    } catch (const Exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused([](LengthFieldOptions& options) { options.width = 5; }) ==
        "length field: the width is none of 1, 2, 3, 4 and 8");
  CHECK(refused([](LengthFieldOptions& options) { options.offset = 1025; }) ==
        "length field: the offset is above 1024");
  CHECK(refused([](LengthFieldOptions& options) { options.strip_bytes = 5; }) ==
        "length field: more is stripped than the field's end");
  CHECK(refused([](LengthFieldOptions& options) { options.max_frame_bytes = 3; }) ==
        "length field: max_frame_bytes is below the header");
  CHECK(refused([](LengthFieldOptions& options) { options.adjustment = -(std::int64_t{1} << 40); }) ==
        "length field: the adjustment is beyond 2 GiB");
}

TEST_CASE("the peer's end in the middle of a header or a frame is an error") {
  const MakeCodec make = length_field([](LengthFieldOptions& options) { options.strip_bytes = 4; });
  CHECK(events_of(make, "\0\0"s) == "the peer ended in the middle of a frame");
  CHECK(events_of(make, "\0\0\0\x02x"s) == "the peer ended in the middle of a frame");
  CHECK(events_of(varint(), "\x05"s + "abc") == "the peer ended in the middle of a frame");
  CHECK(events_of(varint(), "\x80"s) == "the peer ended in the middle of a frame");
}

TEST_CASE("a varint in front of a frame has up to 5 bytes") {
  CHECK(events_of(varint(), "\x03"s + "abc" + "\0"s + "\x83\x80\0"s + "def") == "[abc][][def]end");
  const std::string longer(200, 'x');
  CHECK(sent(varint(), {"abc", "", longer}) == "\x03" + "abc"s + "\0"s + "\xc8\x01" + longer);
  CHECK(events_of(varint(), "\xad\x02") == "a frame of 301 bytes is above max_frame_bytes, 300");
  CHECK(sent(varint(), {std::string(301, 'x')}) == "a frame of 301 bytes is above max_frame_bytes, 300");
  const std::string broken = "the length of a frame has more than 5 bytes or 32 bits";
  CHECK(events_of(varint(), std::string(10, '\x80') + "\x01") == broken);
  CHECK(events_of(varint(), "\x80\x80\x80\x80\x80"s) == broken);
  CHECK(events_of(varint(), "\xff\xff\xff\xff\x7f"s) == broken);
}

TEST_CASE("frames end in the first delimiter of the list that matches where one may begin") {
  CHECK(events_of(delimiters({"\r\n", "\r", "\n"}), "a\r\n\rb\nc\r\n") == "[a][][b][c]end");
  CHECK(events_of(delimiters({"--"}), "a-b--c---d--") == "[a-b][c][-d]end");
  CHECK(events_of(delimiters({"aab", "ab"}), "xaaab") == "[xa]end");
  CHECK(events_of(delimiters({";", ","}, false), "a;b,;") == "[a;][b,][;]end");
  CHECK(sent(delimiters({"\r\n", "\n"}), {"a", ""}) == "a\r\n\r\n");
  CHECK(sent(delimiters({";"}, false), {"abcde;"}) == "abcde;");
}

TEST_CASE("a frame at the limit passes, a longer one is an error before its delimiter has come") {
  CHECK(events_of(delimiters({"--"}), "abcde--x--") == "[abcde][x]end");
  CHECK(events_of(delimiters({"--"}), "abcdef--") == "a frame is above max_frame_bytes, 5");
  CHECK(events_of(delimiters({"--"}), "abcdef") == "a frame is above max_frame_bytes, 5");
  CHECK(events_of(delimiters({"--"}), "abcde-") == "the peer ended in the middle of a frame");
  CHECK(sent(delimiters({"--"}), {"abcdef"}) == "a frame is above max_frame_bytes, 5");
  DelimiterOptions options;
  CHECK_THROWS_AS(DelimiterCodec{options}, Exception);
  options.delimiters = {"a", ""};
  CHECK_THROWS_AS(DelimiterCodec{options}, Exception);
}

TEST_CASE("frames of one size") {
  const MakeCodec make = codec<FixedSizeCodec>(std::size_t{3});
  CHECK(events_of(make, "abcdef") == "[abc][def]end");
  CHECK(events_of(make, "abcd") == "[abc]the peer ended in the middle of a frame");
  CHECK(sent(make, {"abc"}) == "abc");
  CHECK(sent(make, {"ab"}) == "a frame of 2 bytes is to be sent, and all have 3");
  CHECK_THROWS_AS(FixedSizeCodec(0), Exception);
}

TEST_CASE("random frames come back from random pieces, and no payload is copied") {
  std::mt19937 generator(5);
  LengthFieldOptions prefix;
  prefix.strip_bytes = 4;
  const MakeCodec codecs[] = {codec<LengthFieldCodec>(prefix), varint(100'000)};
  for (const MakeCodec& make : codecs) {
    for (int round = 0; round < 50; ++round) {
      std::string expected;
      std::string seen;
      EmbeddedChannel sender;
      EmbeddedChannel receiver;
      std::string nothing;
      REQUIRE(make(sender, std::make_unique<Events>(nothing)));
      REQUIRE(make(receiver, std::make_unique<Events>(seen)));
      sender.open();
      receiver.open();
      std::vector<std::string> frames;
      for (int i = 0; i < 10; ++i)
        frames.emplace_back(generator() % 3 == 0 ? 0 : generator() % 50'000, 'a' + i);
      const CopyScope scope;
      for (const std::string& frame : frames) sender.write(Chain(Slice::immortal(frame)));
      Chain stream = sender.take_sent();
      while (!stream.empty()) {
        receiver.receive(stream.split_front(std::min<std::size_t>(stream.size(), 1 + generator() % 20'000)));
      }
      CHECK(scope.copied()[CopyPlace::framing] + scope.copied()[CopyPlace::below_threshold] == 0);
      for (const std::string& frame : frames) expected += "[" + frame + "]";
      CHECK((seen == expected));
    }
  }
}
