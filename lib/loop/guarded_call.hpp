// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Runs a user's callback so that an exception ends there: it is logged and counted, and the loop goes on.
#pragma once

#include <exception>
#include <string>

#include "linkspan/base/log.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {

template <class Function>
void guarded_call(Function& function, const char* what, LoopCounters& counters) noexcept {
  try {
    function();
  } catch (const std::exception& exception) {
    counters.failed_callbacks.add(1);
    log(LogLevel::error, "loop", std::string("a ") + what + " threw: " + exception.what());
  } catch (...) {
    counters.failed_callbacks.add(1);
    log(LogLevel::error, "loop", std::string("a ") + what + " threw something that is not a std::exception");
  }
}

}  // namespace linkspan
