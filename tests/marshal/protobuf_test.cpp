// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Payloads, on their way out and in.
#include "linkspan/marshal/protobuf.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "legacy.pb.h"
#include "marshal/archive.hpp"
#include "marshal/support.hpp"
#include "record.pb.h"

using namespace linkspan;
using namespace linkspan::test;

namespace {

template <class M>
ProtobufMarshaller<M> marshaller(std::vector<std::string> fields = {}, std::size_t threshold = 0) {
  ProtobufOptions options;
  options.payload_fields = std::move(fields);
  options.payload_threshold_bytes = threshold;
  options.deterministic = true;
  return ProtobufMarshaller<M>::create(std::move(options)).value_or_throw();
}

template <class M>
Chain write(const ProtobufMarshaller<M>& marshaller, Envelope<M>&& envelope) {
  ChainWriter writer(heap_allocator());
  const Status status = marshaller.write(std::move(envelope), writer);
  if (!status) FAIL_CHECK(status.error().message());
  return writer.take();
}

template <class M>
std::string write_error(const ProtobufMarshaller<M>& marshaller, Envelope<M>&& envelope) {
  ChainWriter writer(heap_allocator());
  const Status status = marshaller.write(std::move(envelope), writer);
  CHECK(writer.size() == 0);
  return status ? "" : status.error().message();
}

template <class M>
std::string wrong_field(const std::string& path) {
  ProtobufOptions options;
  options.payload_fields = {path};
  const auto created = ProtobufMarshaller<M>::create(std::move(options));
  if (!created) CHECK(created.error().code == errc::invalid_argument);
  return created ? "" : created.error().message();
}

/// Turns strings into payloads.
Envelope<Archive> with_payloads(const Archive& archive, Random& rng) {
  Envelope<Archive> envelope{archive};
  each_payload(envelope.message, [&](std::string& value) {
    Chain chain;
    for (std::size_t at = 0; at < value.size();) {
      const std::size_t size = 1 + below(rng, std::min<std::size_t>(value.size() - at, 3000));
      chain.append(Slice::copy(std::string_view(value).substr(at, size)));
      at += size;
    }
    value = envelope.payloads.add(std::move(chain));
  });
  return envelope;
}

}  // namespace

TEST_CASE("random messages with payloads everywhere are the bytes that protobuf writes, and come back") {
  Random rng(7);
  for (const std::size_t threshold : {0UL, 300UL, 2048UL}) {
    const auto archives = marshaller<Archive>({"blobs"}, threshold);
    for (int round = 0; round < 150; ++round) {
      Archive archive;
      fill(archive, rng, 3, 4);
      const std::string bytes = serialize_deterministically(archive);
      CHECK((write(archives, with_payloads(archive, rng)) == bytes));

      const CopyScope scope;
      auto read = archives.read(cut_randomly(rng, bytes, 1 + below(rng, 3000)));
      CHECK(scope.copied().total() == 0);
      REQUIRE(read.ok());
      each_payload(read.value().message, [&](std::string& value) {
        CHECK((read.value().payloads.find(value) != nullptr || value.size() < std::max(threshold, 1UL)));
      });
      CHECK(equal(without_payloads(std::move(read).value()), archive));
    }
  }
}

TEST_CASE("what was read is written on, payloads and fields that are not known, too") {
  Random rng(3);
  const auto archives = marshaller<Archive>({"blobs"}, 100);
  for (int round = 0; round < 100; ++round) {
    Archive archive;
    fill(archive, rng, 3, 4);
    const std::string bytes = serialize_deterministically(archive);
    auto read = archives.read(cut_randomly(rng, bytes, 2000));
    REQUIRE(read.ok());
    CHECK((write(archives, std::move(read).value()) == bytes));
  }
}

TEST_CASE("a message that others share goes out with payloads of its own") {
  Envelope<Archive> envelope;
  envelope.message.set_name(std::string(5000, 'n'));
  envelope.message.add_pieces(envelope.payloads.add(Chain(Slice::immortal("payload"))));
  Archive plain = envelope.message;
  plain.set_pieces(0, "payload");
  const auto shared = std::make_shared<const Archive>(envelope.message);
  ChainWriter writer(heap_allocator());
  REQUIRE(marshaller<Archive>().write(shared, std::move(envelope.payloads), writer).ok());
  CHECK(writer.take() == plain.SerializeAsString());
  CHECK(shared->pieces(0).size() == Payloads::kTicketBytes);
}

TEST_CASE("a plain message is made of an envelope, and the copy is counted") {
  Random rng(5);
  Archive archive;
  fill(archive, rng, 3);
  const CopyScope scope;
  const auto plain = marshaller<Archive>({"blobs"}).to_message(with_payloads(archive, rng));
  REQUIRE(plain.ok());
  CHECK(equal(plain.value(), archive));
  CHECK(scope.copied()[CopyPlace::marshal] == archive.ByteSizeLong());
}

