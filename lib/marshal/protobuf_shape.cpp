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

bool FieldWalker::skip(std::size_t size) noexcept {
  if (size > left()) return overrun();
  const std::size_t here = std::min(size, part_.size());
  part_ = part_.subspan(here);
  cursor_.skip(size - here);
  return true;
}

bool FieldWalker::skip_varint() noexcept {
  constexpr int kMaxBytes = 10;
  for (int i = 0; i < kMaxBytes; ++i) {
    if (left() == 0) return overrun();
    if (next_byte() < std::byte{0x80}) return true;
  }
  return fail(errc::malformed);
}

// Tags and lengths: protobuf takes at most 5 bytes for them, however many zeros they spell out.
bool FieldWalker::read_short_varint(std::uint32_t& value) noexcept {
  constexpr unsigned kLastShift = 28;
  value = 0;
  for (unsigned shift = 0; shift <= kLastShift; shift += 7) {
    if (left() == 0) return overrun();
    const auto byte = static_cast<std::uint32_t>(next_byte());
    if (shift == kLastShift && byte > 0x0f) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return fail(errc::malformed);
}

bool FieldWalker::read_tag(WireTag& tag) noexcept {
  std::uint32_t value = 0;
  if (!read_short_varint(value)) return false;
  tag = {value >> 3, static_cast<WireType>(value & 7)};
  return tag.number != 0 && tag.type <= WireType::fixed32 ? true : fail(errc::malformed);
}

bool FieldWalker::read_length(std::size_t& length) noexcept {
  std::uint32_t value = 0;
  if (!read_short_varint(value)) return false;
  if (value > static_cast<std::uint32_t>(std::numeric_limits<int>::max())) return fail(errc::malformed);
  length = value;
  return length <= left() ? true : overrun();
}

bool FieldWalker::skip_message(std::size_t length, const MessageShape* shape, int depth_left) noexcept {
  const std::size_t outer = std::exchange(behind_, remaining() - length);
  while (!at_end()) {
    WireTag tag{};
    if (!read_tag(tag) || !skip_value(tag, shape, depth_left)) return false;
  }
  behind_ = outer;
  return true;
}

bool FieldWalker::skip_group(std::uint32_t number, const MessageShape* shape, int depth_left) noexcept {
  for (;;) {
    WireTag tag{};
    if (!read_tag(tag)) return false;
    if (tag.type == WireType::end_group) return tag.number == number ? true : fail(errc::malformed);
    if (!skip_value(tag, shape, depth_left)) return false;
  }
}

bool FieldWalker::skip_value(WireTag tag, const MessageShape* shape, int depth_left) noexcept {
  const MessageShape* const child = shape == nullptr ? nullptr : shape->child(tag);
  switch (tag.type) {
    case WireType::varint: return skip_varint();
    case WireType::fixed64: return skip(8);
    case WireType::fixed32: return skip(4);
    case WireType::length: {
      std::size_t length = 0;
      if (!read_length(length)) return false;
      if (child == nullptr) return skip(length);
      return depth_left > 0 ? skip_message(length, child, depth_left - 1) : fail(errc::limit_exceeded);
    }
    case WireType::start_group:
      return depth_left > 0 ? skip_group(tag.number, child, depth_left - 1) : fail(errc::limit_exceeded);
    case WireType::end_group: break;  // of no group that is open
  }
  return fail(errc::malformed);
}

}  // namespace linkspan::detail
