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
  const auto marshaller = linkspan::PayloadMarshaller<BytesValue>::create("value").value_or_throw();
  const std::string payload(100'000, 'p');

  linkspan::ChainWriter writer(linkspan::heap_allocator());
  linkspan::Envelope<BytesValue> sent;
  sent.payload.append(linkspan::Slice::immortal(payload));
  if (marshaller.encode(std::move(sent), writer)) return 1;
  linkspan::Chain encoded = writer.take();

  BytesValue parsed;
  if (!parsed.ParseFromString(encoded.to_string()) || parsed.value() != payload) return 2;
  const auto received = marshaller.decode(std::move(encoded));
  if (!received || received.value().payload != payload) return 3;
  if (received.value().payload.front().view().data() != payload.data()) return 4;
  std::printf("linkspan-protobuf: %zu bytes\n", received.value().payload.size());
  return 0;
}
