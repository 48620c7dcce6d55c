// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Engine: what an EventLoop waits on. Transports implement it; the loop knows nothing else of them.
// Not for: users of streams and channels.
// Cost: one prepare and one poll a tick.
// Threads: the loop's thread only, but for wake().
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/result.hpp"

namespace linkspan {

class EventLoop;
class FileCalls;  // lib/loop/file_call.hpp

/// A resource of one loop: created, used and destroyed on its thread. What the library's own work throws here
/// (std::bad_alloc, when memory for its bookkeeping is out) ends the program: nobody is there to be told.
class LINKSPAN_API Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine();

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Starts what was asked for since the last call, which may run callbacks. Comes before each poll, and
  /// before the loop decides how long that may wait: the callbacks may start timers and defer tasks.
  virtual void prepare() noexcept {}

  /// Waits for events for at most `timeout` (0: not at all; Duration::max(): until there is one), and
  /// dispatches a bounded number of them. False when there was none and nothing waits for prepare().
  virtual bool poll(Duration timeout) noexcept = 0;

  /// Makes the poll that runs now, or else the next one, return without waiting. Any thread.
  virtual void wake() noexcept = 0;

  /// The loop's pool has refused a block and now has one again. Any thread.
  virtual void memory_available() noexcept { wake(); }

  /// Aborts everything that is open. Ends are reported by the polls that follow, until idle().
  virtual void stop() noexcept = 0;
  /// How the engine reads and writes files, if it can; otherwise the loop's helpers do.
  [[nodiscard]] virtual FileCalls* file_calls() noexcept { return nullptr; }

  /// Nothing is open and nothing is in the kernel's hands.
  [[nodiscard]] virtual bool idle() const noexcept = 0;
};

/// Makes the engine of a loop that is being created, on the loop's thread. A group calls it from several
/// threads at once.
using EngineFactory = std::function<Result<std::unique_ptr<Engine>>(EventLoop&)>;

}  // namespace linkspan
