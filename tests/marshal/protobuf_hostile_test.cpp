// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Input that is cut, broken or made to do harm.
#include <doctest/doctest.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdlib>
#include <new>

#include "legacy.pb.h"
#include "linkspan/marshal/protobuf.hpp"
#include "marshal/support.hpp"
#include "record.pb.h"

using namespace linkspan;
using namespace linkspan::test;

// The largest allocation since it was last set to 0: shows whether a number in the input was believed.
static std::size_t largest_allocation = 0;  // NOLINT

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  largest_allocation = std::max(largest_allocation, size);
  return std::malloc(size);
}
void* operator new(std::size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

/// Numbers and strings in protobuf's encoding, put together by hand.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string tag(std::uint64_t number, unsigned type) {
  return varint(number << 3 | type);
}
std::string field(std::uint64_t number, const std::string& value) {
  return tag(number, 2) + varint(value.size()) + value;
}

template <class M>
ProtobufMarshaller<M> marshaller_of(const std::string& payload_field, const ProtobufLimits& limits = {},
                                    std::size_t threshold = 3) {
  ProtobufOptions options;
  options.payload_fields = {payload_field};
  options.payload_threshold_bytes = threshold;
  options.limits = limits;
  return ProtobufMarshaller<M>::create(std::move(options)).value_or_throw();
}

template <class M>
Error read_failure(const std::string& bytes, const ProtobufLimits& limits, std::size_t threshold) {
  const auto marshaller = marshaller_of<M>("data", limits, threshold);
  largest_allocation = 0;
  const auto result = marshaller.read(Chain(Slice::immortal(bytes)));
  CHECK(largest_allocation <= 8192 + 8 * bytes.size());
  return result ? Error(std::error_code(), "") : result.error();
}

template <class M>
Error read_failure(const std::string& bytes, const ProtobufLimits& limits = {}) {
  const Error error = read_failure<M>(bytes, limits, 3);
  if (error.code != errc::limit_exceeded || limits.max_payloads == ProtobufLimits().max_payloads) {
    const Error short_way = read_failure<M>(bytes, limits, bytes.size() + 1);  // no payloads fit
    CHECK(short_way.code == error.code);
    CHECK(short_way.detail == error.detail);
  }
  return error;
}

template <class M>
std::error_code decode_error(const std::string& bytes, const ProtobufLimits& limits = {}) {
  return read_failure<M>(bytes, limits).code;
}

/// Decodes as protobuf does, or not at all where protobuf does not: in the pieces of `chain`, with payloads,
/// and in one piece, without.
template <class M>
void check_like_protobuf(const ProtobufMarshaller<M>& marshaller, const std::string& bytes, Chain&& chain) {
  static const auto short_way = marshaller_of<M>("data", {}, kReferenceThreshold);
  M expected;
  const bool parses = expected.ParseFromString(bytes);
  auto whole = short_way.read(Chain(Slice::immortal(bytes)));
  CHECK(whole.ok() == parses);
  if (whole && parses) CHECK(equal(whole.value().message, expected));
  auto read = marshaller.read(std::move(chain));
  CHECK(read.ok() == parses);
  if (!read || !parses) return;
  auto& [message, payloads] = read.value();
  if (!message.data().empty()) message.set_data(payloads.take(message.data()).to_string());
  CHECK(equal(message, expected));
}

Record sample() {
  Record record;
  record.set_name("name");
  record.mutable_meta()->mutable_parent()->set_name("parent");
  record.mutable_meta()->add_deltas(-1);
  (*record.mutable_attributes())["key"] = "value";
  record.set_weight(0.5);
  record.set_data("the payload");
  record.GetReflection()->MutableUnknownFields(&record)->AddGroup(2000)->AddLengthDelimited(100,
                                                                                            "in a group");
  return record;
}

}  // namespace

TEST_CASE("a frame may be cut in three at any two bytes") {
  const std::string bytes = sample().SerializeAsString();
  const auto marshaller = marshaller_of<Record>("data");
  for (std::size_t i = 0; i <= bytes.size(); ++i) {
    for (std::size_t j = i; j <= bytes.size(); ++j)
      check_like_protobuf(marshaller, bytes, cut_at(bytes, {i, j}));
  }
}

TEST_CASE("a frame that ends early is truncated, unless it ends between two fields") {
  const google::protobuf::LogSilencer silencer;
  const std::string bytes = sample().SerializeAsString();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    const std::error_code error = decode_error<Record>(part);
    if (Record().ParseFromString(part)) {
      CHECK_FALSE(error);
    } else {
      CHECK(error == errc::truncated);
    }
  }
}

