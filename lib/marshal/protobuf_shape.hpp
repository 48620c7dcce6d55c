// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the encoder and the decoder know of a message type and all types below it, made once: which fields are
// messages, which are payloads, and where strings are that protobuf itself would copy.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "linkspan/base/result.hpp"

namespace linkspan::detail {

enum class WireType : std::uint8_t { varint, fixed64, length, start_group, end_group, fixed32 };

struct WireTag {
  std::uint32_t number;
  WireType type;
};

class MessageShape;

/// A field that is a message, a group or a payload.
struct FieldShape {
  std::uint32_t number;
  WireType type;
  const MessageShape* message;  // nullptr: a payload
  const google::protobuf::FieldDescriptor* field;
};

/// Immutable once built; belongs to its MessageShapes.
class MessageShape {
 public:
  /// What `tag` announces; nullptr if that is neither a payload nor what protobuf parses as a message or
  /// group.
  [[nodiscard]] const FieldShape* find(WireTag tag) const noexcept {
    const bool maybe = tag.number >= kLowNumbers || (low_numbers_ >> tag.number & 1) != 0;
    return maybe ? search(tag) : nullptr;
  }
  [[nodiscard]] const std::vector<FieldShape>& fields() const noexcept { return fields_; }

  [[nodiscard]] const google::protobuf::Descriptor& type() const noexcept { return *type_; }
  /// A field of this type or of one below it is a payload.
  [[nodiscard]] bool has_payloads() const noexcept { return has_payloads_; }
  /// A field of this very type is a message, with a length.
  [[nodiscard]] bool has_messages() const noexcept { return has_messages_; }
  /// There may be strings, in this type or below it, that protobuf's encoder copies: repeated ones, a map's
  /// values, extensions.
  [[nodiscard]] bool has_copied_strings() const noexcept { return has_copied_strings_; }

 private:
  friend class MessageShapes;
  static constexpr std::uint32_t kLowNumbers = 64;

  [[nodiscard]] const FieldShape* search(WireTag tag) const noexcept;

  std::vector<FieldShape> fields_;  // by number
  std::uint64_t low_numbers_ = 0;   // which numbers below 64 are among them: most fields are neither
  const google::protobuf::Descriptor* type_ = nullptr;
  bool has_payloads_ = false;
  bool has_messages_ = false;
  bool has_copied_strings_ = false;
};

class MessageShapes {
 public:
  using Fields = std::unordered_set<const google::protobuf::FieldDescriptor*>;

  /// `payloads`: in addition to the fields that are marked in the .proto file.
  MessageShapes(const google::protobuf::Descriptor& root, const Fields& payloads);

  [[nodiscard]] const MessageShape& root() const noexcept { return *root_; }

 private:
  std::unordered_map<const google::protobuf::Descriptor*, std::unique_ptr<MessageShape>> shapes_;
  std::vector<MessageShape*> unseen_;
  const MessageShape* root_;
};

/// The bytes field that a path names: names joined by dots, from a field of `root` on; a map's name means its
/// values, and [name.of.an.extension] an extension. Otherwise the error says what is there instead.
[[nodiscard]] Result<const google::protobuf::FieldDescriptor*> find_payload_field(
    const google::protobuf::Descriptor& root, std::string_view path);

/// The name of a field, or its number where the type has none of that number.
[[nodiscard]] std::string field_name(const google::protobuf::Descriptor* type, std::uint32_t number);

}  // namespace linkspan::detail
