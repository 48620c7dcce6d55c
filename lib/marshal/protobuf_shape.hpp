// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Which fields of a message type are messages themselves, for the type and all types below it; and a check of
// encoded fields against it. protobuf 3.21 trusts the length of a message inside a message: it reserves up to
// 50 MB for a string when the length of the message around it lies. So lengths are checked before it parses.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "linkspan/base/error.hpp"
#include "linkspan/buffer/cursor.hpp"

namespace linkspan::detail {

enum class WireType : std::uint8_t { varint, fixed64, length, start_group, end_group, fixed32 };

struct WireTag {
  std::uint32_t number;
  WireType type;
};

/// The message fields of one type. Immutable once built; belongs to its MessageShapes.
class MessageShape {
 public:
  /// The shape of what `tag` announces, or nullptr if protobuf does not parse that as a message or group.
  [[nodiscard]] const MessageShape* child(WireTag tag) const noexcept;

 private:
  friend class MessageShapes;
  struct Child {
    std::uint32_t number;
    WireType type;
    const MessageShape* shape;
  };
  std::vector<Child> children_;  // by number
};

class MessageShapes {
 public:
  explicit MessageShapes(const google::protobuf::Descriptor& root);

  [[nodiscard]] const MessageShape& root() const noexcept { return *root_; }

 private:
  std::unordered_map<const google::protobuf::Descriptor*, std::unique_ptr<MessageShape>> shapes_;
  const MessageShape* root_;
};

/// Walks over encoded fields. Errors are truncated (the input ends in the middle of a field), malformed, and
/// limit_exceeded (deeper than allowed).
class FieldWalker {
 public:
  /// `cursor` stands in front of a field of the outermost message.
  explicit FieldWalker(Cursor& cursor) noexcept : cursor_(cursor) {}

  [[nodiscard]] std::error_code read_tag(WireTag& tag) noexcept;
  /// The length in front of a value of WireType::length; the value is inside the input.
  [[nodiscard]] std::error_code read_length(std::size_t& length) noexcept;
  /// The value behind `tag`, with everything inside it that is a message or a group. `depth_left`: how many
  /// more levels are allowed. `shape` is that of the message around, nullptr inside an unknown group.
  [[nodiscard]] std::error_code skip_value(WireTag tag, const MessageShape* shape, int depth_left) noexcept;

 private:
  [[nodiscard]] std::error_code skip_message(std::size_t length, const MessageShape* shape,
                                             int depth_left) noexcept;
  [[nodiscard]] std::error_code skip_group(std::uint32_t number, const MessageShape* shape,
                                           int depth_left) noexcept;
  [[nodiscard]] std::error_code skip(std::size_t size) noexcept;
  [[nodiscard]] std::error_code skip_varint() noexcept;
  [[nodiscard]] std::error_code read_short_varint(std::uint32_t& value) noexcept;
  [[nodiscard]] std::size_t left() const noexcept { return cursor_.remaining() - behind_; }
  /// What it means that the message at hand ends too early: a length inside the input lies, or the input was
  /// cut.
  [[nodiscard]] std::error_code overrun() const noexcept {
    return make_error_code(behind_ != 0 ? errc::malformed : errc::truncated);
  }

  Cursor& cursor_;
  std::size_t behind_ = 0;  // bytes of the input behind the message at hand
};

}  // namespace linkspan::detail
