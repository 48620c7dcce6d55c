// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/protobuf.hpp"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <limits>
#include <string>

#include "lib/marshal/protobuf_shape.hpp"
#include "linkspan/marshal/protobuf_streams.hpp"

namespace linkspan::detail {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownFieldSet;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

namespace {

constexpr std::size_t kMaxEncodedBytes = std::numeric_limits<int>::max();  // protobuf's own limit

void write_directly(const Message& message, std::size_t message_bytes, ChainWriter& writer) {
  const std::span<std::byte> to = writer.reserve(message_bytes);
  if (to.empty()) return;
  message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(to.data()));
  writer.commit(message_bytes);
}

void write_referencing(const std::shared_ptr<Message>& message, ChainWriter& writer) {
  BufferChainOutputStream stream(writer, message);
  CodedOutputStream coded(&stream);
  coded.EnableAliasing(true);
  message->SerializePartialToCodedStream(&coded);  // fails with the writer, which keeps the error
}

void write_unknown(const UnknownFieldSet& fields, ChainWriter& writer) {
  BufferChainOutputStream stream(writer);
  CodedOutputStream coded(&stream);
  fields.SerializeToCodedStream(&coded);
}

bool parse(const Chain& chain, int max_depth, Message& message) {
  if (chain.empty()) return true;
  BufferChainInputStream stream(chain);
  CodedInputStream coded(&stream);
  coded.SetRecursionLimit(max_depth);
  return message.MergePartialFromCodedStream(&coded) && coded.ConsumedEntireMessage();
}

}  // namespace

struct PayloadMarshallerCore::Layout {
  Layout(const Message& prototype, const FieldDescriptor& payload)
      : field(payload),
        reflection(*prototype.GetReflection()),
        shapes(*prototype.GetDescriptor()),
        tag(static_cast<std::uint32_t>(payload.number()) << 3 |
            static_cast<std::uint32_t>(WireType::length)) {
    for (std::uint32_t rest = tag; rest != 0; rest >>= 7) {
      empty_field.push_back(static_cast<char>(rest < 0x80 ? rest : rest | 0x80));
    }
    empty_field.push_back('\0');
  }

  const FieldDescriptor& field;
  const Reflection& reflection;
  MessageShapes shapes;
  std::uint32_t tag;
  std::string empty_field;  // the encoded payload field, without payload
};

PayloadMarshallerCore::PayloadMarshallerCore(std::shared_ptr<const Layout> layout) noexcept
    : layout_(std::move(layout)) {}

Result<PayloadMarshallerCore> PayloadMarshallerCore::create(const Message& prototype,
                                                            std::string_view field_name) {
  const std::string name(field_name);
  return create(prototype, prototype.GetDescriptor()->FindFieldByName(name), "'" + name + "'");
}

Result<PayloadMarshallerCore> PayloadMarshallerCore::create(const Message& prototype, int field_number) {
  return create(prototype, prototype.GetDescriptor()->FindFieldByNumber(field_number),
                std::to_string(field_number));
}

Result<PayloadMarshallerCore> PayloadMarshallerCore::create(const Message& prototype,
                                                            const FieldDescriptor* field,
                                                            std::string_view asked_for) {
  std::string wrong;
  if (field == nullptr) {
    wrong = prototype.GetDescriptor()->full_name() + " has no field " + std::string(asked_for) +
            " at its top level";
  } else if (field->type() != FieldDescriptor::TYPE_BYTES || !field->is_optional()) {
    wrong = field->full_name() + " is " +
            (field->is_map()        ? "a map"
             : field->is_repeated() ? "repeated"
             : field->is_required() ? "required"
                                    : "singular") +
            (field->is_map() ? "" : std::string(" ") + field->type_name());
  } else {
    return PayloadMarshallerCore(std::make_shared<const Layout>(prototype, *field));
  }
  return Error(errc::invalid_argument,
               wrong + "; expected a top-level bytes field, neither repeated nor required, for the payload");
}