TEST_CASE("randomly broken frames are taken or refused as protobuf does") {
  const google::protobuf::LogSilencer silencer;
  Random rng(3);
  const auto records = marshaller_of<Record>("data");
  const auto answers = marshaller_of<Answer>("data");
  const auto legacies = marshaller_of<Legacy>("data");
  Legacy legacy;
  legacy.set_id(1);
  legacy.mutable_pair()->mutable_right()->set_id(2);
  legacy.set_data("payload");
  legacy.MutableExtension(note)->set_text("note");
  Answer answer;
  answer.set_data("payload");
  answer.set_id(4);
  const std::string seeds[] = {sample().SerializeAsString(), legacy.SerializeAsString(),
                               answer.SerializeAsString()};
  for (int round = 0; round < 60'000; ++round) {
    std::string bytes = seeds[static_cast<std::size_t>(round) % 3];
    for (std::size_t changes = 1 + below(rng, 4); changes != 0; --changes) {
      const std::size_t at = below(rng, bytes.size());
      switch (below(rng, 4)) {
        case 0: bytes[at] = static_cast<char>(rng()); break;
        case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(rng, 8))); break;
        case 2: bytes.insert(at, 1, static_cast<char>(rng())); break;
        case 3: bytes.erase(at, bytes.size() == 1 ? 0 : 1); break;
      }
    }
    Chain chain = cut_randomly(rng, bytes, 1 + below(rng, 40));
    switch (round % 3) {
      case 0: check_like_protobuf(records, bytes, std::move(chain)); break;
      case 1: check_like_protobuf(legacies, bytes, std::move(chain)); break;
      case 2: check_like_protobuf(answers, bytes, std::move(chain)); break;
    }
  }
}

TEST_CASE("what breaks a rule of the encoding is malformed") {
  const std::string zeros(9, '\x80');
  CHECK(decode_error<Record>(tag(0, 0) + varint(1)) == errc::malformed);  // field number 0
  CHECK(decode_error<Record>(tag(5, 6)) == errc::malformed);              // no such wire types
  CHECK(decode_error<Record>(tag(5, 7)) == errc::malformed);
  CHECK(decode_error<Record>(tag(2000, 4)) == errc::malformed);  // ends a group that is not open
  CHECK(decode_error<Record>(tag(2000, 3) + tag(2001, 4)) == errc::malformed);
  CHECK(decode_error<Record>(tag(2000, 3)) == errc::truncated);
  CHECK(decode_error<Record>(tag(7000, 0) + zeros + "\x80\x01") == errc::malformed);  // 11 bytes
  CHECK(decode_error<Record>(std::string("\xa2\x86\x80\x80\x80\x00", 6)) == errc::malformed);
  CHECK(decode_error<Record>("\xa2\x86\x80\x80\x7f") == errc::malformed);  // a tag of 35 bits
  CHECK(decode_error<Record>(tag(100, 2) + std::string("\x80\x80\x80\x80\x80\x00", 6)) == errc::malformed);
  CHECK(decode_error<Record>(field(1, "\xff\xff")) == errc::malformed);  // not UTF-8
  CHECK(decode_error<Legacy>(field(3, "no id")) == errc::malformed);     // required
}

TEST_CASE("a tag or length that is spelled with leading zeros counts, up to 5 bytes") {
  const auto marshaller = marshaller_of<Record>("data");
  const std::string bytes = std::string("\xa2\x86\x80\x80\x00\x83\x80\x80\x80\x00", 10) + "abc";
  check_like_protobuf(marshaller, bytes, Chain(Slice::immortal(bytes)));
}

TEST_CASE("a length beyond the frame is refused, and no memory taken for it") {
  for (const std::uint64_t length : {100ULL, 60'000'000ULL, 0x7fffffffULL}) {
    for (const unsigned number : {1U, 2U, 8U, 14U, 100U, 2000U}) {
      CHECK(decode_error<Record>(tag(number, 2) + varint(length) + "abc") == errc::truncated);
    }
  }
  for (const std::uint64_t length : {0x80000000ULL, 0xffffffffULL, 0xffffffffffffffffULL}) {
    CHECK(decode_error<Record>(tag(100, 2) + varint(length) + "abc") == errc::malformed);
  }
}

TEST_CASE("a length beyond the message around it is refused, and no memory taken for it") {
  const std::string lie = tag(1, 2) + varint(60'000'000) + "abc";
  const std::string inner = tag(4, 2) + varint(70'000'000) + lie;
  CHECK(decode_error<Record>(field(2, inner) + field(100, "payload")) == errc::malformed);
  CHECK(decode_error<Record>(field(3, inner) + field(100, "payload")) == errc::malformed);
  CHECK(decode_error<Record>(field(4, lie) + field(100, "payload")) == errc::malformed);
  CHECK(decode_error<Record>(field(5, tag(2, 2) + varint(70'000'000) + lie)) == errc::truncated);
  CHECK(decode_error<Legacy>(tag(1, 0) + varint(1) + field(100, lie) + field(3, "data")) == errc::malformed);
  CHECK(decode_error<Legacy>(tag(2, 3) + tag(2, 2) + varint(70'000'000) + lie) == errc::truncated);
}

