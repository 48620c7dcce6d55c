// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/protobuf.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "legacy.pb.h"
#include "marshal/support.hpp"
#include "record.pb.h"

using namespace linkspan;
using namespace linkspan::test;

namespace {

template <class M>
PayloadMarshaller<M> marshaller(std::string_view field = "data") {
  return PayloadMarshaller<M>::create(field).value_or_throw();
}

template <class M>
Chain encode(const PayloadMarshaller<M>& marshaller, M message, Chain payload) {
  ChainWriter writer(heap_allocator());
  const std::error_code error = marshaller.encode({std::move(message), std::move(payload)}, writer);
  CHECK_FALSE(error);
  return writer.take();
}

template <class M>
std::error_code encode_error(M message, std::string_view payload) {
  ChainWriter writer(heap_allocator());
  const std::error_code error =
      marshaller<M>().encode({std::move(message), Chain(Slice::immortal(payload))}, writer);
  CHECK(writer.size() == 0);
  return error;
}

template <class M>
std::string wrong_field(std::string_view name) {
  const auto created = PayloadMarshaller<M>::create(name);
  return created ? "" : created.error().message();
}

/// Encodes random messages; checks the bytes against protobuf's own, and what comes back against the message.
template <class M>
void check_round_trips(bool same_bytes) {
  Random rng(7);
  const auto data = marshaller<M>();
  for (int round = 0; round < 500; ++round) {
    M message;
    fill(message, rng, 2);
    message.clear_data();
    M whole = message;
    const std::size_t sizes[] = {1, 100, 2047, 2048, 10'000, 100'000};
    const std::string payload = random_text(rng, sizes[below(rng, std::size(sizes))]);
    whole.set_data(payload);

    const Chain encoded = encode(data, message, cut_randomly(rng, payload, 5000));
    const std::string bytes = encoded.to_string();
    if (same_bytes) CHECK(bytes == whole.SerializeAsString());
    M parsed;
    REQUIRE(parsed.ParseFromString(bytes));
    CHECK(equal(parsed, whole));

    const std::string plain = whole.SerializeAsString();
    const CopyScope scope;
    auto decoded = data.decode(cut_randomly(rng, plain, 1 + below(rng, 3000)));
    CHECK(scope.copied().total() == 0);
    REQUIRE(decoded.ok());
    CHECK(decoded.value().payload == payload);
    CHECK(decoded.value().message.data().empty());
    decoded.value().message.set_data(payload);
    CHECK(equal(decoded.value().message, whole));
  }
}

}  // namespace

TEST_CASE("random messages: the bytes are protobuf's own where the payload field has the highest number") {
  check_round_trips<Record>(true);
}
TEST_CASE("random messages of which the reader does not know most fields") {
  check_round_trips<OldRecord>(true);
}
TEST_CASE("random messages: the payload field may have any number") {
  check_round_trips<EarlyRecord>(false);
}
TEST_CASE("random messages: the payload field may be in a oneof") {
  check_round_trips<Answer>(false);
}
TEST_CASE("random messages: required fields, groups and extensions") {
  check_round_trips<Legacy>(false);
}

TEST_CASE("maps with many entries survive a round trip") {
  Record record;
  for (int i = 0; i < 100; ++i) {
    (*record.mutable_attributes())["key" + std::to_string(i)] =
        std::string(static_cast<std::size_t>(i) * 50, 'v');
    (*record.mutable_children())[i].set_version(static_cast<std::uint64_t>(i));
  }
  const auto data = marshaller<Record>();
  auto decoded = data.decode(encode(data, record, Chain(Slice::immortal("payload"))));
  REQUIRE(decoded.ok());
  CHECK(equal(decoded.value().message, record));
  CHECK(decoded.value().payload == "payload");
}

