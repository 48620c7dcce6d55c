// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// RespWriter: encodes replies (RESP2 and RESP3) and commands into one Chain. Large values are appended by
// reference; everything else of many replies shares a few blocks.
// Not for: decoding (RespCommandDecoder, RespReplyDecoder).
// Cost: a small reply is written into the open block, with no reference counted; see ChainWriter.
// Threads: none; a writer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <system_error>

#include "linkspan/buffer/chain_writer.hpp"

namespace linkspan {

enum class RespVersion : std::uint8_t { two = 2, three = 3 };

/// Counts that are announced are the caller's to keep: behind array(2) two values follow.
class RespWriter {
 public:
  /// `allocator` has to outlive the writer, not what was written.
  explicit RespWriter(BlockAllocator& allocator, ChainWriterOptions options = {}) noexcept
      : writer_(allocator, options) {}
  RespWriter(const RespWriter&) = delete;
  RespWriter& operator=(const RespWriter&) = delete;

  /// Of what is written from now on. Where RESP2 has no type for something, what Redis sends takes its place.
  void set_version(RespVersion version) noexcept { version_ = version; }
  [[nodiscard]] RespVersion version() const noexcept { return version_; }

  /// Without \r and \n in it.
  LINKSPAN_API void simple_string(std::string_view text);
  /// Begins with a code such as ERR. Of \r and \n in it become spaces.
  LINKSPAN_API void error(std::string_view text);
  void integer(std::int64_t value) { number(':', value); }
  LINKSPAN_API void bulk(std::string_view bytes);
  LINKSPAN_API void bulk(Chain&& bytes);
  LINKSPAN_API void null();
  /// In the place of an array.
  LINKSPAN_API void null_array();
  void array(std::size_t values) { number('*', static_cast<std::int64_t>(values)); }
  /// Of `pairs` keys, each with its value; RESP2: an array.
  LINKSPAN_API void map(std::size_t pairs);
  LINKSPAN_API void set(std::size_t values);
  LINKSPAN_API void push(std::size_t values);
  LINKSPAN_API void boolean(bool value);
  LINKSPAN_API void real(double value);
  /// Text of a format of three letters; RESP2: a bulk string.
  LINKSPAN_API void verbatim(std::string_view format, std::string_view text);
  /// A command whose arguments are all small; otherwise array() and bulk() do it.
  LINKSPAN_API void command(std::span<const std::string_view> arguments);
  void command(std::initializer_list<std::string_view> arguments) {
    command(std::span(arguments.begin(), arguments.size()));
  }

  /// Bytes written and not taken.
  [[nodiscard]] std::size_t size() const noexcept {
    return writer_.size() + static_cast<std::size_t>(next_ - begin_);
  }
  /// errc::pool_exhausted once the allocator has refused; what was written is not whole then.
  [[nodiscard]] std::error_code error_code() const noexcept { return writer_.error(); }
  /// What was written. The writer goes on in what is left of its block.
  [[nodiscard]] LINKSPAN_API Chain take();

 private:
  // Room for a sign, a number and \r\n.
  static constexpr std::size_t kNumberMostBytes = 24;

  [[nodiscard]] bool room(std::size_t bytes) {
    return static_cast<std::size_t>(end_ - next_) >= bytes || make_room(bytes);
  }
  [[nodiscard]] LINKSPAN_API bool make_room(std::size_t bytes);
  LINKSPAN_API void close();
  LINKSPAN_API void number(char sign, std::int64_t value);
  void put_number(char sign, std::int64_t value) noexcept;
  void put(std::string_view text) noexcept;
  void line(char sign, std::string_view text);

  ChainWriter writer_;
  // Of the writer's block: written and not committed, and free.
  std::byte* begin_ = nullptr;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  RespVersion version_ = RespVersion::two;
};

}  // namespace linkspan
