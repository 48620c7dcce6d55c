// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ProtobufCodec: a handler that turns frames into Envelopes and back. It stands behind a codec that makes the
// frames, such as LengthPrefixCodec: one frame, one message.
// Not for: messages without a payload field; decode those in a handler of your own.
// Cost: that of PayloadMarshaller (protobuf.hpp); small writes share pool blocks.
// Threads: a handler: the loop's thread only.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/marshal/protobuf.hpp"

namespace linkspan {

/// Reads and takes Envelope<M>. A message that cannot be decoded or encoded is dropped, and an error event
/// with the marshaller's error says which type it was; unless somebody handles that, the channel closes.
template <std::derived_from<google::protobuf::Message> M>
class ProtobufCodec final : public Codec<Chain, Envelope<M>> {
 public:
  explicit ProtobufCodec(PayloadMarshaller<M> marshaller, ProtobufLimits limits = {}) noexcept
      : marshaller_(std::move(marshaller)), limits_(limits) {}

  void on_read(Chain&& frame) override {
    auto envelope = marshaller_.decode(std::move(frame), limits_);
    if (!envelope) {
      fail(envelope.error(), "cannot decode a ");
    } else {
      this->pass(std::move(envelope).value());
    }
  }

  void on_write(Envelope<M>&& envelope) override {
    if (!writer_) writer_.emplace(this->channel().loop().pool());
    if (const std::error_code error = marshaller_.encode(std::move(envelope), *writer_)) {
      writer_.reset();
      fail(error, "cannot encode a ");
    } else {
      this->write(writer_->take());
    }
  }

 private:
  void fail(std::error_code error, std::string_view what) {
    this->pass_error(error, std::string(what) + M::descriptor()->full_name());
  }

  PayloadMarshaller<M> marshaller_;
  ProtobufLimits limits_;
  std::optional<ChainWriter> writer_;  // keeps the rest of its block for the next message
};

}  // namespace linkspan
