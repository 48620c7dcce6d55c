// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// LoopGroup: several loops, each on a thread of its own, and a policy that says which one takes the next
// piece of work.
// Not for: a loop on the caller's own thread (EventLoop::create).
// Cost: one thread a loop.
// Threads: any, but for destruction, which joins the threads and so must not happen on one of them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {

/// Chooses one of the loops (an index); called from any thread, also at once.
using LoopPolicy = std::function<std::size_t(std::span<EventLoop* const>)>;

/// Each in turn.
[[nodiscard]] LINKSPAN_API LoopPolicy round_robin();
/// The one that has moved the fewest bytes so far.
[[nodiscard]] LINKSPAN_API LoopPolicy fewest_bytes();

struct LoopGroupOptions {
  std::size_t size = 1;   ///< loops, 1 to 1024
  std::vector<int> cpus;  ///< loop i is bound to cpus[i % cpus.size()]; empty: not bound
  LoopPolicy policy;      ///< round_robin() by default
  EventLoopOptions loop;  ///< of every loop; its name gets "-0", "-1", ... appended

  LoopGroupOptions() = default;
};

class LINKSPAN_API LoopGroup {
 public:
  /// Returns when all loops run; fails with the first loop's reason otherwise.
  [[nodiscard]] static Result<std::unique_ptr<LoopGroup>> create(const EngineFactory& engine,
                                                                 LoopGroupOptions options = {});
  /// Stops all loops and joins their threads. The loops are valid until then.
  ~LoopGroup();
  LoopGroup(const LoopGroup&) = delete;
  LoopGroup& operator=(const LoopGroup&) = delete;

  [[nodiscard]] std::span<EventLoop* const> loops() const noexcept;
  /// The loop that the policy chooses.
  [[nodiscard]] EventLoop& next();

  /// Asks all loops to stop; does not wait.
  void stop() noexcept;
  /// Waits until all loops have stopped.
  void wait();

 private:
  struct State;

  explicit LoopGroup(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace linkspan
