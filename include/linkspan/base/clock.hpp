// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The clock that a loop is given: monotonic time behind an interface, so that a simulated world can replace
// it.
// Not for: wall-clock time.
// Cost: a virtual call and clock_gettime(CLOCK_MONOTONIC).
// Threads: now() may be called on any thread.
#pragma once

#include <chrono>

#include "linkspan/base/export.hpp"

namespace linkspan {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// A resource: whoever creates it keeps it alive as long as the loops that use it.
class LINKSPAN_API Clock {
 public:
  virtual ~Clock();
  [[nodiscard]] virtual TimePoint now() const noexcept = 0;
};

/// The system's monotonic clock; lives for ever.
[[nodiscard]] LINKSPAN_API const Clock& monotonic_clock() noexcept;

}  // namespace linkspan
