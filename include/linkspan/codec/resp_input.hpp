// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// RespInput: the place in its input where a decoder of RESP (Redis's protocol) is, from one piece of an
// unfinished message to the next.
// Not for: programs; the decoders in resp_command.hpp and resp_reply.hpp are.
// Cost: 24 bytes; a number in one slice is read where it stands.
// Threads: none; it belongs to its decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "linkspan/base/export.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan::detail {

/// Unlike a Cursor it can be kept while the chain grows at its end.
class RespInput {
 public:
  /// Longer lines hold no number that anybody means.
  static constexpr std::size_t kNumberLineMostBytes = 32;

  enum class Outcome : std::uint8_t { ok, wait, too_long, malformed };
  struct Number {
    Outcome outcome;
    std::int64_t value;
  };
  struct Line {
    Outcome outcome;
    std::size_t size;  // without its end
  };

  /// Bytes from the front of the chain to here.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  void restart() noexcept { *this = RespInput(); }

  /// From here to the end of the slice; empty at the end of the chain only.
  [[nodiscard]] std::string_view contiguous(const Chain& input) const noexcept {
    if (slice_ == input.slice_count()) return {};
    return input[slice_].view().substr(in_slice_);
  }
  /// Asserts that the bytes are there.
  void skip(const Chain& input, std::size_t size) noexcept {
    LINKSPAN_ASSERT(size <= input.size() - offset_, "skipped bytes are inside the chain");
    offset_ += size;
    in_slice_ += size;
    while (slice_ != input.slice_count() && in_slice_ >= input[slice_].size()) {
      in_slice_ -= input[slice_++].size();
    }
  }

  /// Reads a type's sign, a decimal number and \r\n, and only if all of it is there moves behind them. As
  /// strict as Redis: no plus, no leading zeros.
  [[nodiscard]] Number read_number(const Chain& input) noexcept {
    const std::string_view here = contiguous(input);
    constexpr std::size_t kShortMost = 12;  // what fits into 64 bits for sure, and is not negative
    std::int64_t value = 0;
    std::size_t at = 1;
    for (; at < here.size() && at < kShortMost && here[at] >= '0' && here[at] <= '9'; ++at) {
      value = value * 10 + (here[at] - '0');
    }
    if (at + 1 < here.size() && here[at] == '\r' && here[at + 1] == '\n' && (here[1] != '0' || at == 2) &&
        at != 1) {
      skip(input, at + 2);
      return {Outcome::ok, value};
    }
    return read_any_number(input);
  }

  /// Whether \r\n stands here, which is then behind. Asserts that two bytes are there.
  [[nodiscard]] bool skip_line_end(const Chain& input) noexcept {
    const std::string_view here = contiguous(input);
    const char second = here.size() > 1 ? here[1] : input[slice_ + 1].view().front();
    if (here.front() != '\r' || second != '\n') return false;
    skip(input, 2);
    return true;
  }

 private:
  [[nodiscard]] LINKSPAN_API Number read_any_number(const Chain& input) noexcept;

  std::size_t offset_ = 0;
  std::size_t slice_ = 0;  // slice_count() at the end
  std::size_t in_slice_ = 0;
};

}  // namespace linkspan::detail
