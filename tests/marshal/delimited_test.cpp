// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// VarintLengthCodec's frames are the delimited messages of protobuf's own functions, in both directions.
#include <doctest/doctest.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/codec/varint_length_codec.hpp"
#include "linkspan/marshal/marshaller.hpp"
#include "linkspan/marshal/protobuf.hpp"
#include "record.pb.h"

using namespace linkspan;
using linkspan::test::Meta;
namespace util = google::protobuf::util;

namespace {

/// Of sizes around those at which the length in front grows.
std::vector<Meta> messages() {
  std::vector<Meta> all;
  for (const std::size_t size : {0UL, 1UL, 125UL, 126UL, 16'380UL, 16'381UL, 3'000'000UL, 7UL}) {
    Meta& message = all.emplace_back();
    message.set_name(std::string(size, 'n'));
    if (size != 0) message.set_version(size);
  }
  return all;
}

struct Fixture {
  Fixture() {
    auto last = std::make_unique<Collector<Envelope<Meta>>>();
    collected = last.get();
    using Codec = MarshalCodec<ProtobufMarshaller<Meta>>;
    REQUIRE(channel.pipeline().append(
        std::make_unique<VarintLengthCodec>(),
        std::make_unique<Codec>(ProtobufMarshaller<Meta>::create().value_or_throw()), std::move(last)));
    channel.open();
  }

  EmbeddedChannel channel;
  Collector<Envelope<Meta>>* collected = nullptr;
};

}  // namespace

TEST_CASE("what protobuf has delimited is read, in pieces of any size") {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    for (const Meta& message : messages())
      REQUIRE(util::SerializeDelimitedToZeroCopyStream(message, &stream));
  }
  for (const std::size_t piece : {7UL, 4096UL, bytes.size()}) {
    Fixture fixture;
    Chain pieces;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      pieces.append(Slice::immortal(std::string_view(bytes).substr(at, piece)));
      if (pieces.slice_count() == 50) fixture.channel.receive(std::exchange(pieces, Chain()));
    }
    fixture.channel.receive(std::move(pieces));
    REQUIRE(fixture.collected->messages.size() == messages().size());
    for (std::size_t i = 0; i != messages().size(); ++i) {
      CHECK(fixture.collected->messages[i].message.SerializeAsString() == messages()[i].SerializeAsString());
    }
  }
}

TEST_CASE("what is sent protobuf reads as delimited") {
  Fixture fixture;
  for (Meta& message : messages()) {
    Envelope<Meta> envelope;
    envelope.message = std::move(message);
    fixture.channel.write(std::move(envelope));
  }
  const std::string bytes = fixture.channel.take_sent().to_string();
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  for (const Meta& message : messages()) {
    Meta read;
    bool ended = false;
    REQUIRE(util::ParseDelimitedFromZeroCopyStream(&read, &stream, &ended));
    CHECK_FALSE(ended);
    CHECK(read.SerializeAsString() == message.SerializeAsString());
  }
  Meta none;
  bool ended = false;
  CHECK_FALSE(util::ParseDelimitedFromZeroCopyStream(&none, &stream, &ended));
  CHECK(ended);
}
