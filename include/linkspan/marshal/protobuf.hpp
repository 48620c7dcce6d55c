// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Envelope and PayloadMarshaller: protobuf messages whose one large bytes field travels as a Chain and is
// never copied. On the wire it is an ordinary field: peers use plain protobuf and the same .proto file.
// Not for: messages without a large bytes field; protobuf itself over BufferChainOutputStream does.
// Cost: encoding costs what protobuf takes for the rest of the message and a few slices; decoding walks over
// the tags first, and shares the payload, however small. A PayloadMarshaller is two words.
// Threads: PayloadMarshaller is immutable and may be used on many threads; Envelopes are values.
#pragma once

#include <google/protobuf/message.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"

namespace linkspan {

/// A message and its payload. The payload field of `message` itself is always empty; where the field has
/// presence (`optional`, or a oneof), has_xxx() says whether it was there, as an empty payload does not.
template <class M>
struct Envelope {
  M message;
  Chain payload;

  /// Encoded, give or take the payload field's header: what it counts in ChannelRef::write.
  [[nodiscard]] std::size_t size_bytes() const { return message.ByteSizeLong() + payload.size(); }
};

struct ProtobufLimits {
  std::size_t max_message_bytes = std::size_t{64} << 20;  ///< encoded, payload included; 2 GiB at most
  int max_depth = 100;                                    ///< of messages and groups inside one another
};

namespace detail {

/// What PayloadMarshaller<M> does for every M.
class LINKSPAN_API PayloadMarshallerCore {
 public:
  [[nodiscard]] static Result<PayloadMarshallerCore> create(const google::protobuf::Message& prototype,
                                                            std::string_view field_name);
  [[nodiscard]] static Result<PayloadMarshallerCore> create(const google::protobuf::Message& prototype,
                                                            int field_number);

  /// Moves a message into memory that strings can be referenced in for as long as it takes.
  using Share = std::shared_ptr<google::protobuf::Message> (*)(google::protobuf::Message& message);
  [[nodiscard]] std::error_code encode(google::protobuf::Message& message, Share share, Chain&& payload,
                                       ChainWriter& writer) const;
  [[nodiscard]] std::error_code decode(Chain&& frame, const ProtobufLimits& limits,
                                       google::protobuf::Message& message, Chain& payload) const;

 private:
  struct Layout;
  [[nodiscard]] static Result<PayloadMarshallerCore> create(const google::protobuf::Message& prototype,
                                                            const google::protobuf::FieldDescriptor* field,
                                                            std::string_view asked_for);
  explicit PayloadMarshallerCore(std::shared_ptr<const Layout> layout) noexcept;

  std::shared_ptr<const Layout> layout_;
};

}  // namespace detail

template <std::derived_from<google::protobuf::Message> M>
class PayloadMarshaller {
 public:
  /// The payload field, by name or number: a field of M itself (not of a message inside), `bytes`, neither
  /// repeated nor required. Otherwise the error names the field and says what it is instead.
  [[nodiscard]] static Result<PayloadMarshaller> create(std::string_view field_name) {
    return wrap(detail::PayloadMarshallerCore::create(M::default_instance(), field_name));
  }
  [[nodiscard]] static Result<PayloadMarshaller> create(int field_number) {
    return wrap(detail::PayloadMarshallerCore::create(M::default_instance(), field_number));
  }

  /// Appends the encoded message to `writer` and uses up the envelope. Strings and payload slices of at least
  /// the writer's threshold are referenced, smaller ones copied. What any protobuf parser makes of the bytes
  /// is the same message with the field set; and where the payload field has the highest number (extensions
  /// included), they are byte for byte what protobuf itself would have written.
  ///
  /// Errors: invalid_argument, if the message's own payload field holds bytes or a required field is missing,
  /// and limit_exceeded above 2 GiB, both before anything is written; pool_exhausted, after which the writer
  /// holds a broken message.
  [[nodiscard]] std::error_code encode(Envelope<M>&& envelope, ChainWriter& writer) const {
    constexpr auto share =
        [](google::protobuf::Message& message) -> std::shared_ptr<google::protobuf::Message> {
      return std::make_shared<M>(std::move(static_cast<M&>(message)));
    };
    return core_.encode(envelope.message, share, std::move(envelope.payload), writer);
  }

  /// Reads one whole message. The payload shares the frame's memory and keeps it alive. If the field occurs
  /// more than once the last one counts, and unknown fields are kept, as protobuf has it.
  ///
  /// Errors: truncated (the frame ends inside a field), malformed, limit_exceeded. Lengths are checked
  /// against the bytes that are there before protobuf sees them: nothing is allocated because a length says
  /// so.
  [[nodiscard]] Result<Envelope<M>, std::error_code> decode(Chain&& frame,
                                                            const ProtobufLimits& limits = {}) const {
    Result<Envelope<M>, std::error_code> result{Envelope<M>()};
    Envelope<M>& envelope = result.value();
    const std::error_code error = core_.decode(std::move(frame), limits, envelope.message, envelope.payload);
    if (error) result = error;
    return result;
  }

 private:
  explicit PayloadMarshaller(detail::PayloadMarshallerCore&& core) noexcept : core_(std::move(core)) {}
  static Result<PayloadMarshaller> wrap(Result<detail::PayloadMarshallerCore>&& core) {
    if (!core) return core.error();
    return PayloadMarshaller(std::move(core).value());
  }

  detail::PayloadMarshallerCore core_;
};

}  // namespace linkspan
