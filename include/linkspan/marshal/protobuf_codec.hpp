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

/// Reads Envelope<In> and takes Envelope<Out>. A message that cannot be decoded or encoded is dropped, and an
/// error event with the marshaller's error says which type it was; unless somebody handles that, the channel
/// closes. `writing` says, among other things, from which size on strings and payload slices are referenced.
template <std::derived_from<google::protobuf::Message> In,
          std::derived_from<google::protobuf::Message> Out = In>
class ProtobufCodec final : public Codec<Chain, Envelope<In>, Envelope<Out>> {
 public:
  explicit ProtobufCodec(PayloadMarshaller<In> in, PayloadMarshaller<Out> out, ProtobufLimits limits = {},
                         ChainWriterOptions writing = {}) noexcept
      : in_(std::move(in)), out_(std::move(out)), limits_(limits), writing_(writing) {}
  /// For protocols with one message type.
  explicit ProtobufCodec(PayloadMarshaller<In> both, ProtobufLimits limits = {},
                         ChainWriterOptions writing = {}) noexcept requires std::same_as<In, Out>
      : in_(both), out_(std::move(both)), limits_(limits), writing_(writing) {}

  void on_read(Chain&& frame) override {
    auto envelope = in_.decode(std::move(frame), limits_);
    if (!envelope) {
      this->pass_error(envelope.error(), "cannot decode a " + In::descriptor()->full_name());
    } else {
      this->pass(std::move(envelope).value());
    }
  }

  void on_write(Envelope<Out>&& envelope) override {
    if (!writer_) writer_.emplace(this->channel().loop().pool(), writing_);
    if (const std::error_code error = out_.encode(std::move(envelope), *writer_)) {
      writer_.reset();
      this->pass_error(error, "cannot encode a " + Out::descriptor()->full_name());
    } else {
      this->write(writer_->take());
    }
  }

 private:
  PayloadMarshaller<In> in_;
  PayloadMarshaller<Out> out_;
  ProtobufLimits limits_;
  ChainWriterOptions writing_;
  std::optional<ChainWriter> writer_;  // keeps the rest of its block for the next message
};

}  // namespace linkspan
