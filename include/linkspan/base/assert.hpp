// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Assertions for programming errors, on in every build.
// Not for: bad input or failed I/O; those are std::error_code values.
// Cost: one predictable branch; keep the condition cheap.
// Threads: any.
#pragma once

#include "linkspan/base/export.hpp"

namespace linkspan::detail {

[[noreturn]] LINKSPAN_API void assertion_failed(const char* condition, const char* rule, const char* file,
                                                int line) noexcept;

}  // namespace linkspan::detail

/// Aborts with `rule` (a sentence that says what the caller has to keep) unless `condition` holds.
#define LINKSPAN_ASSERT(condition, rule) \
  (static_cast<bool>(condition)          \
       ? static_cast<void>(0)            \
       : ::linkspan::detail::assertion_failed(#condition, rule, __FILE__, __LINE__))