TEST_CASE("messages and groups go as deep as the limit says, whatever that is") {
  for (const int limit : {1, 7, 100, 150}) {
    ProtobufLimits limits;
    limits.max_depth = limit;
    for (const int depth : {limit, limit + 1}) {
      std::string messages;
      std::string groups;
      for (int i = 1; i < depth; ++i) messages = field(4, messages);
      for (int i = 0; i < depth; ++i) groups = tag(2000, 3) + groups + tag(2000, 4);
      const std::string records[] = {field(2, messages), groups};
      for (const std::string& bytes : records) {
        if (depth == limit) {
          CHECK_FALSE(decode_error<Record>(bytes, limits));
        } else {
          CHECK(decode_error<Record>(bytes, limits) == errc::limit_exceeded);
        }
      }
    }
  }
  std::string groups;
  for (int i = 0; i < 1'000'000; ++i) groups += tag(1, 3);
  CHECK(decode_error<Record>(groups) == errc::limit_exceeded);
}

TEST_CASE("a frame above the limit is refused, one at the limit is not") {
  ProtobufLimits limits;
  const std::string bytes = field(100, std::string(1000, 'p'));
  limits.max_message_bytes = bytes.size();
  CHECK_FALSE(decode_error<Record>(bytes, limits));
  limits.max_message_bytes = bytes.size() - 1;
  CHECK(decode_error<Record>(bytes, limits) == errc::limit_exceeded);
}

TEST_CASE("more payloads, or more payload, than the limits say are refused") {
  ProtobufLimits limits;
  limits.max_payloads = 3;
  std::string bytes;
  for (int i = 0; i < 3; ++i) bytes += field(100, "payload");
  CHECK_FALSE(decode_error<Record>(bytes, limits));
  const Error many = read_failure<Record>(bytes + field(100, "payload"), limits);
  CHECK(many.code == errc::limit_exceeded);
  CHECK(many.detail == "field 'data' is one payload more than max_payloads (offset 33)");
  limits.max_payload_bytes = 21;
  CHECK_FALSE(decode_error<Record>(bytes, limits));
  limits.max_payload_bytes = 20;
  const Error much = read_failure<Record>(bytes, limits);
  CHECK(much.code == errc::limit_exceeded);
  CHECK(much.detail == "field 'data' makes more payload than max_payload_bytes (offset 23)");
}

TEST_CASE("an error names the path and the offset") {
  const std::string inner = tag(4, 2) + varint(70) + "abc";
  CHECK(read_failure<Record>(field(2, field(4, inner)) + field(100, "payload")).detail ==
        "field 'meta.parent.parent' runs past the end of the message around it (offset 6)");
  CHECK(read_failure<Record>(field(5, tag(2, 2) + varint(9)) + field(100, "payload")).detail ==
        "field 'children.value' runs past the end of the message around it (offset 4)");
  CHECK(read_failure<Record>(tag(2000, 3) + tag(7, 5) + "ab").detail ==
        "field '2000.7' ends in the middle of a field (offset 3)");
  CHECK(read_failure<Record>(tag(5, 7)).detail ==
        "the message has a tag with field number 0 or an unknown wire type (offset 1)");
  CHECK(read_failure<Legacy>("").detail == "required fields are missing: id");
  CHECK(read_failure<Record>(field(1, "\xff")).detail ==
        "protobuf refuses the message, as it does when a string is not UTF-8");
}

TEST_CASE("a peer's value that looks like a ticket is a value") {
  Payloads payloads;
  const std::string ticket = payloads.add(Chain(Slice::immortal("secret")));
  Record record;
  record.set_data(ticket);
  ProtobufOptions options;
  options.payload_fields = {"data"};  // at the default threshold, the value stays in the message
  auto read = ProtobufMarshaller<Record>::create(std::move(options))
                  .value_or_throw()
                  .read(Chain(Slice::copy(record.SerializeAsString())));
  REQUIRE(read.ok());
  CHECK(read.value().payloads.take(read.value().message.data()) == ticket);
}

TEST_CASE("a frame of nothing but payload fields takes linear work") {
  std::string bytes;
  for (int i = 0; i < 300'000; ++i) bytes += field(1, "xyz") + field(2, "");
  Random rng(5);
  ProtobufLimits limits;
  limits.max_payloads = 300'000;
  auto read = marshaller_of<EarlyRecord>("data", limits).read(cut_randomly(rng, bytes, 8));
  REQUIRE(read.ok());
  CHECK(read.value().payloads.count() == 300'000);
  CHECK(read.value().payloads.take(read.value().message.data()) == "xyz");
}
