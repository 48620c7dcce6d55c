// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Marshaller: what turns messages of one type into bytes and back; and MarshalCodec, the handler that does so
// in a pipeline. It stands behind a codec that makes frames: one frame, one message. ProtobufMarshaller
// (protobuf.hpp) is one; a format of one's own needs the members that the concept names.
// Not for: framing, which is a codec's (codec/).
// Cost: the marshaller's own; what a message writes shares blocks with the messages before.
// Threads: a handler: the loop's thread only. A marshaller's functions are const, so codecs may share one.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"

namespace linkspan {

/// size_hint: about how many bytes a message becomes, what it references included. write appends all of a
/// message, or fails; what it has written by then is thrown away. read is given exactly what write has
/// written. name: for error texts.
template <class T>
concept Marshaller = requires(const T& marshaller, typename T::Message message, ChainWriter& writer,
                              Chain bytes) {
  { marshaller.size_hint(std::as_const(message)) } -> std::convertible_to<std::size_t>;
  { marshaller.write(std::move(message), writer) } -> std::same_as<Status>;
  { marshaller.read(std::move(bytes)) } -> std::same_as<Result<typename T::Message>>;
  { marshaller.name() } -> std::convertible_to<std::string_view>;
};

struct MarshalCodecOptions {
  std::size_t max_message_bytes = std::size_t{64} << 20;  ///< more, by size_hint, is not written
  ChainWriterOptions writing{};                           ///< from which size on is referenced, among others
};

/// A message that cannot be read or written is dropped, and an error event says which type it was and what is
/// wrong; unless somebody handles that, the channel closes.
template <Marshaller In, Marshaller Out = In>
class MarshalCodec final : public Codec<Chain, typename In::Message, typename Out::Message> {
 public:
  explicit MarshalCodec(In in, Out out, MarshalCodecOptions options = {})
      : in_(std::move(in)), out_(std::move(out)), options_(options) {}
  /// For protocols with one message type.
  explicit MarshalCodec(In both, MarshalCodecOptions options = {}) requires std::same_as<In, Out>
      : in_(both), out_(std::move(both)), options_(options) {}

  void on_read(Chain&& frame) override {
    auto message = in_.read(std::move(frame));
    if (!message) return fail("read", in_.name(), message.error());
    this->pass(std::move(message).value());
  }

  void on_write(typename Out::Message&& message) override {
    const std::size_t hint = out_.size_hint(message);
    if (hint > options_.max_message_bytes) {
      return fail("write", out_.name(),
                  Error(errc::limit_exceeded, "about " + std::to_string(hint) +
                                                  " bytes are more than max_message_bytes = " +
                                                  std::to_string(options_.max_message_bytes)));
    }
    if (!writer_) writer_.emplace(this->channel().loop().pool(), options_.writing);
    static_cast<void>(writer_->take());  // of a message whose writing has thrown
    if (const Status written = out_.write(std::move(message), *writer_); !written) {
      writer_.reset();
      return fail("write", out_.name(), written.error());
    }
    this->write(writer_->take());
  }

 private:
  void fail(std::string_view what, std::string_view name, const Error& error) {
    std::string text = "cannot ";
    text.append(what).append(" a ").append(name).append(": ").append(error.detail);
    this->pass_error(error.code, text);
  }

  In in_;
  Out out_;
  MarshalCodecOptions options_;
  std::optional<ChainWriter> writer_;  // keeps the rest of its block for the next message
};

}  // namespace linkspan
