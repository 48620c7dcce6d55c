// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/timer.hpp"

#include "lib/loop/timer_wheel.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {

Timer::Timer(EventLoop& loop, unique_function<void()> callback)
    : loop_(loop), callback_(std::move(callback)) {}

Timer::~Timer() {
  loop_.timers_->forget(*this);
}

void Timer::start(Duration delay) noexcept {
  LINKSPAN_ASSERT(loop_.in_loop_thread(), "a timer is used on its loop's thread");
  loop_.timers_->start(*this, loop_.now(), delay);
  loop_.need_tick();
}

void Timer::cancel() noexcept {
  unlink();
}

}  // namespace linkspan
