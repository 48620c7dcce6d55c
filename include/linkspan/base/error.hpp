// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The errors that Linkspan itself reports, as std::error_code values, and Error for configuration mistakes.
// `errc` is a condition, like std::errc: compare with `code == errc::connection_lost`, build a code with
// make_error_code. A broken connection keeps the system's errno: see connection_lost().
// Not for: programming errors (LINKSPAN_ASSERT).
// Cost: std::error_code is 16 bytes; Error holds a string and belongs to set-up paths only.
// Threads: values; the categories are immutable.
#pragma once

#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "linkspan/base/export.hpp"

namespace linkspan {

enum class errc {
  connection_lost = 1,  ///< the peer reset the connection or the network gave up; value() is the errno
  shut_down,            ///< a write after shutdown_write or close
  cancelled,            ///< the operation was cancelled: abort, stop of the loop, or a stop request
  aborted,              ///< the stream or channel was aborted by its owner
  timed_out,            ///< a deadline of ours passed
  pool_exhausted,       ///< a block pool is at its budget, or memory is out
  limit_exceeded,       ///< a length, count or depth is above its documented limit
  truncated,            ///< the input ended in the middle of an item
  malformed,            ///< the input breaks a rule of its format
  invalid_argument,     ///< an option or a name that cannot be used
  unavailable,          ///< the feature is not built in, or the system refuses it
  unresolved,           ///< a name that no address was found for
  stopped,              ///< the loop is stopping and takes no more work
  handler_failed,       ///< a user's callback threw
  unhandled,            ///< a message reached the end of a pipeline that takes none
  end_of_stream,        ///< a read for which nothing more comes: the peer has ended, or the server drains
};

[[nodiscard]] LINKSPAN_API const std::error_category& error_category() noexcept;

[[nodiscard]] inline std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}
[[nodiscard]] inline std::error_condition make_error_condition(errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

/// A code that equals errc::connection_lost and whose value() is `system_errno` (ECONNRESET, EPIPE, ...);
/// errc::connection_lost itself when the system gave no reason (0).
[[nodiscard]] LINKSPAN_API std::error_code connection_lost(int system_errno) noexcept;

/// An errno as a code of std::system_category.
[[nodiscard]] inline std::error_code system_error_code(int system_errno) noexcept {
  return {system_errno, std::system_category()};
}

/// A configuration error: what was wrong and what was expected, in `detail`.
struct Error {
  std::error_code code;
  std::string detail;

  Error(std::error_code code_in, std::string detail_in) : code(code_in), detail(std::move(detail_in)) {}
  Error(errc code_in, std::string detail_in) : code(make_error_code(code_in)), detail(std::move(detail_in)) {}

  /// `detail`, followed by the code's own message where a system call failed.
  [[nodiscard]] LINKSPAN_API std::string message() const;
};

/// What the throwing forms throw; what() is Error::message().
class LINKSPAN_API Exception : public std::runtime_error {
 public:
  explicit Exception(const Error& error);
  ~Exception() override;
  [[nodiscard]] std::error_code code() const noexcept { return code_; }

 private:
  std::error_code code_;
};

}  // namespace linkspan

template <>
struct std::is_error_condition_enum<linkspan::errc> : std::true_type {};
