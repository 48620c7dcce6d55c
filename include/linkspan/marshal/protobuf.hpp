// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ProtobufMarshaller: protobuf messages whose payloads travel as chains and are never copied, wherever they
// stand in the message, and whose other large strings are referenced. On the wire all of it is ordinary
// protobuf: peers use plain protobuf and the same .proto file.
// Not for: small messages in a hurry on a program's own account; SerializeToArray is as fast.
// Cost: what protobuf takes for the message without its payloads, a walk over its tags, and a few slices; how
// much is in docs/ARCHITECTURE.md. A ProtobufMarshaller is two words.
// Threads: a ProtobufMarshaller is immutable and may be used on many threads; Envelopes are values.
#pragma once

#include <google/protobuf/message.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/marshal/payloads.hpp"
#include "linkspan/marshal/protobuf_streams.hpp"

namespace linkspan {

/// A message and its payloads. A payload field of `message` holds a ticket, so protobuf must not serialise
/// the message by itself: ProtobufMarshaller::to_message makes a plain one.
///
///     envelope.message.add_parts()->set_data(envelope.payloads.add(std::move(chain)));  // on its way out
///     Chain chain = envelope.payloads.take(envelope.message.parts(0).data());            // when it came in
template <class M>
struct Envelope {
  M message{};
  Payloads payloads{};

  /// Encoded, give or take the headers of payload fields: what it counts in ChannelRef::write.
  [[nodiscard]] std::size_t size_bytes() const { return message.ByteSizeLong() + payloads.size_bytes(); }
};

struct ProtobufLimits {
  std::size_t max_message_bytes = std::size_t{64} << 20;  ///< encoded, payloads included; 2 GiB at most
  std::size_t max_payload_bytes = std::size_t{64} << 20;  ///< all payloads of a message together
  std::size_t max_payloads = 4096;                        ///< cut out of one message
  int max_depth = 100;                                    ///< of messages and groups inside one another
};

struct ProtobufOptions {
  /// The payload fields, in addition to those marked (linkspan.field.payload) in the .proto file: names
  /// joined by dots from a field of the message on, such as "parts.data". A map's name means its values,
  /// [package.name] an extension. A field is payload wherever its message occurs.
  std::vector<std::string> payload_fields{};
  /// Values of payload fields below this stay in the message when it is read.
  std::size_t payload_threshold_bytes = kReferenceThreshold;
  ProtobufLimits limits{};
  bool deterministic = false;  ///< maps in the order of their keys
};

namespace detail {

/// What ProtobufMarshaller<M> does for every M.
class LINKSPAN_API ProtobufMarshallerCore {
 public:
  using Message = google::protobuf::Message;

  [[nodiscard]] static Result<ProtobufMarshallerCore> create(const Message& prototype,
                                                             ProtobufOptions&& options);

  /// Moves a message to where its strings can be referenced for as long as it takes.
  using Share = std::shared_ptr<const Message> (*)(Message& message);
  [[nodiscard]] Status write(Message& message, Share share, Payloads& payloads, ChainWriter& writer) const;
  [[nodiscard]] Status write(std::shared_ptr<const Message> message, Payloads& payloads,
                             ChainWriter& writer) const;
  [[nodiscard]] Status read(Chain&& bytes, Message& message, Payloads& payloads) const;

 private:
  struct Layout;
  struct Writing;
  explicit ProtobufMarshallerCore(std::shared_ptr<const Layout> layout) noexcept;

  std::shared_ptr<const Layout> layout_;
};

}  // namespace detail

/// A Marshaller (marshaller.hpp) of Envelope<M>.
template <std::derived_from<google::protobuf::Message> M>
class ProtobufMarshaller {
 public:
  using Message = Envelope<M>;

  /// The error names the path that is none of a bytes field, and says what is there.
  [[nodiscard]] static Result<ProtobufMarshaller> create(ProtobufOptions options = {}) {
    auto core = detail::ProtobufMarshallerCore::create(M::default_instance(), std::move(options));
    if (!core) return core.error();
    return ProtobufMarshaller(std::move(core).value());
  }

  /// Appends the encoded message to `writer` and uses up the envelope. Payload slices and strings of at least
  /// the writer's threshold are referenced, smaller ones copied. The bytes are those that protobuf would have
  /// written, had the payloads been strings (maps: with `deterministic`).
  ///
  /// Errors: invalid_argument, if a required field is missing, or a payload's ticket is not in exactly one
  /// payload field; limit_exceeded above 2 GiB, both before anything is written; pool_exhausted, after which
  /// the writer holds a broken message.
  [[nodiscard]] Status write(Envelope<M>&& envelope, ChainWriter& writer) const {
    constexpr auto share =
        [](google::protobuf::Message& message) -> std::shared_ptr<const google::protobuf::Message> {
      return std::make_shared<const M>(std::move(static_cast<M&>(message)));
    };
    return core_.write(envelope.message, share, envelope.payloads, writer);
  }
  /// The same for a message that others hold, too, or that lives on an arena (make its shared_ptr own the
  /// arena: moving a message off one copies it). It must not change until its slices are released.
  [[nodiscard]] Status write(std::shared_ptr<const M> message, Payloads&& payloads,
                             ChainWriter& writer) const {
    return core_.write(std::move(message), payloads, writer);
  }
  [[nodiscard]] Status write(std::shared_ptr<const M> message, ChainWriter& writer) const {
    return write(std::move(message), Payloads(), writer);
  }

  /// Reads one whole message. Payloads share the memory of `bytes` and keep it alive. As protobuf has it, the
  /// last of several values of a field counts (an earlier payload stays in Envelope::payloads all the same),
  /// and unknown fields are kept.
  ///
  /// Errors: truncated (ends inside a field), malformed, limit_exceeded, with the field's path and the offset
  /// where it is known. Lengths are checked against the bytes that are there before protobuf sees them:
  /// nothing is allocated because a length says so. Out of memory (std::bad_alloc) the frame is released; but
  /// protobuf 3.21 does not survive that it cannot grow a map.
  [[nodiscard]] Result<Envelope<M>> read(Chain&& bytes) const {
    Result<Envelope<M>> result(std::in_place);
    Envelope<M>& envelope = result.value();
    const Status status = core_.read(std::move(bytes), envelope.message, envelope.payloads);
    if (!status) result = status.error();
    return result;
  }

  /// A plain message, payloads copied into its strings (CopyPlace::marshal).
  [[nodiscard]] Result<M> to_message(Envelope<M>&& envelope) const {
    ChainWriter writer(heap_allocator());
    if (const Status status = write(std::move(envelope), writer); !status) return status.error();
    const Chain bytes = writer.take();
    count_copied(bytes.size(), CopyPlace::marshal);
    Result<M> result{M()};
    BufferChainInputStream stream(bytes);
    if (!result.value().ParseFromZeroCopyStream(&stream)) {
      return Error(errc::malformed, "protobuf does not read what was written");
    }
    return result;
  }

  [[nodiscard]] std::size_t size_hint(const Envelope<M>& envelope) const { return envelope.size_bytes(); }
  [[nodiscard]] std::string_view name() const { return M::descriptor()->full_name(); }

 private:
  explicit ProtobufMarshaller(detail::ProtobufMarshallerCore&& core) noexcept : core_(std::move(core)) {}

  detail::ProtobufMarshallerCore core_;
};

}  // namespace linkspan
