// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Messages around 2 GiB, of which there is no more than one block: their chains refer to it again and again.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "archive.pb.h"
#include "linkspan/marshal/protobuf.hpp"
#include "marshal/support.hpp"
#include "record.pb.h"

using namespace linkspan;
using namespace linkspan::test;

namespace {

constexpr std::size_t kMost = std::numeric_limits<int>::max();
constexpr std::size_t kGiB = std::size_t{1} << 30;

Chain sparse(std::size_t bytes) {
  static const Slice block = Slice::adopt(std::string(1 << 20, 's'));
  Chain chain;
  for (; bytes >= block.size(); bytes -= block.size()) chain.append(block);
  chain.append(block.slice(0, bytes));
  return chain;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

/// `head` in front of `bytes` bytes.
Chain frame(const std::string& head, std::size_t bytes) {
  Chain chain(Slice::copy(head));
  chain.append(sparse(bytes));
  return chain;
}

template <class M>
ProtobufMarshaller<M> large(std::size_t max_payload_bytes = 4 * kGiB) {
  ProtobufOptions options;
  options.payload_fields = {"data"};
  if (std::is_same_v<M, Archive>) options.payload_fields = {"blobs"};
  options.limits.max_message_bytes = 4 * kGiB;
  options.limits.max_payload_bytes = max_payload_bytes;
  return ProtobufMarshaller<M>::create(std::move(options)).value_or_throw();
}

template <class M>
std::string read_failure(const ProtobufMarshaller<M>& marshaller, Chain&& bytes) {
  const auto read = marshaller.read(std::move(bytes));
  return read ? "" : read.error().detail;
}

constexpr std::size_t kHeadBytes = 2 + 5;      // tag and length of field 100
const std::string kTag(varint(100 << 3 | 2));  // NOLINT: throws at worst before main

}  // namespace

TEST_CASE("a payload may fill a message up to protobuf's 2 GiB, and not a byte more, out and in") {
  const auto records = large<Record>();
  const std::size_t most = kMost - kHeadBytes;
  for (const std::size_t bytes : {most, most + 1}) {
    Envelope<Record> envelope;
    envelope.message.set_data(envelope.payloads.add(sparse(bytes)));
    ChainWriter writer(heap_allocator());
    const CopyScope scope;
    CHECK(records.write(std::move(envelope), writer).ok() == (bytes == most));
    Chain whole = bytes == most ? writer.take() : frame(kTag + varint(bytes), bytes);
    CHECK(whole.size() == kHeadBytes + bytes);
    auto read = records.read(std::move(whole));
    CHECK(read.ok() == (bytes == most));
    if (read) CHECK(read.value().payloads.take(read.value().message.data()).size() == bytes);
    if (!read) CHECK(read.error().code == errc::limit_exceeded);
    CHECK(scope.copied().total() == (bytes == most ? 0 : kHeadBytes));  // the test's own
  }
}

TEST_CASE("messages inside one another may be close to 2 GiB, all lengths included") {
  constexpr std::size_t kDeepBytes = kMost - 82 * 6;  // each with a tag of one byte, and a length of 5
  const auto archives = large<Archive>();
  Envelope<Archive> envelope;
  Archive::Part* part = envelope.message.mutable_first();
  for (int i = 0; i < 40; ++i) part = part->mutable_inner()->mutable_first();
  part->set_data(envelope.payloads.add(sparse(kDeepBytes)));
  ChainWriter writer(heap_allocator());
  REQUIRE(archives.write(std::move(envelope), writer).ok());
  Chain whole = writer.take();
  CHECK(whole.size() == kMost);
  auto read = archives.read(std::move(whole));
  REQUIRE(read.ok());
  const Archive::Part* found = &read.value().message.first();
  while (found->has_inner()) found = &found->inner().first();
  CHECK(read.value().payloads.take(found->data()).size() == kDeepBytes);
}

TEST_CASE("two payloads whose sum is above 2 GiB are refused, out and in") {
  const auto archives = large<Archive>();
  Envelope<Archive> envelope;
  for (int i = 0; i < 2; ++i) envelope.message.add_pieces(envelope.payloads.add(sparse(kGiB)));
  ChainWriter writer(heap_allocator());
  CHECK_FALSE(archives.write(std::move(envelope), writer).ok());
  CHECK(writer.size() == 0);
  Chain twice = frame("\x2a" + varint(kGiB), kGiB);
  twice.append(frame("\x2a" + varint(kGiB), kGiB));
  CHECK(read_failure(archives, std::move(twice)) ==
        "2147483660 bytes are more than max_message_bytes = 2147483647");
}

TEST_CASE("lengths close to 2 GiB that lie are refused where they are") {
  const auto records = large<Record>();
  CHECK(read_failure(records, frame(kTag + varint(kMost), kGiB)) ==
        "field 'data' ends in the middle of a field (offset 7)");
  CHECK(read_failure(records, frame(kTag + varint(kMost + 1), kGiB)) ==
        "field 'data' has a length above 2 GiB (offset 7)");
  CHECK(read_failure(records, frame(kTag + varint(0xffffffffffffffff), kGiB)) ==
        "field 'data' has a tag or a length of more than 32 bits (offset 7)");
  // A message of 1 GiB whose field says that it goes on for 2.
  CHECK(read_failure(records, frame("\x12" + varint(kGiB) + "\x0a" + varint(kMost), kGiB)) ==
        "field 'meta.name' runs past the end of the message around it (offset 12)");
  CHECK(read_failure(large<Record>(kGiB - 1), frame(kTag + varint(kGiB), kGiB)) ==
        "field 'data' makes more payload than max_payload_bytes (offset 7)");
}
