// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What SET and GETEX take behind their value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "command.hpp"
#include "linkspan/store/off_heap_map.hpp"

namespace linkspan::cache {

enum class TimeUnit : std::uint8_t { seconds, milliseconds };

/// Milliseconds since 1970 of a time to live that is given from now on (`relative`), or as a time. Nothing
/// when it is not in range, and the reply has been written.
[[nodiscard]] std::optional<std::int64_t> parse_expiry(const Call& call, std::string_view text, TimeUnit unit,
                                                       bool relative);

struct ExpireOptions {
  struct Time {
    std::string_view text;  // not looked at yet
    TimeUnit unit;
    bool relative;
  };

  bool only_absent = false;
  bool only_present = false;
  bool get = false;
  bool keep = false;
  bool persist = false;
  std::optional<Time> time;
  std::optional<std::int64_t> unix_ms;  // once set_time has been called

  /// Of a value that is written.
  [[nodiscard]] Expiry expiry() const;
};

enum class ExpireSyntax : std::uint8_t { set, getex };

/// From the argument at `begin` on. Nothing when they are wrong, and the reply has been written.
[[nodiscard]] std::optional<ExpireOptions> parse_expire_options(const Call& call, std::size_t begin,
                                                                ExpireSyntax syntax);
/// False when the time is out of range, and the reply has been written.
[[nodiscard]] bool set_time(const Call& call, ExpireOptions& options);

}  // namespace linkspan::cache
