// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// RespReplyDecoder: what servers of Redis answer, for a client: replies of RESP2 and RESP3, nested ones too.
// Commands are written with a RespWriter, and go past it.
// Not for: commands that clients send (RespCommandDecoder), and RESP3's strings and arrays of unknown length,
// which no server sends.
// Cost: nothing is copied or put together; 48 bytes for each value of a reply, in one array; what has been
// decoded of a reply that is incomplete is not looked at again.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/codec/frame_codec.hpp"
#include "linkspan/codec/resp_input.hpp"

namespace linkspan {

/// The signs on the wire.
enum class RespType : char {
  simple_string = '+',
  error = '-',
  integer = ':',
  bulk_string = '$',
  array = '*',
  null = '_',  ///< also RESP2's two, $-1 and *-1
  boolean = '#',
  real = ',',
  big_number = '(',
  bulk_error = '!',
  verbatim_string = '=',  ///< its text begins with the format and a colon: "txt:"
  map = '%',              ///< keys and values in turn
  set = '~',
  push = '>',  ///< no answer to anything
};

/// Each is checked before anything is kept for what it bounds.
struct RespReplyLimits {
  std::size_t max_bulk_bytes = std::size_t{512} << 20;  ///< of one string
  std::size_t max_line_bytes = std::size_t{64} << 10;   ///< of a value without a length
  std::size_t max_values = std::size_t{1} << 20;        ///< in one reply, at all depths
  std::size_t max_depth = 32;                           ///< of arrays in arrays
  /// Of one reply as it is on the wire, so also of what is kept of one that is incomplete.
  std::size_t max_reply_bytes = std::size_t{1} << 30;

  RespReplyLimits() = default;
};

class RespReply;

/// A value in a reply; valid as long as that is.
class RespValue {
 public:
  class Iterator;

  [[nodiscard]] RespType type() const noexcept;
  [[nodiscard]] bool is_error() const noexcept {
    return type() == RespType::error || type() == RespType::bulk_error;
  }
  [[nodiscard]] bool is_null() const noexcept { return type() == RespType::null; }

  /// Of an integer; 0 or 1 of a boolean.
  [[nodiscard]] std::int64_t integer() const noexcept;
  /// Of a real; nothing when its text is none.
  [[nodiscard]] std::optional<double> real() const;
  /// What stands behind the sign, or the string. A text that lies across slices is put together first
  /// (CopyPlace::framing), which may throw std::bad_alloc: take large ones with chain().
  [[nodiscard]] std::string_view text() const;
  /// The same, sharing the memory.
  [[nodiscard]] Chain chain() const;

  /// Values in an array, a set or a push, keys and values of a map; 0 for others.
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] Iterator begin() const noexcept;
  [[nodiscard]] Iterator end() const noexcept;

 private:
  friend class RespReply;

  RespValue(RespReply& reply, std::size_t index) noexcept : reply_(&reply), index_(index) {}

  RespReply* reply_;
  std::size_t index_;
};

/// A reply with all its values. It keeps the memory alive that they are in.
class RespReply {
 public:
  RespReply() noexcept = default;

  /// Asserts that the reply was decoded, and not moved from.
  [[nodiscard]] RespValue root() noexcept {
    LINKSPAN_ASSERT(!nodes_.empty(), "a reply has a value");
    return {*this, 0};
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_.size(); }

 private:
  friend class RespReplyDecoder;
  friend class RespValue;

  struct Node {
    const char* data;  // nullptr: across slices
    std::size_t size;
    std::size_t offset;  // in bytes_
    std::int64_t number;
    std::size_t next;  // behind this value and those in it
    RespType type;
  };

  [[nodiscard]] LINKSPAN_API std::string_view put_together(std::size_t index);
  void clear() noexcept;

  Chain bytes_;
  Chain together_;           // texts that were put together
  std::vector<Node> nodes_;  // each before those in it
};

class RespValue::Iterator {
 public:
  using value_type = RespValue;
  using difference_type = std::ptrdiff_t;

  explicit Iterator(RespValue value) noexcept : value_(value) {}
  RespValue operator*() const noexcept { return value_; }
  const RespValue* operator->() const noexcept { return &value_; }
  Iterator& operator++() noexcept {
    value_.index_ = value_.reply_->nodes_[value_.index_].next;
    return *this;
  }
  Iterator operator++(int) noexcept {
    const Iterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Iterator& other) const noexcept { return value_.index_ == other.value_.index_; }

 private:
  RespValue value_;
};

inline RespType RespValue::type() const noexcept {
  return reply_->nodes_[index_].type;
}
inline std::int64_t RespValue::integer() const noexcept {
  return reply_->nodes_[index_].number;
}
inline std::string_view RespValue::text() const {
  const RespReply::Node& node = reply_->nodes_[index_];
  if (node.data == nullptr && node.size != 0) return reply_->put_together(index_);
  return {node.data, node.size};
}
inline Chain RespValue::chain() const {
  const RespReply::Node& node = reply_->nodes_[index_];
  return reply_->bytes_.share(node.offset, node.size);
}
inline RespValue::Iterator RespValue::begin() const noexcept {
  return Iterator(RespValue(*reply_, index_ + 1));
}
inline RespValue::Iterator RespValue::end() const noexcept {
  return Iterator(RespValue(*reply_, reply_->nodes_[index_].next));
}

/// RESP3's attributes, which describe the value behind them, are left out. Errors that it passes on:
/// limit_exceeded with the name of the limit, malformed, truncated (the peer ended in a reply).
class LINKSPAN_API RespReplyDecoder final : public FrameCodecOf<RespReply, Chain> {
 public:
  explicit RespReplyDecoder(const RespReplyLimits& limits = {}) noexcept : limits_(limits) {}
  ~RespReplyDecoder() override;

 private:
  struct Open {  // an array whose values have not all come
    std::size_t node;
    std::size_t values_left;
  };

  FrameStep next(const Chain& input) override;
  void pass_frame(Chain&& frame) override;
  // A frame step means that something was decoded, and complete_ says whether that was the reply's last.
  [[nodiscard]] FrameStep next_value(const Chain& input);
  [[nodiscard]] FrameStep next_line(const Chain& input, char sign);
  [[nodiscard]] FrameStep next_length(const Chain& input, char sign);
  [[nodiscard]] FrameStep next_bulk(const Chain& input);
  [[nodiscard]] FrameStep open_array(char sign, std::int64_t length);
  [[nodiscard]] FrameStep value_done();

  RespReplyLimits limits_;
  detail::RespInput position_;
  detail::RespInput line_end_;  // how far the line at position_ was searched
  RespReply reply_;             // that is being decoded
  std::vector<Open> open_;
  std::int64_t bulk_bytes_ = kNoBulk;  // of the string whose length has come
  char bulk_sign_ = 0;
  bool complete_ = false;

  static constexpr std::int64_t kNoBulk = -1;
};

}  // namespace linkspan
