// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// LargeMemory: large blocks for programs whose loops must not stall. Getting gigabytes from the system,
// zeroed and with every page present, takes it a second, and taking them back a tenth of one. Here a
// LargeAllocation does the first a step at a time on the loop, or on a helper thread, and the helper thread
// does the second.
// Not for: buffers (BlockPool), and memory that is touched little by little anyway: pages().allocate()
// returns at once and the system adds pages as they are touched.
// Cost: one sleeping thread. A step takes what is left of `step` of its tick, and at least a moment: 64 KiB,
// or a huge page if those are asked for, for which a virtual machine's host may need milliseconds.
// Threads: LargeMemory: any, for many loops. A LargeAllocation belongs to its loop. Blocks: any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <system_error>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/page_allocator.hpp"
#include "linkspan/loop/environment.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {

struct LargeMemoryOptions {
  PageAllocatorOptions pages;
  /// A tick with a step in it takes so long, or longer only if its timers and tasks do.
  Duration step = std::chrono::microseconds(500);
  std::string thread_name = "linkspan-memory";
  const Environment* environment = &Environment::system();

  /// Small pages, as a huge one is a step that cannot be divided.
  LargeMemoryOptions() { pages.huge_pages = HugePages::never; }
};

/// A resource with one owner, who destroys it after all its LargeAllocations; blocks may outlive it.
class LINKSPAN_API LargeMemory {
 public:
  /// Fails when the helper thread cannot be started, or for a step that is not positive.
  [[nodiscard]] static Result<std::unique_ptr<LargeMemory>> create(LargeMemoryOptions options = {});
  /// Joins the helper thread and unmaps what is released; blocks still out are unmapped by whoever releases
  /// them.
  ~LargeMemory();
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;

  /// Where the blocks come from, for statistics, and for memory whose pages may come when they are touched.
  /// What it hands out is unmapped by the helper thread too. Its callback is taken.
  [[nodiscard]] PageAllocator& pages() noexcept;
  [[nodiscard]] const LargeMemoryOptions& options() const noexcept;

 private:
  friend class LargeAllocation;
  class Helper;

  explicit LargeMemory(std::unique_ptr<Helper> helper) noexcept;

  std::unique_ptr<Helper> helper_;
};

/// One block on its way. A resource; destroy it on its loop's thread, before the loop; its completion may do
/// so.
class LINKSPAN_API LargeAllocation final : private DeferredTask {
 public:
  enum class Place {
    on_loop,   ///< steps at the end of the loop's ticks
    off_loop,  ///< the helper thread, one allocation after the other
  };

  /// A Block of at least the size that was asked for, in whole pages, all present and zero; or none and
  /// errc::pool_exhausted: over the budget, or the system has no memory;
  /// errc::cancelled: by cancel() or destruction;
  /// errc::stopped: the loop is stopping.
  using Completion = unique_function<void(Block, std::error_code)>;

  /// Starts. `completion` runs exactly once: from the loop, or else in the destructor. An exception that it
  /// throws is logged and counted.
  LargeAllocation(LargeMemory& memory, EventLoop& loop, std::size_t size, Place place, Completion completion);
  ~LargeAllocation();
  LargeAllocation(const LargeAllocation&) = delete;
  LargeAllocation& operator=(const LargeAllocation&) = delete;

  /// Gives up what has been prepared; the completion runs in this tick or the next one. Nothing happens if it
  /// ran already.
  void cancel() noexcept;
  /// Whether the completion is still to come.
  [[nodiscard]] bool active() const noexcept { return static_cast<bool>(completion_); }

 private:
  friend class LargeMemory;
  struct Job;

  void run_deferred() override;
  std::shared_ptr<Job> give_up() noexcept;
  void finish(Block block, std::error_code error);

  LargeMemory& memory_;
  EventLoop& loop_;
  Completion completion_;
  std::shared_ptr<Job> job_;  // shared with the helper thread, if that works on it
};

}  // namespace linkspan