TEST_CASE("fields that the reader does not know are kept and travel on") {
  Record record;
  record.set_name("name");
  record.mutable_meta()->set_name("meta");
  record.set_note(std::string(5000, 'n'));
  record.set_data("payload");
  const std::string bytes = record.SerializeAsString();
  const auto old = marshaller<OldRecord>();
  auto decoded = old.decode(Chain(Slice::immortal(bytes)));
  REQUIRE(decoded.ok());
  ChainWriter writer(heap_allocator());
  REQUIRE_FALSE(old.encode(std::move(decoded).value(), writer));
  Record read;
  REQUIRE(read.ParseFromString(writer.take().to_string()));
  CHECK(equal(read, record));
}

TEST_CASE("a field with presence keeps it, though the payload is empty") {
  const auto maybe = marshaller<MaybeRecord>();
  for (const bool present : {false, true}) {
    MaybeRecord record;
    record.set_name("n");
    if (present) record.set_data("");
    const std::string bytes = record.SerializeAsString();
    CHECK(encode(maybe, record, Chain()) == bytes);
    const auto decoded = maybe.decode(Chain(Slice::immortal(bytes)));
    REQUIRE(decoded.ok());
    CHECK(decoded.value().message.has_data() == present);
    CHECK(decoded.value().payload.empty());
  }
  Record record;
  CHECK(encode(marshaller<Record>(), record, Chain()).empty());
}

TEST_CASE("the last of several payload fields counts") {
  MaybeRecord one, two, three;
  one.set_name("n");
  one.set_data("first");
  two.set_data("");
  three.set_data("third");
  const std::string bytes =
      one.SerializeAsString() + two.SerializeAsString() + three.SerializeAsString() + one.SerializeAsString();
  for (const std::string& input : {bytes, bytes + two.SerializeAsString()}) {
    MaybeRecord expected;
    REQUIRE(expected.ParseFromString(input));
    const auto decoded = marshaller<MaybeRecord>().decode(Chain(Slice::immortal(input)));
    REQUIRE(decoded.ok());
    CHECK(decoded.value().payload == expected.data());
    CHECK(decoded.value().message.has_data());
  }
}

TEST_CASE("in a oneof, the last field on the wire counts, whatever came before") {
  Answer parts[3];
  parts[0].mutable_error()->set_name("error");
  parts[1].set_data("payload");
  parts[2].mutable_error()->set_version(7);
  const auto answers = marshaller<Answer>();
  for (std::size_t code = 0; code < 81; ++code) {
    std::string bytes;
    for (std::size_t rest = code, i = 0; i < 4; ++i, rest /= 3) bytes += parts[rest % 3].SerializeAsString();
    Answer expected;
    REQUIRE(expected.ParseFromString(bytes));
    auto decoded = answers.decode(Chain(Slice::immortal(bytes)));
    REQUIRE(decoded.ok());
    auto& [message, payload] = decoded.value();
    CHECK(message.result_case() == expected.result_case());
    CHECK(payload == expected.data());
    if (message.has_data()) message.set_data(payload.to_string());
    CHECK(equal(message, expected));
  }
  Answer set;
  set.set_data("payload");
  CHECK(encode(answers, parts[0], Chain(Slice::immortal("payload"))) == set.SerializeAsString());
}

