// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/marshal/protobuf_shape.hpp"

#include <algorithm>
#include <string_view>

#include "linkspan/marshal/payload.pb.h"

namespace linkspan::detail {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

namespace {

WireType wire_type(const FieldDescriptor& message) {
  return message.type() == FieldDescriptor::TYPE_GROUP ? WireType::start_group : WireType::length;
}

// What protobuf 3.21 references when it may: strings in singular fields that are no extensions.
bool is_copied_string(const FieldDescriptor& field) {
  const bool in_map = field.containing_type()->options().map_entry() && field.number() == 2;
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
         (field.is_repeated() || field.is_extension() || in_map);
}

// Up to the next dot outside of brackets; takes it off the path.
std::string_view next_name(std::string_view& path) {
  const std::size_t bracket = path.starts_with('[') ? path.find(']') : 0;
  const std::size_t dot = path.find('.', std::min(bracket, path.size()));
  const std::string_view name = path.substr(0, dot);
  path.remove_prefix(std::min(name.size() + 1, path.size()));
  return name;
}

const FieldDescriptor* find_field(const Descriptor& type, std::string_view name) {
  if (!name.starts_with('[') || !name.ends_with(']')) return type.FindFieldByName(std::string(name));
  const FieldDescriptor* extension =
      type.file()->pool()->FindExtensionByName(std::string(name.substr(1, name.size() - 2)));
  return extension != nullptr && extension->containing_type() == &type ? extension : nullptr;
}

}  // namespace

const FieldShape* MessageShape::search(WireTag tag) const noexcept {
  const auto found = std::ranges::lower_bound(fields_, tag.number, {}, &FieldShape::number);
  return found != fields_.end() && found->number == tag.number && found->type == tag.type ? &*found : nullptr;
}

MessageShapes::MessageShapes(const Descriptor& root, const Fields& payloads) {
  const auto shape_of = [this](const Descriptor* type) {
    std::unique_ptr<MessageShape>& shape = shapes_[type];
    if (shape == nullptr) {
      shape = std::make_unique<MessageShape>();
      shape->type_ = type;
      unseen_.push_back(shape.get());
    }
    return shape.get();
  };
  root_ = shape_of(&root);
  while (!unseen_.empty()) {
    MessageShape& shape = *unseen_.back();
    unseen_.pop_back();
    std::vector<const FieldDescriptor*> fields;  // the extensions that the program knows, then the fields
    shape.type_->file()->pool()->FindAllExtensions(shape.type_, &fields);
    for (int i = 0; i < shape.type_->field_count(); ++i) fields.push_back(shape.type_->field(i));
    for (const FieldDescriptor* field : fields) {
      const auto number = static_cast<std::uint32_t>(field->number());
      shape.has_copied_strings_ |= is_copied_string(*field);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        shape.fields_.push_back({number, wire_type(*field), shape_of(field->message_type()), field});
        shape.has_messages_ |= wire_type(*field) == WireType::length;
      } else if (field->type() == FieldDescriptor::TYPE_BYTES &&
                 (payloads.contains(field) || field->options().GetExtension(field::payload))) {
        shape.fields_.push_back({number, WireType::length, nullptr, field});
        shape.has_payloads_ = true;
      }
    }
    std::ranges::sort(shape.fields_, {}, &FieldShape::number);
    for (const FieldShape& field : shape.fields_) {
      if (field.number < MessageShape::kLowNumbers) shape.low_numbers_ |= std::uint64_t{1} << field.number;
    }
  }
  // Types may contain one another: again until nothing changes.
  for (bool changed = true; std::exchange(changed, false);) {
    for (auto& [type, shape] : shapes_) {
      for (const FieldShape& field : shape->fields_) {
        if (field.message == nullptr) continue;
        const bool payload_below = field.message->has_payloads_ && !shape->has_payloads_;
        const bool copied_below = field.message->has_copied_strings_ && !shape->has_copied_strings_;
        shape->has_payloads_ |= payload_below;
        shape->has_copied_strings_ |= copied_below;
        changed |= payload_below || copied_below;
      }
    }
  }
}

Result<const FieldDescriptor*> find_payload_field(const Descriptor& root, std::string_view path) {
  const std::string whole(path);
  const auto wrong = [&whole](const std::string& what) {
    return Error(errc::invalid_argument, "payload field '" + whole + "': " + what);
  };
  const Descriptor* type = &root;
  for (;;) {
    const std::string_view name = next_name(path);
    const FieldDescriptor* field = find_field(*type, name);
    if (field == nullptr) return wrong(type->full_name() + " has no field '" + std::string(name) + "'");
    if (field->is_map()) field = field->message_type()->map_value();
    if (path.empty()) {
      if (field->type() == FieldDescriptor::TYPE_BYTES) return field;
      return wrong(field->full_name() + " is " + field->type_name() + ", and payloads are bytes");
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return wrong(field->full_name() + " is " + field->type_name() + ", which has no fields");
    }
    type = field->message_type();
  }
}

std::string field_name(const Descriptor* type, std::uint32_t number) {
  if (type != nullptr && number <= static_cast<std::uint32_t>(FieldDescriptor::kMaxNumber)) {
    const int signed_number = static_cast<int>(number);
    if (const FieldDescriptor* field = type->FindFieldByNumber(signed_number)) return field->name();
    if (const FieldDescriptor* extension = type->file()->pool()->FindExtensionByNumber(type, signed_number)) {
      return "[" + extension->full_name() + "]";
    }
  }
  return std::to_string(number);
}

}  // namespace linkspan::detail
