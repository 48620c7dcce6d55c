// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BusyPoll: whether a loop that has nothing to do should poll for a while before it sleeps. It goes by how
// long the last idle times were, and by how many loops of the process poll already. Loop's thread.
#pragma once

#include "linkspan/base/clock.hpp"

namespace linkspan {

class BusyPoll {
 public:
  explicit BusyPoll(Duration limit) noexcept : limit_(limit) {}

  /// True: poll, and then finish(). False: it would not pay, or all CPUs are taken by loops that poll.
  [[nodiscard]] bool begin() noexcept;
  void finish() noexcept;

  /// The loop was idle for so long, until an event or a task came.
  void was_idle(Duration idle) noexcept;

 private:
  // As in a branch predictor: two short idle times in a row to begin, two long ones to stop.
  static constexpr int kMostConfidence = 3;
  static constexpr int kEnoughConfidence = 2;

  const Duration limit_;
  int confidence_ = kEnoughConfidence;
};

}  // namespace linkspan
