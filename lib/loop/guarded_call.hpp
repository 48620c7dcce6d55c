// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Runs a user's callback so that an exception ends there: it is logged and counted, and the loop goes on.
#pragma once

#include "lib/base/log_exception.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {

template <class Function>
void guarded_call(Function& function, const char* what, LoopCounters& counters) noexcept {
  try {
    function();
  } catch (...) {
    counters.failed_callbacks.add(1);
    log_exception("loop", what);
  }
}

}  // namespace linkspan
