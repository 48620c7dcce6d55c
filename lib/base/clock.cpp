// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/clock.hpp"

#include "lib/base/never_destroyed.hpp"

namespace linkspan {
namespace {

class MonotonicClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
};

}  // namespace

Clock::~Clock() = default;

const Clock& monotonic_clock() noexcept {
  static NeverDestroyed<MonotonicClock> clock;
  return clock.get();
}

}  // namespace linkspan
