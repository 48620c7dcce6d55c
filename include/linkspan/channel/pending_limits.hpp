// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// PendingLimits: how much may wait to be sent on one channel, and what becomes of a write beyond that.
// Not for: pacing; handlers that produce go by the watermarks.
// Cost: looked at only while a channel is above its high watermark.
// Threads: a value.
#pragma once

#include <cstddef>

#include "linkspan/base/clock.hpp"

namespace linkspan {

enum class WhenFull {
  refuse,  ///< the write completes with errc::limit_exceeded, and is not sent
  wait,    ///< the write waits in front of the pipeline, and those behind it, until there is room
};

/// A channel that is not above its high watermark takes any write, however large. Above it, a write that
/// would bring the bytes that are queued over `max_bytes`, or comes while the budget of the loop is exceeded
/// (EventLoopOptions::max_pending_bytes), is refused or waits. Writes of handlers, which are in the middle of
/// a message perhaps, cannot be refused: a channel that has twice `max_bytes`, or takes part in twice the
/// budget, when a handler writes still more, is aborted with errc::limit_exceeded.
struct PendingLimits {
  std::size_t max_bytes = std::size_t{256} << 20;
  WhenFull when_full = WhenFull::refuse;
  // Of writes that wait; beyond these, they are refused. So are their bytes beyond max_bytes.
  std::size_t max_waiting = 1024;
  Duration max_wait = std::chrono::seconds(30);  ///< then it completes with errc::timed_out

  PendingLimits() = default;
};

}  // namespace linkspan
