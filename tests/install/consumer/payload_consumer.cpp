// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// A program of somebody else with a payload field marked in its own .proto file.
#include <linkspan/marshal/protobuf.hpp>

#include <string>
#include <utility>

#include "chunk.pb.h"

int main() {
  const auto marshaller = linkspan::ProtobufMarshaller<somebody::Chunk>::create().value_or_throw();
  somebody::Chunk plain;
  plain.set_data(std::string(100'000, 'p'));
  auto received = marshaller.read(linkspan::Chain(linkspan::Slice::adopt(plain.SerializeAsString())));
  if (!received || received.value().payloads.count() != 1) return 1;
  if (received.value().payloads.take(received.value().message.data()) != plain.data()) return 2;
  return 0;
}