std::error_code PayloadMarshallerCore::encode(Message& message, Share share, Chain&& payload,
                                              ChainWriter& writer) const {
  const auto& [field, reflection, shapes, tag, empty_field] = *layout_;
  if (!message.IsInitialized()) return make_error_code(errc::invalid_argument);
  const bool held = reflection.HasField(message, &field);
  if (held) {
    std::string scratch;
    if (!reflection.GetStringReference(message, &field, &scratch).empty()) {
      return make_error_code(errc::invalid_argument);
    }
  }
  const bool present = held || !payload.empty();
  if (present && field.containing_oneof() != nullptr) {
    reflection.ClearOneof(&message, field.containing_oneof());  // as setting the field would
  } else if (held) {
    reflection.ClearField(&message, &field);
  }

  std::size_t message_bytes = message.ByteSizeLong();
  constexpr std::size_t kMaxHeaderBytes = 10;
  if (message_bytes > kMaxEncodedBytes || payload.size() > kMaxEncodedBytes ||
      message_bytes + kMaxHeaderBytes + payload.size() > kMaxEncodedBytes) {
    return make_error_code(errc::limit_exceeded);
  }
  UnknownFieldSet unknown;  // protobuf writes them last, behind the payload
  if (!reflection.GetUnknownFields(message).empty()) {
    unknown.Swap(reflection.MutableUnknownFields(&message));
    message_bytes = message.ByteSizeLong();
  }

  // A message that is smaller than the threshold holds no string that is not. With a high threshold, large
  // messages still go block by block.
  if (message_bytes >= std::min(writer.options().reference_threshold_bytes, kReferenceThreshold)) {
    write_referencing(share(message), writer);
  } else if (message_bytes != 0) {
    write_directly(message, message_bytes, writer);
  }
  if (present) {
    writer.write_varint(tag);
    writer.write_varint(payload.size());
    writer.append(std::move(payload));
  }
  if (!unknown.empty()) write_unknown(unknown, writer);
  return writer.error();
}

std::error_code PayloadMarshallerCore::decode(Chain&& frame, const ProtobufLimits& limits, Message& message,
                                              Chain& payload) const {
  const auto& [field, reflection, shapes, tag, empty_field] = *layout_;
  if (frame.size() > std::min(limits.max_message_bytes, kMaxEncodedBytes)) {
    return make_error_code(errc::limit_exceeded);
  }
  // Cuts the payload out of the frame, whenever it comes; the rest is protobuf's. Each round starts at the
  // front of what is left, so the work is linear however often the field occurs.
  Chain rest;
  while (!frame.empty()) {
    FieldWalker walker(frame);
    std::size_t field_start = 0;
    std::size_t payload_bytes = 0;
    bool found = false;
    while (!found && !walker.at_end()) {
      field_start = walker.position();
      WireTag seen{};
      bool good = walker.read_tag(seen);
      if (good) {
        found = seen.number == static_cast<std::uint32_t>(field.number()) && seen.type == WireType::length;
        good = found ? walker.read_length(payload_bytes)
                     : walker.skip_value(seen, &shapes.root(), limits.max_depth);
      }
      if (!good) return make_error_code(walker.error());
    }
    if (!found) {
      rest.append(std::move(frame));
      break;
    }
    const std::size_t header_bytes = walker.position() - field_start;
    rest.append(frame.split_front(field_start));
    frame.drop_front(header_bytes);
    payload = frame.split_front(payload_bytes);
    // protobuf shall know that the field was there, and clear what else its oneof held.
    if (field.has_presence()) rest.append(Slice::immortal(empty_field));
  }
  if (!parse(rest, limits.max_depth, message) || !message.IsInitialized()) {
    return make_error_code(errc::malformed);
  }
  // In a oneof, a field behind the payload has taken its place.
  if (field.real_containing_oneof() != nullptr && !reflection.HasField(message, &field)) payload.clear();
  return {};
}

}  // namespace linkspan::detail
