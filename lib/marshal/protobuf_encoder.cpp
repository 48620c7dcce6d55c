// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/marshal/protobuf_encoder.hpp"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/map_field.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/wire_format.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <utility>

#include "linkspan/buffer/copy_ledger.hpp"

namespace linkspan::detail {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MapIterator;
using google::protobuf::MapKey;
using google::protobuf::MapValueConstRef;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using google::protobuf::internal::WireFormat;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// protobuf keeps walking over maps by reflection to itself; its public way, a list of entries, copies every
// value. An explicit instantiation may name private members, so it can hand them out.
using MapBegin = MapIterator (Reflection::*)(Message*, const FieldDescriptor*) const;
using MapLookUp = bool (Reflection::*)(const Message&, const FieldDescriptor*, const MapKey&,
                                       MapValueConstRef*) const;
MapBegin map_begin(int);
MapBegin map_end(int);
MapLookUp map_look_up(int);
template <MapBegin begin, MapBegin end, MapLookUp look_up>
struct MapAccess {
  friend MapBegin map_begin(int) { return begin; }
  friend MapBegin map_end(int) { return end; }
  friend MapLookUp map_look_up(int) { return look_up; }
};
template struct MapAccess<&Reflection::MapBegin, &Reflection::MapEnd, &Reflection::LookupMapValue>;

constexpr int kKey = 1;
constexpr int kValue = 2;
constexpr std::size_t kEntryTagBytes = 1;  // of a key or a value

std::size_t string_bytes(const std::string& value) {
  return CodedOutputStream::VarintSize32(static_cast<std::uint32_t>(value.size())) + value.size();
}

std::size_t key_bytes(const FieldDescriptor& field, const MapKey& key) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_INT32: return WireFormatLite::Int32Size(key.GetInt32Value());
    case FieldDescriptor::TYPE_INT64: return WireFormatLite::Int64Size(key.GetInt64Value());
    case FieldDescriptor::TYPE_UINT32: return WireFormatLite::UInt32Size(key.GetUInt32Value());
    case FieldDescriptor::TYPE_UINT64: return WireFormatLite::UInt64Size(key.GetUInt64Value());
    case FieldDescriptor::TYPE_SINT32: return WireFormatLite::SInt32Size(key.GetInt32Value());
    case FieldDescriptor::TYPE_SINT64: return WireFormatLite::SInt64Size(key.GetInt64Value());
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32: return sizeof(std::uint32_t);
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64: return sizeof(std::uint64_t);
    case FieldDescriptor::TYPE_BOOL: return 1;
    default: return string_bytes(key.GetStringValue());
  }
}

void write_key(const FieldDescriptor& field, const MapKey& key, CodedOutputStream& output) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_INT32: return WireFormatLite::WriteInt32(kKey, key.GetInt32Value(), &output);
    case FieldDescriptor::TYPE_INT64: return WireFormatLite::WriteInt64(kKey, key.GetInt64Value(), &output);
    case FieldDescriptor::TYPE_UINT32:
      return WireFormatLite::WriteUInt32(kKey, key.GetUInt32Value(), &output);
    case FieldDescriptor::TYPE_UINT64:
      return WireFormatLite::WriteUInt64(kKey, key.GetUInt64Value(), &output);
    case FieldDescriptor::TYPE_SINT32: return WireFormatLite::WriteSInt32(kKey, key.GetInt32Value(), &output);
    case FieldDescriptor::TYPE_SINT64: return WireFormatLite::WriteSInt64(kKey, key.GetInt64Value(), &output);
    case FieldDescriptor::TYPE_FIXED32:
      return WireFormatLite::WriteFixed32(kKey, key.GetUInt32Value(), &output);
    case FieldDescriptor::TYPE_FIXED64:
      return WireFormatLite::WriteFixed64(kKey, key.GetUInt64Value(), &output);
    case FieldDescriptor::TYPE_SFIXED32:
      return WireFormatLite::WriteSFixed32(kKey, key.GetInt32Value(), &output);
    case FieldDescriptor::TYPE_SFIXED64:
      return WireFormatLite::WriteSFixed64(kKey, key.GetInt64Value(), &output);
    case FieldDescriptor::TYPE_BOOL: return WireFormatLite::WriteBool(kKey, key.GetBoolValue(), &output);
    default:  // never referenced: a MapKey has a string of its own
      return WireFormatLite::WriteBytes(kKey, key.GetStringValue(), &output);
  }
}

