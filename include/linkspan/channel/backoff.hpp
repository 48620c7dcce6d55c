// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Backoff: how long to wait before the next attempt at something that has failed. Delays grow by a factor up
// to a cap, and each is shortened by chance, so that many clients do not come back together.
// Not for: pacing what succeeds.
// Cost: arithmetic.
// Threads: none; a value of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/export.hpp"

namespace linkspan {

struct BackoffOptions {
  std::size_t attempts = 10;  ///< in all, with the first; 0: without end
  Duration first_delay = std::chrono::milliseconds(100);
  Duration max_delay = std::chrono::seconds(30);
  double factor = 2;       ///< at least 1
  double jitter = 0.5;     ///< the part of a delay that chance may take off; 0 to 1
  std::uint64_t seed = 0;  ///< of that chance: equal seeds give equal delays; 0: the loop's randomness

  BackoffOptions() = default;
};

class LINKSPAN_API Backoff {
 public:
  /// `options.seed` as it is, 0 too.
  explicit Backoff(const BackoffOptions& options) noexcept;

  /// An attempt has failed: how long until the next one; nothing when there is to be none.
  [[nodiscard]] std::optional<Duration> next() noexcept;

 private:
  BackoffOptions options_;
  std::size_t failed_ = 0;
  double delay_ns_;
  std::uint64_t random_;
};

}  // namespace linkspan
