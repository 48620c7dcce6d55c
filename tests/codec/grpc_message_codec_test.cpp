// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/grpc_message_codec.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/frame_events.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::string_literals::operator""s;

namespace {

std::string message(bool compressed, std::string_view data) {
  std::string bytes(1, compressed ? '\1' : '\0');
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(data.size() >> shift));
  return bytes.append(data);
}

}  // namespace

TEST_CASE("gRPC messages have a flag and a length in front, and may be empty") {
  const std::string bytes =
      message(false, "abc") + message(true, "") + message(false, "") + message(true, "d");
  CHECK(bytes.substr(0, 8) == "\0\0\0\0\3abc"s);
  CHECK(events_of(grpc_messages(3), bytes) == "[pabc][c][p][cd]end");
  CHECK(sent(grpc_messages(3), {"pabc", "c", "p", "cd"}) == bytes);
}

TEST_CASE("a gRPC message at the limit passes, one above it is an error as soon as its length is there") {
  CHECK(events_of(grpc_messages(2), message(false, "ab") + message(true, "abc").substr(0, 5)) ==
        "[pab]a message of 3 bytes is above max_message_bytes, 2");
  CHECK(events_of(grpc_messages(2), "\0\xff\xff\xff\xff"s) ==
        "a message of 4294967295 bytes is above max_message_bytes, 2");
  CHECK(sent(grpc_messages(2), {"pabc"}) == "a message of 3 bytes is above max_message_bytes, 2");
  CHECK(events_of(grpc_messages(GrpcMessageOptions().max_message_bytes), "\0\0\x40\0\1"s) ==
        "a message of 4194305 bytes is above max_message_bytes, 4194304");
}

TEST_CASE(
    "a flag that gRPC does not know is an error as soon as it is there, and nothing is read behind it") {
  CHECK(events_of(grpc_messages(9), message(false, "a") + "\x02" + message(false, "b")) ==
        "[pa]a message begins with 2 instead of 0 or 1");
  CHECK(events_of(grpc_messages(9), "\x80") == "a message begins with 128 instead of 0 or 1");
}

TEST_CASE("the peer's end in a gRPC message is an error") {
  for (const std::size_t size : {1UL, 4UL, 5UL, 7UL}) {
    CHECK(events_of(grpc_messages(9), message(false, "abc").substr(0, size)) ==
          "the peer ended in the middle of a frame");
  }
  CHECK(events_of(grpc_messages(9), "") == "end");
}

TEST_CASE("gRPC messages are cut out of what was received, and sent, by reference") {
  const std::string bytes = message(true, std::string(5000, 'x'));
  EmbeddedChannel channel;
  auto last = std::make_unique<Collector<GrpcMessage>>();
  Collector<GrpcMessage>& collected = *last;
  REQUIRE(channel.pipeline().append(std::make_unique<GrpcMessageCodec>(), std::move(last)));
  channel.open();
  const CopyScope scope;
  channel.receive(Chain(Slice::immortal(std::string_view(bytes))));
  REQUIRE(collected.messages.size() == 1);
  CHECK(collected.messages.front().compressed);
  CHECK(collected.messages.front().data.front().view().data() == bytes.data() + 5);
  channel.write(std::move(collected.messages.front()));
  const Chain out = channel.take_sent();
  CHECK(out == bytes);
  CHECK(out.back().view().data() == bytes.data() + 5);
  CHECK(scope.copied().total() == 0);
}