bool has_large(const UnknownFieldSet& fields, std::size_t bytes) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.type() == UnknownField::TYPE_LENGTH_DELIMITED && field.length_delimited().size() >= bytes)
      return true;
    if (field.type() == UnknownField::TYPE_GROUP && has_large(field.group(), bytes)) return true;
  }
  return false;
}

bool is_smaller(const Message& message, std::size_t bytes) {
  return static_cast<std::size_t>(message.GetCachedSize()) < bytes;
}

// Whether the message, or one inside, has unknown fields of at least `bytes`, which protobuf copies. It does
// not look into maps: maybe.
bool may_have_large_unknown(const Message& message, const MessageShape& shape, std::size_t bytes) {
  if (is_smaller(message, bytes)) return false;
  const Reflection& reflection = *message.GetReflection();
  if (has_large(reflection.GetUnknownFields(message), bytes)) return true;
  return std::ranges::any_of(shape.fields(), [&](const FieldShape& found) {
    const FieldDescriptor* const field = found.field;
    if (found.message == nullptr) return false;
    if (!field->is_repeated()) {
      return reflection.HasField(message, field) &&
             may_have_large_unknown(reflection.GetMessage(message, field), *found.message, bytes);
    }
    const int count = reflection.FieldSize(message, field);
    if (field->is_map()) {
      return count != 0 && field->message_type()->map_value()->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    }
    for (int i = 0; i < count; ++i) {
      if (may_have_large_unknown(reflection.GetRepeatedMessage(message, field, i), *found.message, bytes)) {
        return true;
      }
    }
    return false;
  });
}

class Encoder {
 public:
  Encoder(CodedOutputStream& output, std::size_t reference_bytes, bool has_large_unknown) noexcept
      : output_(output), reference_bytes_(reference_bytes), has_large_unknown_(has_large_unknown) {}

