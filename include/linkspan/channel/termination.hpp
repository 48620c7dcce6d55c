// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Termination: tells a loop that the process was asked to end (SIGTERM, SIGINT), so that servers can drain:
//
//   const auto termination = Termination::watch(loop, [&](int) { server.stop(std::chrono::seconds(30)); });
//
// Not for: signals that say something else, and programs that handle these two themselves.
// Cost: a socket pair with a stream on the loop; one end of the last pair stays open for ever. The signal
// handler writes one byte.
// Threads: made and destroyed on the loop's thread (before it runs, too); one in a process at a time.
#pragma once

#include <csignal>
#include <memory>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {

class LINKSPAN_API Termination {
 public:
  /// Calls `callback` with the signal on the loop, once for each that comes; several that come at once may be
  /// one. A signal that threads have blocked does not come. Fails with errc::invalid_argument when there is
  /// one already, or for a signal that cannot be handled.
  [[nodiscard]] static Result<std::unique_ptr<Termination>> watch(EventLoop& loop,
                                                                  unique_function<void(int signal)> callback,
                                                                  std::vector<int> signals = {SIGTERM,
                                                                                              SIGINT});
  /// Restores what the signals did before.
  ~Termination();
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

 private:
  class State;

  explicit Termination(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace linkspan
