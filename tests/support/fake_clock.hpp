// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A clock that stands still until it is told, and the environment of a loop that uses it.
#pragma once

#include <atomic>

#include "linkspan/base/clock.hpp"
#include "linkspan/loop/environment.hpp"

namespace linkspan::test {

class FakeClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return TimePoint(Duration(now_.load())); }
  void advance(Duration by) noexcept { now_ += by.count(); }

 private:
  std::atomic<Duration::rep> now_{std::chrono::nanoseconds(std::chrono::hours(5)).count() + 123'456};
};

/// The system's environment, with a fake clock.
struct FakeWorld {
  FakeClock clock;
  Environment environment{clock, Environment::system().random, Environment::system().threads,
                          Environment::system().resolver, Environment::system().files};
};

}  // namespace linkspan::test