  void message(const Message& message, const MessageShape& shape) {
    if (!copies(shape) || is_smaller(message, reference_bytes_) ||
        shape.type().options().message_set_wire_format()) {
      return message.SerializeWithCachedSizes(&output_);
    }
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;  // by number, which is protobuf's order
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) this->field(message, reflection, *field, shape);
    unknown_fields(reflection.GetUnknownFields(message));
  }

 private:
  // Whether protobuf would copy what could be referenced.
  [[nodiscard]] bool copies(const MessageShape& shape) const noexcept {
    return shape.has_copied_strings() || has_large_unknown_;
  }

  void unknown_fields(const UnknownFieldSet& fields) {
    for (int i = 0; i < fields.field_count(); ++i) {
      const UnknownField& field = fields.field(i);
      switch (field.type()) {
        case UnknownField::TYPE_VARINT:
          WireFormatLite::WriteUInt64(field.number(), field.varint(), &output_);
          break;
        case UnknownField::TYPE_FIXED32:
          WireFormatLite::WriteFixed32(field.number(), field.fixed32(), &output_);
          break;
        case UnknownField::TYPE_FIXED64:
          WireFormatLite::WriteFixed64(field.number(), field.fixed64(), &output_);
          break;
        case UnknownField::TYPE_LENGTH_DELIMITED:
          WireFormatLite::WriteBytesMaybeAliased(field.number(), field.length_delimited(), &output_);
          break;
        case UnknownField::TYPE_GROUP:
          tag(field.number(), WireType::start_group);
          unknown_fields(field.group());
          tag(field.number(), WireType::end_group);
          break;
      }
    }
  }

  void tag(int number, WireType type) {
    output_.WriteTag(static_cast<std::uint32_t>(number) << 3 | static_cast<std::uint32_t>(type));
  }

  void field(const Message& message, const Reflection& reflection, const FieldDescriptor& field,
             const MessageShape& shape) {
    const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      std::string scratch;  // for strings that are stored otherwise, which protobuf 3.21 has none of
      for (int i = 0; i < count; ++i) {
        const std::string& value = field.is_repeated()
                                       ? reflection.GetRepeatedStringReference(message, &field, i, &scratch)
                                       : reflection.GetStringReference(message, &field, &scratch);
        WireFormatLite::WriteBytesMaybeAliased(field.number(), value, &output_);
      }
      return;
    }
    const MessageShape* const below = message_shape(field, shape);
    if (below == nullptr || !copies(*below) || is_map_of_numbers(field)) {
      WireFormat::SerializeFieldWithCachedSizes(&field, message, &output_);
    } else if (field.is_map()) {
      map(message, reflection, field, *below);
    } else {
      for (int i = 0; i < count; ++i) {
        const Message& value = field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, i)
                                                   : reflection.GetMessage(message, &field);
        nested(field, value, *below);
      }
    }
  }

  static bool is_map_of_numbers(const FieldDescriptor& field) {
    if (!field.is_map()) return false;
    const FieldDescriptor::CppType value = field.message_type()->map_value()->cpp_type();
    return value != FieldDescriptor::CPPTYPE_MESSAGE && value != FieldDescriptor::CPPTYPE_STRING;
  }

  static const MessageShape* message_shape(const FieldDescriptor& field, const MessageShape& shape) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return nullptr;
    const bool is_group = field.type() == FieldDescriptor::TYPE_GROUP;
    const FieldShape* const found = shape.find(
        {static_cast<std::uint32_t>(field.number()), is_group ? WireType::start_group : WireType::length});
    return found == nullptr ? nullptr : found->message;
  }

  void nested(const FieldDescriptor& field, const Message& value, const MessageShape& shape) {
    if (field.type() == FieldDescriptor::TYPE_GROUP) {
      tag(field.number(), WireType::start_group);
      message(value, shape);
      tag(field.number(), WireType::end_group);
    } else {
      tag(field.number(), WireType::length);
      output_.WriteVarint32(static_cast<std::uint32_t>(value.GetCachedSize()));
      message(value, shape);
    }
  }

  void map(const Message& message, const Reflection& reflection, const FieldDescriptor& field,
           const MessageShape& entry) {
    Message* const whole = const_cast<Message*>(&message);  // protobuf's iterators are for writing, too
    MapIterator at = (reflection.*map_begin(0))(whole, &field);
    const MapIterator end = (reflection.*map_end(0))(whole, &field);
    if (!output_.IsSerializationDeterministic()) {
      for (; at != end; ++at) map_entry(field, entry, at.GetKey(), at.GetValueRef());
      return;
    }
    std::vector<MapKey> keys;
    for (; at != end; ++at) keys.push_back(at.GetKey());
    std::sort(keys.begin(), keys.end());
    for (const MapKey& key : keys) {
      MapValueConstRef value;
      (reflection.*map_look_up(0))(message, &field, key, &value);
      map_entry(field, entry, key, value);
    }
  }

  void map_entry(const FieldDescriptor& field, const MessageShape& entry, const MapKey& key,
                 const MapValueConstRef& value) {
    const FieldDescriptor& key_field = *field.message_type()->map_key();
    const FieldDescriptor& value_field = *field.message_type()->map_value();
    const bool is_message = value_field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    std::size_t value_bytes = 0;
    if (is_message) {
      const auto bytes = static_cast<std::uint32_t>(value.GetMessageValue().GetCachedSize());
      value_bytes = CodedOutputStream::VarintSize32(bytes) + bytes;
    } else {
      value_bytes = string_bytes(value.GetStringValue());
    }
    tag(field.number(), WireType::length);
    output_.WriteVarint32(
        static_cast<std::uint32_t>(2 * kEntryTagBytes + key_bytes(key_field, key) + value_bytes));
    write_key(key_field, key, output_);
    if (key_field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) count_key(key.GetStringValue().size());
    if (is_message) {
      nested(value_field, value.GetMessageValue(), *message_shape(value_field, entry));
    } else {
      WireFormatLite::WriteBytesMaybeAliased(kValue, value.GetStringValue(), &output_);
    }
  }

  void count_key(std::size_t bytes) const noexcept {
    if (bytes >= reference_bytes_) count_copied(bytes, CopyPlace::marshal);
  }

  CodedOutputStream& output_;
  std::size_t reference_bytes_;
  bool has_large_unknown_;  // somewhere
};

}  // namespace

void write_referencing(const Message& message, const MessageShape& shape, std::size_t reference_bytes,
                       CodedOutputStream& output) {
  Encoder(output, reference_bytes, may_have_large_unknown(message, shape, reference_bytes))
      .message(message, shape);
}

}  // namespace linkspan::detail
