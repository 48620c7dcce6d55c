// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#pragma once

#include "linkspan/loop/event_loop.hpp"

namespace linkspan::conformance {

/// What runs a loop of a test's.
class Host {
 public:
  virtual ~Host() = default;

  [[nodiscard]] virtual EventLoop& loop() = 0;
  /// One tick; waits at most that long for something to do.
  virtual void turn(Duration max_wait) = 0;
  /// Until the loop has stopped.
  virtual void run() = 0;
};

}  // namespace linkspan::conformance
