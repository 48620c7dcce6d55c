// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/marshaller.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"
#include "linkspan/marshal/protobuf.hpp"
#include "record.pb.h"

using namespace linkspan;
using linkspan::test::Record;

namespace {

using Records = MarshalCodec<ProtobufMarshaller<Record>>;

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

ProtobufMarshaller<Record> records() {
  ProtobufOptions options;
  options.payload_fields = {"data"};
  return ProtobufMarshaller<Record>::create(std::move(options)).value_or_throw();
}

struct Fixture {
  explicit Fixture(const MarshalCodecOptions& options = {}) {
    REQUIRE(channel.pipeline().append(std::make_unique<LengthPrefixCodec>(),
                                      std::make_unique<Records>(records(), options),
                                      std::make_unique<Recorder>(seen)));
    channel.open();
  }

  Seen seen;
  EmbeddedChannel channel;
};

Envelope<Record> envelope(std::string_view name, std::string_view payload) {
  Envelope<Record> made;
  made.message.set_name(std::string(name));
  made.message.set_data(made.payloads.add(Chain(Slice::immortal(payload))));
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
  Envelope<Record>& large = receiver.seen.envelopes[0];
  CHECK(large.message.name() == "large");
  CHECK(large.size_bytes() == payload.size() + 7 + Payloads::kTicketBytes + 3);
  const Chain received = large.payloads.take(large.message.data());
  CHECK(received == payload);
  CHECK(received.front().view().data() == payload.data());
  CHECK(receiver.seen.envelopes[1].message.name() == "none");
  CHECK(receiver.seen.envelopes[1].message.data().empty());
}

TEST_CASE("the size from which on a codec references is an option") {
  const std::string payload(1000, 'p');
  for (const std::size_t threshold : {1000UL, 1001UL}) {
    MarshalCodecOptions options;
    options.writing.reference_threshold_bytes = threshold;
    Fixture sender(options);
    const CopyScope scope;
    sender.channel.write(envelope("", payload));
    CHECK(scope.copied()[CopyPlace::below_threshold] == (threshold > payload.size() ? payload.size() : 0));
    const Chain sent = sender.channel.take_sent();
    CHECK((sent.back().view().data() == payload.data()) == (threshold <= payload.size()));
  }
}

TEST_CASE(
    "a frame that is no message is an error that names type, field and offset, and closes the channel") {
  Fixture fixture;
  fixture.channel.receive(std::string_view("\0\0\0\3\x12\x05\x0a", 7));
  CHECK(fixture.seen.error == errc::truncated);
  CHECK(fixture.seen.detail ==
        "cannot read a linkspan.test.Record: field 'meta' ends in the middle of a field (offset 2)");
  CHECK(fixture.seen.closed == errc::truncated);
}

TEST_CASE("an envelope that cannot be written is an error that names the type, and nothing is sent") {
  Fixture fixture;
  Envelope<Record> wrong = envelope("wrong", "payload");
  wrong.message.set_data("something else");
  fixture.channel.write(std::move(wrong));
  CHECK(fixture.seen.error == errc::invalid_argument);
  CHECK(fixture.seen.detail ==
        "cannot write a linkspan.test.Record: a payload's ticket is in no payload field");
  CHECK(fixture.channel.take_sent().empty());
}

TEST_CASE("a message above the limit is an error that names the limit, and nothing is sent") {
  MarshalCodecOptions options;
  options.max_message_bytes = 1000;
  Fixture fixture(options);
  fixture.channel.write(envelope("", std::string(2000, 'p')));
  CHECK(fixture.seen.error == errc::limit_exceeded);
  CHECK(fixture.seen.detail.ends_with("bytes are more than max_message_bytes = 1000"));
  CHECK(fixture.channel.take_sent().empty());
}