TEST_CASE("a payload is referenced from the writer's threshold on, and copied and counted below") {
  const auto records = marshaller<Record>({"data"});
  for (const std::size_t size : {1UL, 2047UL, 2048UL, 65'536UL, 1'048'576UL}) {
    const std::string payload(size, 'p');
    Envelope<Record> envelope;
    envelope.message.set_name("name");
    envelope.message.set_data(envelope.payloads.add(Chain(Slice::immortal(payload))));
    ChainWriter writer(heap_allocator());
    const CopyScope scope;
    REQUIRE(records.write(std::move(envelope), writer).ok());
    auto read = records.read(writer.take());
    REQUIRE(read.ok());
    const CopyCounts copied = scope.copied();
    CHECK(copied[CopyPlace::below_threshold] == (size < kReferenceThreshold ? size : 0));
    CHECK(copied.total() == copied[CopyPlace::below_threshold]);
    const Chain received = read.value().payloads.take(read.value().message.data());
    CHECK(received == payload);
    if (size >= kReferenceThreshold) {
      CHECK(static_cast<const void*>(received.front().data()) == payload.data());
    }
  }
}

TEST_CASE("a payload's memory is released once, after the last slice that shares it") {
  int released = 0;
  const std::string payload(100'000, 'p');
  const auto records = marshaller<Record>({"extras"});
  Chain part;
  {
    Envelope<Record> envelope;
    envelope.message.add_extras(
        envelope.payloads.add(Chain(Slice::borrow(std::as_bytes(std::span(payload)), [&] { ++released; }))));
    auto read = records.read(write(records, std::move(envelope)));
    REQUIRE(read.ok());
    part = read.value().payloads.find(read.value().message.extras(0))->share(50'000, 10);
    CHECK(released == 0);
  }
  CHECK(released == 0);
  part.clear();
  CHECK(released == 1);
}

TEST_CASE("a field with presence keeps it, though the payload is empty") {
  const auto maybe = marshaller<MaybeRecord>({"data"});
  for (const bool present : {false, true}) {
    MaybeRecord record;
    record.set_name("n");
    if (present) record.set_data("");
    const std::string bytes = record.SerializeAsString();
    Envelope<MaybeRecord> envelope{record};
    if (present) envelope.message.set_data(envelope.payloads.add(Chain()));
    CHECK(write(maybe, std::move(envelope)) == bytes);
    const auto read = maybe.read(Chain(Slice::immortal(bytes)));
    REQUIRE(read.ok());
    CHECK(read.value().message.has_data() == present);
    CHECK(read.value().message.data().empty());
  }
}

TEST_CASE("the last of several values of a payload field counts") {
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
    auto read = marshaller<MaybeRecord>({"data"}).read(Chain(Slice::immortal(input)));
    REQUIRE(read.ok());
    CHECK(read.value().payloads.take(read.value().message.data()) == expected.data());
    CHECK(read.value().message.has_data());
  }
}

TEST_CASE("in a oneof, the last field on the wire counts, whatever came before") {
  Answer parts[3];
  parts[0].mutable_error()->set_name("error");
  parts[1].set_data("payload");
  parts[2].mutable_error()->set_version(7);
  const auto answers = marshaller<Answer>({"data"});
  for (std::size_t code = 0; code < 81; ++code) {
    std::string bytes;
    for (std::size_t rest = code, i = 0; i < 4; ++i, rest /= 3) bytes += parts[rest % 3].SerializeAsString();
    Answer expected;
    REQUIRE(expected.ParseFromString(bytes));
    auto read = answers.read(Chain(Slice::immortal(bytes)));
    REQUIRE(read.ok());
    auto& [message, payloads] = read.value();
    CHECK(message.result_case() == expected.result_case());
    if (message.has_data()) message.set_data(payloads.take(message.data()).to_string());
    CHECK(equal(message, expected));
  }
}

TEST_CASE("required fields, groups, extensions and maps may hold payloads") {
  const auto maps = marshaller<LegacyMap>(
      {"by_number.[linkspan.test.attachment]", "by_number.[linkspan.test.attachments]", "entry.data"});
  LegacyMap map;
  map.add_entry()->set_data("in a group, required");
  Legacy& legacy = (*map.mutable_by_number())[5];
  legacy.set_id(1);
  legacy.SetExtension(attachment, "in an extension");
  legacy.AddExtension(attachments, "in a repeated extension");
  const std::string bytes = serialize_deterministically(map);
  auto read = maps.read(Chain(Slice::immortal(bytes)));
  REQUIRE(read.ok());
  auto& [message, payloads] = read.value();
  CHECK(payloads.count() == 3);
  CHECK(*payloads.find(message.entry(0).data()) == "in a group, required");
  const Legacy& received = message.by_number().at(5);
  CHECK(*payloads.find(received.GetExtension(attachment)) == "in an extension");
  CHECK(*payloads.find(received.GetExtension(attachments, 0)) == "in a repeated extension");
  CHECK(write(maps, std::move(read).value()) == bytes);
}

TEST_CASE("what a wrong payload field is told") {
  CHECK(wrong_field<Record>("data").empty());
  CHECK(wrong_field<Record>("meta.parent.checksum").empty());
  CHECK(wrong_field<Record>("children.checksum").empty());
  CHECK(wrong_field<Record>("dat") == "payload field 'dat': linkspan.test.Record has no field 'dat'");
  CHECK(wrong_field<Record>("") == "payload field '': linkspan.test.Record has no field ''");
  CHECK(wrong_field<Record>("meta.sum") == "payload field 'meta.sum': linkspan.test.Meta has no field 'sum'");
  CHECK(wrong_field<Record>("name") ==
        "payload field 'name': linkspan.test.Record.name is string, and payloads are bytes");
  CHECK(wrong_field<Record>("meta") ==
        "payload field 'meta': linkspan.test.Record.meta is message, and payloads are bytes");
  CHECK(wrong_field<Record>("children") ==
        "payload field 'children': linkspan.test.Record.ChildrenEntry.value is message, and payloads are "
        "bytes");
  CHECK(wrong_field<Record>("data.x") ==
        "payload field 'data.x': linkspan.test.Record.data is bytes, which has no fields");
  CHECK(wrong_field<Legacy>("[linkspan.test.attachment]").empty());
  CHECK(
      wrong_field<Legacy>("[linkspan.test.nothing]") ==
      "payload field '[linkspan.test.nothing]': linkspan.test.Legacy has no field '[linkspan.test.nothing]'");
}

TEST_CASE("an envelope that cannot be written is refused before anything is written") {
  const auto records = marshaller<Record>({"data"});
  const auto with = [](const std::function<void(Envelope<Record>&, const std::string& ticket)>& set) {
    Envelope<Record> envelope;
    set(envelope, envelope.payloads.add(Chain(Slice::immortal("payload"))));
    return envelope;
  };
  const std::string lost = "a payload's ticket is in no payload field";
  CHECK(write_error(records, with([](auto&, const auto&) {})) == lost);
  CHECK(write_error(records, with([](auto& envelope, const auto& ticket) {
                      envelope.message.add_extras(ticket);  // no payload field
                    })) == lost);
  CHECK(write_error(records, with([](auto& envelope, const auto& ticket) {
                      envelope.message.set_data(ticket);
                      static_cast<void>(envelope.payloads.take(ticket));
                    })) == "field 'data' has a payload that was taken (offset 18)");
  Envelope<Archive> twice;
  twice.message.add_pieces(twice.payloads.add(Chain(Slice::immortal("payload"))));
  twice.message.mutable_first()->set_data(twice.message.pieces(0));
  CHECK(write_error(marshaller<Archive>(), std::move(twice)) ==
        "field 'pieces' has the payload of another field, too (offset 36)");
  CHECK(write_error(marshaller<Legacy>(), Envelope<Legacy>()) == "required fields are missing: id");
}

TEST_CASE("an envelope above 2 GiB is refused") {
  const Slice slice = Slice::adopt(std::string(1 << 20, 'p'));
  Chain payload;
  for (int i = 0; i < 2048; ++i) payload.append(slice);
  Envelope<Record> envelope;
  envelope.message.set_data(envelope.payloads.add(std::move(payload)));
  CHECK(write_error(marshaller<Record>({"data"}), std::move(envelope)) ==
        "2147483655 bytes are more than protobuf's own limit = 2147483647");
}

TEST_CASE("an allocator that refuses makes write fail, wherever it does") {
  const auto records = marshaller<Record>({"data"});
  Record record;
  for (int i = 0; i < 100; ++i) record.add_tags(std::string(100, 't'));
  record.set_note(std::string(5000, 'n'));
  record.GetReflection()->MutableUnknownFields(&record)->AddLengthDelimited(2000, std::string(5000, 'u'));
  for (const bool with_payload : {false, true}) {
    std::size_t allowed = 0;
    for (;; ++allowed) {
      RefusingAllocator allocator(allowed);
      ChainWriter writer(allocator);
      Envelope<Record> envelope{record};
      if (with_payload) envelope.message.set_data(envelope.payloads.add(Chain(Slice::immortal("small"))));
      const Status status = records.write(std::move(envelope), writer);
      if (status) break;
      CHECK(status.error().code == errc::pool_exhausted);
    }
    CHECK(allowed >= (with_payload ? 1 : 3));
  }
}
