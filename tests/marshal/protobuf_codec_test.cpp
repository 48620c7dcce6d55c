// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/protobuf_codec.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"
#include "record.pb.h"

using namespace linkspan;
using linkspan::test::Record;

namespace {

using Records = ProtobufCodec<Record>;

/// What the last handler has seen; outlives it, as a channel that closes destroys its handlers.
struct Seen {
  std::vector<Envelope<Record>> envelopes;
  std::error_code error;
  std::string detail;
  std::error_code closed;
};

class Recorder final : public Service<Envelope<Record>> {
 public:
  explicit Recorder(Seen& seen) : seen_(seen) {}
  void on_read(Envelope<Record>&& envelope) override { seen_.envelopes.push_back(std::move(envelope)); }
  void on_error(std::error_code code, std::string_view text) override {
    seen_.error = code;
    seen_.detail = text;
    pass_error(code, text);
  }
  void on_inactive(std::error_code error) override { seen_.closed = error; }

 private:
  Seen& seen_;
};

struct Fixture {
  explicit Fixture(ChainWriterOptions writing = {}) {
    REQUIRE(channel.pipeline().append(
        std::make_unique<LengthPrefixCodec>(),
        std::make_unique<Records>(PayloadMarshaller<Record>::create("data").value_or_throw(),
                                  ProtobufLimits(), writing),
        std::make_unique<Recorder>(seen)));
    channel.open();
  }

  Seen seen;
  EmbeddedChannel channel;
};

Envelope<Record> envelope(std::string_view name, std::string_view payload) {
  Envelope<Record> made;
  made.message.set_name(std::string(name));
  made.payload.append(Slice::immortal(payload));
  return made;
}

}  // namespace

TEST_CASE("envelopes go through a pipeline and come back, large payloads without a copy") {
  const std::string payload(1'000'000, 'p');
  Fixture sender;
  Fixture receiver;
  const CopyScope scope;
  sender.channel.write(envelope("large", payload));
  sender.channel.write(envelope("none", ""));
  Chain sent = sender.channel.take_sent();
  // Cut as reads would: in the middle of the second prefix, and everywhere inside the payload.
  while (!sent.empty()) {
    receiver.channel.receive(sent.split_front(std::min<std::size_t>(sent.size(), 65'537)));
  }
  CHECK(scope.copied().total() == 0);
  REQUIRE(receiver.seen.envelopes.size() == 2);
  CHECK(receiver.seen.envelopes[0].message.name() == "large");
  CHECK(receiver.seen.envelopes[0].payload == payload);
  CHECK(receiver.seen.envelopes[0].payload.front().view().data() == payload.data());
  CHECK(receiver.seen.envelopes[1].message.name() == "none");
  CHECK(receiver.seen.envelopes[1].payload.empty());
  CHECK(receiver.seen.envelopes[0].size_bytes() == payload.size() + 7);
}

TEST_CASE("the size from which on a codec references is an option") {
  const std::string payload(1000, 'p');
  for (const std::size_t threshold : {1000UL, 1001UL}) {
    Fixture sender({.reference_threshold_bytes = threshold});
    const CopyScope scope;
    sender.channel.write(envelope("", payload));
    CHECK(scope.copied()[CopyPlace::below_threshold] == (threshold > payload.size() ? payload.size() : 0));
    const Chain sent = sender.channel.take_sent();
    CHECK((sent.back().view().data() == payload.data()) == (threshold <= payload.size()));
  }
}

TEST_CASE("a frame that is no message is an error that names the type, and closes the channel") {
  Fixture fixture;
  fixture.channel.receive(std::string_view("\0\0\0\1\x07", 5));
  CHECK(fixture.seen.error == errc::malformed);
  CHECK(fixture.seen.detail == "cannot decode a linkspan.test.Record");
  CHECK(fixture.seen.closed == errc::malformed);
}

TEST_CASE("an envelope that cannot be encoded is an error that names the type, and nothing is sent") {
  Fixture fixture;
  Envelope<Record> wrong = envelope("wrong", "payload");
  wrong.message.set_data("also here");
  fixture.channel.write(std::move(wrong));
  CHECK(fixture.seen.error == errc::invalid_argument);
  CHECK(fixture.seen.detail == "cannot encode a linkspan.test.Record");
  CHECK(fixture.channel.take_sent().empty());
}
