// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The library's log: one callback that the program may replace. By default warnings and errors go to stderr.
// Not for: anything per message or per connection; the library logs rare events only.
// Cost: one relaxed load when the level is off; a std::string when it is on.
// Threads: any; the callback is called on the thread that logs and has to be thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "linkspan/base/export.hpp"

namespace linkspan {

enum class LogLevel { debug, info, warning, error, off };

/// Where a record was made. A small type of our own: clang 14 rejects libstdc++ 12's std::source_location.
struct SourceLocation {
  const char* file = "";
  int line = 0;

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

struct LogRecord {
  LogLevel level;
  std::string_view room;     ///< the part of the library: "loop", "transport", ...
  std::string_view message;  ///< one line without its end
  SourceLocation location;
};

/// Must not throw. `context` is what was given to set_log_callback; it has to outlive the last record.
using LogCallback = void (*)(void* context, const LogRecord& record);

/// Replaces the callback; nullptr restores the default. Call it before loops run.
LINKSPAN_API void set_log_callback(LogCallback callback, void* context) noexcept;

/// Records below `level` are dropped; the default is LogLevel::warning.
LINKSPAN_API void set_log_level(LogLevel level) noexcept;
[[nodiscard]] LINKSPAN_API bool log_enabled(LogLevel level) noexcept;

LINKSPAN_API void log(LogLevel level, std::string_view room, std::string_view message,
                      SourceLocation location = SourceLocation::current()) noexcept;

[[nodiscard]] LINKSPAN_API std::string_view to_string(LogLevel level) noexcept;

}  // namespace linkspan
