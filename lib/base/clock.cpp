// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/clock.hpp"

namespace linkspan {
namespace {

class MonotonicClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
};

}  // namespace

Clock::~Clock() = default;

const Clock& monotonic_clock() noexcept {
  static const auto& clock = *new const MonotonicClock;  // never destroyed
  return clock;
}

}  // namespace linkspan
