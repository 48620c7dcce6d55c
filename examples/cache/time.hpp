// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Redis's times are milliseconds since 1970, those of the map a monotonic clock's.
#pragma once

#include <chrono>
#include <cstdint>

#include "linkspan/base/clock.hpp"

namespace linkspan::cache {

inline std::int64_t unix_time_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Times that the clock cannot express are its last one, in some 200 years.
inline TimePoint time_of(std::int64_t unix_ms) {
  const TimePoint now = monotonic_clock().now();
  const TimePoint last = TimePoint::max() - Duration(1);
  const std::int64_t left_ms = unix_ms - unix_time_ms();  // both are far from overflowing, or unix_ms is >= 0
  if (left_ms > std::chrono::duration_cast<std::chrono::milliseconds>(last - now).count()) return last;
  if (left_ms <= 0) return now;
  return now + std::chrono::milliseconds(left_ms);
}

inline bool has_passed(std::int64_t unix_ms) {
  return unix_ms <= unix_time_ms();
}

inline std::int64_t milliseconds_left(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time - monotonic_clock().now()).count();
}

}  // namespace linkspan::cache
