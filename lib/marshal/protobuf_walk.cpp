// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/marshal/protobuf_walk.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace linkspan::detail {
namespace {

// The varint at the front of `bytes`, which is taken off; more than `most` bytes are none.
bool take_varint(std::span<const std::byte>& bytes, std::size_t most, std::uint64_t& value) noexcept {
  value = 0;
  most = std::min(most, bytes.size());
  for (std::size_t i = 0; i < most; ++i) {
    const auto byte = static_cast<std::uint64_t>(bytes[i]);
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      bytes = bytes.subspan(i + 1);
      return true;
    }
  }
  return false;
}

bool drop(std::span<const std::byte>& bytes, std::uint64_t size) noexcept {
  if (size > bytes.size()) return false;
  bytes = bytes.subspan(size);
  return true;
}

}  // namespace

bool lengths_fit(std::span<const std::byte> message, const MessageShape& shape, int depth) noexcept {
  constexpr std::size_t kTagMostBytes = 4;  // of lengths, too: longer ones are for MessageWalk
  constexpr std::size_t kVarintMostBytes = 10;
  if (depth < 0) return false;
  if (!shape.has_messages()) return true;  // protobuf knows where the last of its fields has to end
  while (!message.empty()) {
    std::uint64_t tag = 0;
    std::uint64_t value = 0;
    if (!take_varint(message, kTagMostBytes, tag)) return false;
    switch (static_cast<WireType>(tag & 7)) {
      case WireType::varint:
        if (!take_varint(message, kVarintMostBytes, value)) return false;
        break;
      case WireType::fixed64:
        if (!drop(message, 8)) return false;
        break;
      case WireType::fixed32:
        if (!drop(message, 4)) return false;
        break;
      case WireType::length: {
        if (!take_varint(message, kTagMostBytes, value) || value > message.size()) return false;
        const FieldShape* const found = shape.find({static_cast<std::uint32_t>(tag >> 3), WireType::length});
        if (found != nullptr && found->message != nullptr &&
            !lengths_fit(message.first(value), *found->message, depth - 1)) {
          return false;
        }
        message = message.subspan(value);
        break;
      }
      default: return false;
    }
  }
  return true;
}

bool MessageWalk::skip(std::size_t size) noexcept {
  if (size > left()) return overrun();
  const std::size_t here = std::min(size, part_.size());
  part_ = part_.subspan(here);
  cursor_.skip(size - here);
  return true;
}

void MessageWalk::read(std::span<char> to) noexcept {
  for (char& c : to) c = static_cast<char>(next_byte());
}

bool MessageWalk::skip_varint() noexcept {
  constexpr int kMaxBytes = 10;
  for (int i = 0; i < kMaxBytes; ++i) {
    if (left() == 0) return overrun();
    if (next_byte() < std::byte{0x80}) return true;
  }
  return fail(errc::malformed, "is a varint of more than 10 bytes");
}

// Tags and lengths: protobuf takes at most 5 bytes for them, however many zeros they spell out.
bool MessageWalk::read_short_varint(std::uint32_t& value) noexcept {
  constexpr unsigned kLastShift = 28;
  value = 0;
  for (unsigned shift = 0; shift <= kLastShift; shift += 7) {
    if (left() == 0) return overrun();
    const auto byte = static_cast<std::uint32_t>(next_byte());
    if (shift == kLastShift && byte > 0x0f) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return fail(errc::malformed, "has a tag or a length of more than 32 bits");
}

bool MessageWalk::read_tag(WireTag& tag) noexcept {
  std::uint32_t value = 0;
  if (!read_short_varint(value)) return false;
  tag = {value >> 3, static_cast<WireType>(value & 7)};
  return tag.number != 0 && tag.type <= WireType::fixed32
             ? true
             : fail(errc::malformed, "has a tag with field number 0 or an unknown wire type");
}

bool MessageWalk::read_length(std::size_t& length) noexcept {
  std::uint32_t value = 0;
  if (!read_short_varint(value)) return false;
  if (value > static_cast<std::uint32_t>(std::numeric_limits<int>::max())) {
    return fail(errc::malformed, "has a length above 2 GiB");
  }
  length = value;
  return length <= left() ? true : overrun();
}

bool MessageWalk::fields(const MessageShape* shape, int depth_left) {
  while (left() != 0) {
    WireTag tag{};
    if (!read_tag(tag) || !field(shape, tag, depth_left)) return false;
  }
  return true;
}

bool MessageWalk::group(std::uint32_t number, const MessageShape* shape, int depth_left) {
  for (;;) {
    WireTag tag{};
    if (!read_tag(tag)) return false;
    if (tag.type == WireType::end_group) {
      return tag.number == number ? true : fail(errc::malformed, "ends with the tag of another group");
    }
    if (!field(shape, tag, depth_left)) return false;
  }
}

bool MessageWalk::field(const MessageShape* shape, WireTag tag, int depth_left) {
  if (value(shape, tag, depth_left)) return true;
  const std::string name = field_name(shape == nullptr ? nullptr : &shape->type(), tag.number);
  path_ = path_.empty() ? name : name + "." + path_;
  return false;
}

bool MessageWalk::value(const MessageShape* shape, WireTag tag, int depth_left) {
  const FieldShape* const found = shape == nullptr ? nullptr : shape->find(tag);
  const auto too_deep = [this] { return fail(errc::limit_exceeded, "is deeper than max_depth"); };
  switch (tag.type) {
    case WireType::varint: return skip_varint();
    case WireType::fixed64: return skip(8);
    case WireType::fixed32: return skip(4);
    case WireType::length: {
      const std::size_t length_position = position();
      std::size_t length = 0;
      if (!read_length(length)) return false;
      if (found == nullptr) return skip(length);
      if (found->message == nullptr) return visitor_.on_payload(*this, length_position, length);
      return depth_left > 0 ? message(length_position, length, *found->message, depth_left - 1) : too_deep();
    }
    case WireType::start_group:
      return depth_left > 0 ? group(tag.number, found == nullptr ? nullptr : found->message, depth_left - 1)
                            : too_deep();
    case WireType::end_group: break;
  }
  return fail(errc::malformed, "ends a group that is not open");
}

bool MessageWalk::message(std::size_t length_position, std::size_t length, const MessageShape& shape,
                          int depth_left) {
  const std::size_t length_bytes = position() - length_position;
  const std::size_t own = edits_.size();  // the edit of our own length, in front of those inside
  const std::ptrdiff_t grown_before = grown_by_;
  if (shape.has_payloads()) edits_.push_back({length_position, length_bytes, 0, length, Edit::kNoPayload});
  const std::size_t outer = std::exchange(behind_, remaining() - length);
  if (!fields(&shape, depth_left)) return false;
  behind_ = outer;
  if (!shape.has_payloads()) return true;
  if (edits_.size() == own + 1) {
    edits_.pop_back();
    return true;
  }
  Edit& edit = edits_[own];
  edit.length = length + static_cast<std::size_t>(grown_by_ - grown_before);
  grown_by_ +=
      static_cast<std::ptrdiff_t>(varint_bytes(edit.length)) - static_cast<std::ptrdiff_t>(length_bytes);
  return true;
}

Error MessageWalk::error() const {
  const std::string what = path_.empty() ? "the message" : "field '" + path_ + "'";
  return {error_, what + " " + rule_ + " (offset " + std::to_string(failed_at_) + ")"};
}

}  // namespace linkspan::detail
