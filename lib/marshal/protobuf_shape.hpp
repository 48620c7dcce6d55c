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
#include <span>
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

/// Walks over encoded fields. What returns false has failed for good, and error() says why.
class FieldWalker {
 public:
  /// `message` has to outlive the walker and stay unchanged.
  explicit FieldWalker(const Chain& message) noexcept : cursor_(message) {}

  [[nodiscard]] std::size_t position() const noexcept { return cursor_.position() - part_.size(); }
  [[nodiscard]] bool at_end() const noexcept { return left() == 0; }

  [[nodiscard]] bool read_tag(WireTag& tag) noexcept;
  /// The length in front of a value of WireType::length; the value is inside the input.
  [[nodiscard]] bool read_length(std::size_t& length) noexcept;
  /// The value behind `tag`, with everything inside it that is a message or a group. `depth_left`: how many
  /// more levels are allowed. `shape` is that of the message around, nullptr inside an unknown group.
  [[nodiscard]] bool skip_value(WireTag tag, const MessageShape* shape, int depth_left) noexcept;

  /// truncated (the input ends in the middle of a field), malformed, or limit_exceeded (too deep).
  [[nodiscard]] errc error() const noexcept { return error_; }

 private:
  [[nodiscard]] bool skip_message(std::size_t length, const MessageShape* shape, int depth_left) noexcept;
  [[nodiscard]] bool skip_group(std::uint32_t number, const MessageShape* shape, int depth_left) noexcept;
  [[nodiscard]] bool skip(std::size_t size) noexcept;
  [[nodiscard]] bool skip_varint() noexcept;
  [[nodiscard]] bool read_short_varint(std::uint32_t& value) noexcept;

  [[nodiscard]] std::size_t remaining() const noexcept { return cursor_.remaining() + part_.size(); }
  [[nodiscard]] std::size_t left() const noexcept { return remaining() - behind_; }
  [[nodiscard]] std::byte next_byte() noexcept {
    if (part_.empty()) {
      part_ = cursor_.contiguous();
      cursor_.skip(part_.size());
    }
    const std::byte byte = part_.front();
    part_ = part_.subspan(1);
    return byte;
  }
  bool fail(errc error) noexcept {
    error_ = error;
    return false;
  }
  /// The message at hand ends too early: a length around it lies, or the input was cut.
  bool overrun() noexcept { return fail(behind_ != 0 ? errc::malformed : errc::truncated); }

  std::span<const std::byte> part_;  // what comes next, inside one slice
  Cursor cursor_;                    // behind part_
  std::size_t behind_ = 0;           // bytes of the input behind the message at hand
  errc error_{};
};

}  // namespace linkspan::detail