TEST_CASE("a payload of 2 KiB and more is never copied, a smaller one is and is counted") {
  const auto records = marshaller<Record>();
  for (const std::size_t size : {1UL, 2047UL, 2048UL, 65'536UL, 1'048'576UL}) {
    const std::string payload(size, 'p');
    Record record;
    record.set_name("name");
    ChainWriter writer(heap_allocator());
    const CopyScope scope;
    REQUIRE_FALSE(records.encode({std::move(record), Chain(Slice::immortal(payload))}, writer));
    Chain frame = writer.take();
    const auto decoded = records.decode(std::move(frame));
    REQUIRE(decoded.ok());
    const CopyCounts copied = scope.copied();
    CHECK(copied[CopyPlace::below_threshold] == (size < kReferenceThreshold ? size : 0));
    CHECK(copied.total() == copied[CopyPlace::below_threshold]);
    CHECK(decoded.value().payload == payload);
    if (size >= kReferenceThreshold) {
      CHECK(static_cast<const void*>(decoded.value().payload.front().data()) == payload.data());
    }
  }
}

TEST_CASE("large strings of the message are referenced, and live as long as the slices") {
  Record record;
  record.set_name(std::string(5000, 'n'));
  record.mutable_meta()->set_checksum(std::string(2048, 'c'));
  const std::string expected = record.SerializeAsString();
  const void* const name = record.name().data();
  ChainWriter writer(heap_allocator());
  const CopyScope scope;
  REQUIRE_FALSE(marshaller<Record>().encode({std::move(record), Chain()}, writer));
  CHECK(scope.copied().total() == 0);
  const Chain chain = writer.take();
  CHECK(chain == expected);
  CHECK(std::any_of(chain.begin(), chain.end(), [&](const Slice& slice) { return slice.data() == name; }));
}

TEST_CASE("a payload's memory is released once, after the last slice that shares it") {
  int released = 0;
  const std::string payload(100'000, 'p');
  const auto records = marshaller<Record>();
  Chain part;
  {
    Chain frame = encode(records, Record(),
                         Chain(Slice::borrow(std::as_bytes(std::span(payload)), [&] { ++released; })));
    auto decoded = records.decode(std::move(frame));
    REQUIRE(decoded.ok());
    part = decoded.value().payload.share(50'000, 10);
    CHECK(released == 0);
  }
  CHECK(released == 0);
  part.clear();
  CHECK(released == 1);
}

TEST_CASE("what a wrong choice of the payload field is told") {
  const std::string expected =
      "; expected a top-level bytes field, neither repeated nor required, for the payload";
  CHECK(wrong_field<Record>("dat") == "linkspan.test.Record has no field 'dat' at its top level" + expected);
  CHECK(wrong_field<Record>("meta.checksum") ==
        "linkspan.test.Record has no field 'meta.checksum' at its top level" + expected);
  CHECK(wrong_field<Record>("extras") == "linkspan.test.Record.extras is repeated bytes" + expected);
  CHECK(wrong_field<Record>("name") == "linkspan.test.Record.name is singular string" + expected);
  CHECK(wrong_field<Record>("attributes") == "linkspan.test.Record.attributes is a map" + expected);
  CHECK(wrong_field<Demanding>("data") == "linkspan.test.Demanding.data is required bytes" + expected);
  const auto by_number = PayloadMarshaller<Record>::create(99);
  REQUIRE_FALSE(by_number.ok());
  CHECK(by_number.error().code == errc::invalid_argument);
  CHECK(by_number.error().message() == "linkspan.test.Record has no field 99 at its top level" + expected);
  CHECK(PayloadMarshaller<Record>::create(100).ok());
}

TEST_CASE("an envelope that cannot be encoded is refused before anything is written") {
  Record record;
  record.set_data("bytes in the wrong place");
  CHECK(encode_error(record, "payload") == errc::invalid_argument);
  CHECK(encode_error(Legacy(), "payload") == errc::invalid_argument);
}

TEST_CASE("an envelope above 2 GiB is refused") {
  const Slice slice = Slice::adopt(std::string(1 << 20, 'p'));
  Chain payload;
  for (int i = 0; i < 2048; ++i) payload.append(slice);
  ChainWriter writer(heap_allocator());
  CHECK(marshaller<Record>().encode({Record(), std::move(payload)}, writer) == errc::limit_exceeded);
  CHECK(writer.size() == 0);
}

TEST_CASE("an allocator that refuses makes encode fail, wherever it does") {
  const auto records = marshaller<Record>();
  Record record;
  for (int i = 0; i < 100; ++i) record.add_tags(std::string(100, 't'));
  record.set_note(std::string(5000, 'n'));
  record.GetReflection()->MutableUnknownFields(&record)->AddLengthDelimited(2000, std::string(5000, 'u'));
  std::size_t allowed = 0;
  for (;; ++allowed) {
    RefusingAllocator allocator(allowed);
    ChainWriter writer(allocator);
    const std::error_code error = records.encode({Record(record), Chain(Slice::immortal("small"))}, writer);
    if (!error) break;
    CHECK(error == errc::pool_exhausted);
  }
  CHECK(allowed > 3);
}
