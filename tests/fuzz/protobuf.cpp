// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Bytes that may be a message with payloads anywhere, in pieces of any size: they are read as protobuf reads
// them, or refused as it does, and what was read is written as an equal message. The first byte chooses the
// size of the pieces (255: one piece), the second the threshold for payloads.
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "linkspan/marshal/protobuf.hpp"
#include "marshal/archive.hpp"

using namespace linkspan;
using linkspan::test::Archive;

namespace {

ProtobufMarshaller<Archive> archives(std::size_t threshold) {
  ProtobufOptions options;
  options.payload_fields = {"blobs"};
  options.payload_threshold_bytes = threshold;
  return ProtobufMarshaller<Archive>::create(std::move(options)).value_or_throw();
}

Chain cut(std::string_view bytes, std::size_t piece) {
  Chain chain;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), piece))) {
    chain.append(Slice::immortal(bytes.substr(0, piece)));
  }
  return chain;
}

void require(bool holds) {
  if (!holds) std::abort();
}

bool equal(const Archive& a, const Archive& b) {
  return google::protobuf::util::MessageDifferencer::Equals(a, b);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const google::protobuf::LogSilencer silencer;
  static const ProtobufMarshaller<Archive> all = archives(0);
  static const ProtobufMarshaller<Archive> large = archives(16);
  static const ProtobufMarshaller<Archive> none = archives(std::size_t{1} << 30);
  if (size < 2) return 0;
  const auto& marshaller = data[1] % 3 == 0 ? all : data[1] % 3 == 1 ? large : none;
  const std::size_t piece = data[0] == 255 ? size : 1 + data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);

  Archive expected;
  const bool parses = expected.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  auto read = marshaller.read(cut(bytes, piece));
  require(read.ok() == parses);
  if (!parses) return 0;

  auto again = marshaller.read(cut(bytes, piece));
  ChainWriter writer(heap_allocator());
  const Status written = marshaller.write(std::move(again).value(), writer);
  // A payload that another value of its field has replaced is in no field.
  if (written) {
    Archive copy;
    require(copy.ParseFromString(writer.take().to_string()) && equal(copy, expected));
  }
  require(equal(test::without_payloads(std::move(read).value()), expected));
  return 0;
}
