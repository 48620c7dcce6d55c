// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/marshal/protobuf_shape.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace linkspan::detail {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const MessageShape* MessageShape::child(WireTag tag) const noexcept {
  const auto found = std::ranges::lower_bound(children_, tag.number, {}, &Child::number);
  const bool same = found != children_.end() && found->number == tag.number && found->type == tag.type;
  return same ? found->shape : nullptr;
}

MessageShapes::MessageShapes(const Descriptor& root) {
  std::vector<const Descriptor*> unseen;
  const auto shape_of = [&](const Descriptor* type) {
    std::unique_ptr<MessageShape>& shape = shapes_[type];
    if (shape == nullptr) {
      shape = std::make_unique<MessageShape>();
      unseen.push_back(type);
    }
    return shape.get();
  };
  root_ = shape_of(&root);
  while (!unseen.empty()) {
    const Descriptor* type = unseen.back();
    unseen.pop_back();
    std::vector<const FieldDescriptor*> fields;  // the extensions that the program knows, then the fields
    type->file()->pool()->FindAllExtensions(type, &fields);
    for (int i = 0; i < type->field_count(); ++i) fields.push_back(type->field(i));
    std::vector<MessageShape::Child> children;
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      children.push_back(
          {static_cast<std::uint32_t>(field->number()),
           field->type() == FieldDescriptor::TYPE_GROUP ? WireType::start_group : WireType::length,
           shape_of(field->message_type())});
    }
    std::ranges::sort(children, {}, &MessageShape::Child::number);
    shapes_[type]->children_ = std::move(children);
  }
}

std::error_code FieldWalker::skip(std::size_t size) noexcept {
  if (size > left()) return overrun();
  cursor_.skip(size);
  return {};
}

std::error_code FieldWalker::skip_varint() noexcept {
  constexpr int kMaxBytes = 10;
  for (int i = 0; i < kMaxBytes; ++i) {
    if (left() == 0) return overrun();
    const std::byte byte = cursor_.contiguous().front();
    cursor_.skip(1);
    if (byte < std::byte{0x80}) return {};
  }
  return make_error_code(errc::malformed);
}

// Tags and lengths: protobuf takes at most 5 bytes for them, however many zeros they spell out.
std::error_code FieldWalker::read_short_varint(std::uint32_t& value) noexcept {
  constexpr unsigned kLastShift = 28;
  value = 0;
  for (unsigned shift = 0; shift <= kLastShift; shift += 7) {
    if (left() == 0) return overrun();
    const auto byte = static_cast<std::uint32_t>(cursor_.contiguous().front());
    cursor_.skip(1);
    if (shift == kLastShift && byte > 0x0f) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return {};
  }
  return make_error_code(errc::malformed);
}

std::error_code FieldWalker::read_tag(WireTag& tag) noexcept {
  std::uint32_t value = 0;
  if (const std::error_code error = read_short_varint(value)) return error;
  tag = {value >> 3, static_cast<WireType>(value & 7)};
  if (tag.number == 0 || tag.type > WireType::fixed32) return make_error_code(errc::malformed);
  return {};
}

std::error_code FieldWalker::read_length(std::size_t& length) noexcept {
  std::uint32_t value = 0;
  if (const std::error_code error = read_short_varint(value)) return error;
  if (value > static_cast<std::uint32_t>(std::numeric_limits<int>::max())) {
    return make_error_code(errc::malformed);
  }
  length = value;
  return length > left() ? overrun() : std::error_code();
}

std::error_code FieldWalker::skip_message(std::size_t length, const MessageShape* shape,
                                          int depth_left) noexcept {
  const std::size_t outer = std::exchange(behind_, cursor_.remaining() - length);
  while (left() != 0) {
    WireTag tag{};
    if (const std::error_code error = read_tag(tag)) return error;
    if (const std::error_code error = skip_value(tag, shape, depth_left)) return error;
  }
  behind_ = outer;
  return {};
}

std::error_code FieldWalker::skip_group(std::uint32_t number, const MessageShape* shape,
                                        int depth_left) noexcept {
  for (;;) {
    WireTag tag{};
    if (const std::error_code error = read_tag(tag)) return error;
    if (tag.type == WireType::end_group) {
      return tag.number == number ? std::error_code() : make_error_code(errc::malformed);
    }
    if (const std::error_code error = skip_value(tag, shape, depth_left)) return error;
  }
}

std::error_code FieldWalker::skip_value(WireTag tag, const MessageShape* shape, int depth_left) noexcept {
  const MessageShape* const child = shape == nullptr ? nullptr : shape->child(tag);
  switch (tag.type) {
    case WireType::varint: return skip_varint();
    case WireType::fixed64: return skip(8);
    case WireType::fixed32: return skip(4);
    case WireType::length: {
      std::size_t length = 0;
      if (const std::error_code error = read_length(length)) return error;
      if (child == nullptr) return skip(length);
      if (depth_left == 0) return make_error_code(errc::limit_exceeded);
      return skip_message(length, child, depth_left - 1);
    }
    case WireType::start_group:
      if (depth_left == 0) return make_error_code(errc::limit_exceeded);
      return skip_group(tag.number, child, depth_left - 1);
    case WireType::end_group: break;  // of no group that is open
  }
  return make_error_code(errc::malformed);
}

}  // namespace linkspan::detail
