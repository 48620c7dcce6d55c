// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// A program of somebody else that uses linkspan-protobuf, on a message type that protobuf itself brings.
#include <google/protobuf/wrappers.pb.h>
#include <linkspan/marshal/protobuf.hpp>

#include <cstdio>
#include <string>
#include <utility>

int main() {
  using google::protobuf::BytesValue;
  linkspan::ProtobufOptions options;
  options.payload_fields = {"value"};
  const auto marshaller = linkspan::ProtobufMarshaller<BytesValue>::create(options).value_or_throw();
  const std::string payload(100'000, 'p');

  linkspan::ChainWriter writer(linkspan::heap_allocator());
  linkspan::Envelope<BytesValue> sent;
  sent.message.set_value(sent.payloads.add(linkspan::Chain(linkspan::Slice::immortal(payload))));
  if (!marshaller.write(std::move(sent), writer)) return 1;
  linkspan::Chain encoded = writer.take();

  BytesValue parsed;
  if (!parsed.ParseFromString(encoded.to_string()) || parsed.value() != payload) return 2;
  auto received = marshaller.read(std::move(encoded));
  if (!received) return 3;
  const linkspan::Chain value = received.value().payloads.take(received.value().message.value());
  if (value != payload || value.front().view().data() != payload.data()) return 4;
  std::printf("linkspan-protobuf: %zu bytes\n", value.size());
  return 0;
}
