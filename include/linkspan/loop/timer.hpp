// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Timer: calls a function once on its loop when a delay has passed. It may be started again, also from its
// own callback, and destroyed there too.
// Not for: precision below a millisecond; deadlines are rounded up to the next one, never down.
// Cost: 80 bytes; start and cancel are O(1) and allocate nothing.
// Threads: the loop's thread only.
#pragma once

#include <cstdint>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {

class LINKSPAN_API Timer : public ListNode<Timer> {
 public:
  /// An exception that `callback` throws is logged and counted.
  Timer(EventLoop& loop, unique_function<void()> callback);
  ~Timer();

  /// Fires `delay` from the loop's now() on; a running timer is moved. Timers fire in the order of their
  /// deadlines, those with the same deadline in the order in which they were started. A delay of zero or less
  /// fires in the next tick; delays that end beyond some 139 years after the loop began fire then.
  void start(Duration delay) noexcept;
  void cancel() noexcept;
  [[nodiscard]] bool active() const noexcept { return linked(); }

 private:
  friend class TimerWheel;

  EventLoop& loop_;
  unique_function<void()> callback_;
  TimePoint deadline_;
  std::uint64_t sequence_ = 0;  // of starts, to order equal deadlines
};

static_assert(sizeof(Timer) == 80);

}  // namespace linkspan
