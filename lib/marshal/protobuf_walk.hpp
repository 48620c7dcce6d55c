// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Walks over an encoded message to its payload fields, and notes what has to change so that payloads and
// tickets can take each other's place: the lengths of all messages around them, too. On its way it checks all
// of the encoding: protobuf 3.21 trusts the length of a message inside a message, and reserves up to 50 MB
// for a string when the length of the message around it lies. So lengths are checked before it parses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lib/marshal/protobuf_shape.hpp"
#include "linkspan/base/error.hpp"
#include "linkspan/buffer/cursor.hpp"

namespace linkspan::detail {

[[nodiscard]] constexpr std::size_t varint_bytes(std::uint64_t value) noexcept {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

/// A length that changes, and the value behind it when that is a payload or a ticket.
struct Edit {
  static constexpr std::uint32_t kNoPayload = std::numeric_limits<std::uint32_t>::max();

  std::size_t position;  // of the old length
  std::size_t old_length_bytes;
  std::size_t old_value_bytes;  // that give way, too: 0 unless there is a payload
  std::size_t length;           // the new one
  std::uint32_t payload;
};

/// A quick look at a message in one piece: true if every message inside of it, down to `depth` levels, ends
/// within the one around it, which is all that protobuf does not check by itself. Otherwise MessageWalk has
/// to look, as also for groups, and says what is wrong, if anything is.
[[nodiscard]] bool lengths_fit(std::span<const std::byte> message, const MessageShape& shape,
                               int depth) noexcept;

class MessageWalk {
 public:
  /// What finds a payload field. It reads the value, `length` bytes, or skips it.
  class Visitor {
   public:
    virtual ~Visitor() = default;
    /// Where the value's length stands, and what it is.
    [[nodiscard]] virtual bool on_payload(MessageWalk& walk, std::size_t length_position,
                                          std::size_t length) = 0;
  };

  /// `message` has to outlive the walk and stay unchanged.
  MessageWalk(const Chain& message, Visitor& visitor, std::vector<Edit>& edits) noexcept
      : visitor_(visitor), edits_(edits), cursor_(message) {}

  /// False: failed for good. `depth_left`: how many levels of messages and groups are allowed.
  [[nodiscard]] bool run(const MessageShape& shape, int depth_left) { return fields(&shape, depth_left); }

  [[nodiscard]] std::size_t position() const noexcept { return cursor_.position() - part_.size(); }
  [[nodiscard]] bool skip(std::size_t size) noexcept;
  /// Asserts that the bytes are there, as they are inside of a value.
  void read(std::span<char> to) noexcept;
  /// Notes that a payload and a ticket take each other's place.
  void replace(const Edit& edit) {
    edits_.push_back(edit);
    grown_by_ += static_cast<std::ptrdiff_t>(varint_bytes(edit.length) + edit.length) -
                 static_cast<std::ptrdiff_t>(edit.old_length_bytes + edit.old_value_bytes);
  }
  bool fail(errc error, const char* rule) noexcept {
    error_ = error;
    rule_ = rule;
    failed_at_ = position();
    return false;
  }

  /// By how much all edits together make the message longer.
  [[nodiscard]] std::ptrdiff_t grown_by() const noexcept { return grown_by_; }
  /// truncated (the input ends in the middle of a field), malformed or limit_exceeded; with the field's path
  /// and the offset.
  [[nodiscard]] Error error() const;

 private:
  [[nodiscard]] bool fields(const MessageShape* shape, int depth_left);
  [[nodiscard]] bool group(std::uint32_t number, const MessageShape* shape, int depth_left);
  [[nodiscard]] bool field(const MessageShape* shape, WireTag tag, int depth_left);
  [[nodiscard]] bool value(const MessageShape* shape, WireTag tag, int depth_left);
  [[nodiscard]] bool message(std::size_t length_position, std::size_t length, const MessageShape& shape,
                             int depth_left);

  [[nodiscard]] bool read_tag(WireTag& tag) noexcept;
  [[nodiscard]] bool read_length(std::size_t& length) noexcept;
  [[nodiscard]] bool read_short_varint(std::uint32_t& value) noexcept;
  [[nodiscard]] bool skip_varint() noexcept;
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
  /// The message at hand ends too early: a length around it lies, or the input was cut.
  bool overrun() noexcept {
    return behind_ != 0 ? fail(errc::malformed, "runs past the end of the message around it")
                        : fail(errc::truncated, "ends in the middle of a field");
  }

  Visitor& visitor_;
  std::vector<Edit>& edits_;
  std::span<const std::byte> part_;  // what comes next, inside one slice
  Cursor cursor_;                    // behind part_
  std::size_t behind_ = 0;           // bytes of the input behind the message at hand
  std::ptrdiff_t grown_by_ = 0;
  errc error_{};
  const char* rule_ = "";
  std::size_t failed_at_ = 0;
  std::string path_;  // of the field that failed
};

}  // namespace linkspan::detail
