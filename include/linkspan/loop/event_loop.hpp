// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// EventLoop: one thread that runs timers, posted tasks and the events of one Engine. Whatever lives on a loop
// is used from the loop's thread only and needs no lock.
// Not for: blocking work; a task that blocks stops everything on the loop.
// Cost: a tick is one poll of the engine, which is one system call in the best case. post() allocates one
// node and wakes the loop only when it sleeps.
// Threads: create, run and destroy it on one thread; post(), stop() and the counters are safe from any
// thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/counter.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/loop/engine.hpp"
#include "linkspan/loop/environment.hpp"
#include "linkspan/loop/helper_threads.hpp"
#include "linkspan/loop/pending_budget.hpp"

namespace linkspan {

class BusyPoll;
class AsyncFiles;
class Timer;
class TimerWheel;

struct EventLoopOptions {
  std::string name = "linkspan";
  BlockPoolOptions pool;
  std::size_t tasks_per_tick = 1024;   ///< at least 1; further tasks wait for the next tick
  std::size_t timers_per_tick = 1024;  ///< at least 1; further timers that are due wait for the next tick
  std::size_t max_pending_tasks = std::size_t{1} << 20;  ///< post() refuses beyond it
  Duration stop_deadline = std::chrono::seconds(5);  ///< how long run() goes on after stop() for completions
  /// The pool's cached blocks that were not needed for so long go back to the heap; at least 1 ms. A loop
  /// with nothing to do has none left after two intervals, and then sleeps on.
  Duration trim_interval = std::chrono::seconds(1);
  /// How long the loop polls for events before it sleeps; 0: not at all; at most 10 ms. Waking a sleeping
  /// thread costs tens of microseconds, so 50 to 100 us pay where answers come that soon and a core is to
  /// spare. Adaptive: a loop whose events come later sleeps at once. Never more loops at a time than the
  /// process may use CPUs; the others sleep.
  Duration busy_poll = Duration::zero();
  std::size_t max_file_operations = 1024;    ///< at least 1; see AsyncFiles, which refuses beyond it
  std::size_t file_operations_at_once = 64;  ///< at least 1; the others wait for these
  /// Bytes that may wait to be sent on all channels of the loop, see PendingLimits; 0: each channel has its
  /// own bound only, and nothing is counted for the loop.
  std::size_t max_pending_bytes = 0;
  PendingBudget* pending_budget = nullptr;  ///< of several loops: counts, and bounds, too; outlives the loop
  const Environment* environment = &Environment::system();
  Helpers* helpers = &HelperThreads::system();  ///< for what blocks; they outlive the loop

  EventLoopOptions() = default;
};

/// What a loop has done so far. The loop's thread counts; any thread reads.
struct LoopCounters {
  Counter ticks;
  Counter tasks;
  Counter timers;
  Counter wake_ups;        ///< ticks that slept in the engine
  Counter busy_polls;      ///< ticks that polled for a while instead of sleeping at once
  Counter busy_poll_hits;  ///< those of them in which something came
  Counter busy_poll_ns;    ///< time spent in all of them
  Counter system_calls;    ///< made by the engine
  Counter bytes_received;
  Counter bytes_sent;
  Counter zero_copy_sends;    ///< of which the kernel has said what became of them
  Counter zero_copy_copied;   ///< those of them that it copied after all
  Counter failed_callbacks;   ///< tasks and timers that threw
  Counter worst_lateness_ns;  ///< of a timer, against its deadline
};

/// Something to run at the end of the loop's current tick, once; see EventLoop::defer. Leaves by itself when
/// destroyed.
class DeferredTask : public ListNode<DeferredTask> {
 public:
  virtual void run_deferred() = 0;

 protected:
  ~DeferredTask() = default;
};

/// Something that a loop has begun and its engine does not know of. In the loop's list, see EventLoop::await,
/// until it is finished; leaves by itself when destroyed.
class PendingWork : public ListNode<PendingWork> {
 public:
  /// The loop is stopping, and goes on until this has left, at most for its stop deadline. Calls nobody.
  virtual void loop_stops() noexcept = 0;
  /// The deadline has passed: completes now, and is finished.
  virtual void loop_ends() noexcept = 0;

 protected:
  ~PendingWork() = default;
};

/// What a room further out keeps with a loop, at most one: see EventLoop::companion. Destroyed with the loop.
class LINKSPAN_API LoopCompanion {
 public:
  virtual ~LoopCompanion();
  /// The loop's last events have come, and post() will refuse from here on: threads of the companion's own
  /// end now.
  virtual void before_end() noexcept = 0;
};

/// Does not survive a fork: the child leaves by exec or _exit, and neither runs nor destroys it.
class LINKSPAN_API EventLoop {
  struct PostedTask;

 public:
  /// Fails when the engine cannot be made, or for an option without sense. The calling thread becomes the
  /// loop's thread.
  [[nodiscard]] static Result<std::unique_ptr<EventLoop>> create(const EngineFactory& engine,
                                                                 EventLoopOptions options = {});
  /// Stops first if run() did not.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Runs until stop(). Then, in this order: timers fire no more; the engine aborts what is open, and pending
  /// work is told; ticks go on until every completion has been delivered, at most for the stop deadline; from
  /// then on post() refuses; what was posted before runs; pending work that is left completes.
  void run();
  /// One tick that waits at most `max_wait`.
  void run_once(Duration max_wait);
  /// One tick of a loop that lives inside another event loop, such as AsioLoop's, and the shutdown once
  /// stop() was called. Its engine does not wait, but has this called again when there is something to do.
  /// False when the loop has stopped for good.
  bool run_as_guest();
  /// Any thread, any number of times; not a signal handler, since waking a loop may take a lock.
  void stop() noexcept;

  /// Runs `task` on the loop's thread, in the order of the calls of one thread. False, and `task` is
  /// destroyed, when the loop has stopped or too many tasks wait. An exception that it throws is logged and
  /// counted. Any thread.
  [[nodiscard]] bool post(unique_function<void()> task);

  /// A task that is made on one thread and posted by whoever finishes what it waits for, which needs no
  /// memory then and is not counted: how many there can be is its maker's to bound.
  class LINKSPAN_API PreparedTask {
   public:
    /// Throws std::bad_alloc.
    explicit PreparedTask(unique_function<void()> task);
    PreparedTask(PreparedTask&& other) noexcept;
    PreparedTask& operator=(PreparedTask&&) = delete;
    ~PreparedTask();
    /// As EventLoop::post; refused, and destroyed, only by a loop that has ended. Any thread.
    void post(EventLoop& loop) && noexcept;

   private:
    std::unique_ptr<PostedTask> node_;
  };

  /// The loop's end waits for `work`. Loop's thread.
  void await(PendingWork& work) noexcept { pending_work_.push_back(work); }

  /// The loop's companion; the first call, on whatever thread, makes it.
  [[nodiscard]] LoopCompanion& companion(std::unique_ptr<LoopCompanion> (*make)(EventLoop& loop));

  /// Runs `task` at the end of this tick, before the engine is polled; nothing happens if it waits already. A
  /// task deferred by a deferred task runs in the next tick. Loop's thread.
  void defer(DeferredTask& task) noexcept {
    if (task.linked()) return;
    deferred_.push_back(task);
    need_tick();
  }

  /// Whoever leaves something to the next tick says so: a guest of another event loop has no tick without a
  /// reason, and that loop's own callbacks are none. Loop's thread.
  void need_tick() noexcept {
    if (std::exchange(unattended_, false)) engine_->wake();
  }

  [[nodiscard]] bool in_loop_thread() const noexcept;
  [[nodiscard]] bool stopping() const noexcept { return stop_requested_.load(std::memory_order_acquire); }

  /// Has stopped for good: nothing runs any more. Loop's thread.
  [[nodiscard]] bool ended() const noexcept { return shut_down_done_; }

  /// For timers and tasks the time at the beginning of this tick, which is cheap; for everybody else what the
  /// clock says, since the engine may have slept. Loop's thread.
  [[nodiscard]] TimePoint now() const noexcept { return now_is_old_ ? environment().clock.now() : now_; }

  /// When a timer is due next, or somewhat earlier; TimePoint::max() when none is started. Loop's thread.
  [[nodiscard]] TimePoint next_timer() const noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
  [[nodiscard]] const EventLoopOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Environment& environment() const noexcept { return *options_.environment; }
  [[nodiscard]] BlockPool& pool() noexcept { return pool_; }
  [[nodiscard]] Engine& engine() noexcept { return *engine_; }
  /// Loop's thread; loop/async_files.hpp.
  [[nodiscard]] AsyncFiles& files();
  /// nullptr when neither option asks for one. Any thread.
  [[nodiscard]] PendingBudget* pending_budget() const noexcept { return pending_budget_.get(); }
  [[nodiscard]] LoopCounters& counters() noexcept { return counters_; }
  [[nodiscard]] const LoopCounters& counters() const noexcept { return counters_; }
  /// What the loop's thread has copied; any thread.
  [[nodiscard]] CopyCounts copy_counts() const noexcept { return copy_ledger_.counts(); }

 private:
  friend class Timer;

  explicit EventLoop(EventLoopOptions options);

  void run_tasks(std::size_t limit);
  void run_deferred();
  [[nodiscard]] bool push(std::unique_ptr<PostedTask> node) noexcept;
  void take_posted(PostedTask* mark) noexcept;
  std::unique_ptr<PostedTask> pop_ready() noexcept;
  void shut_down();
  void begin_shut_down();
  bool tick_in_shut_down();
  void end_shut_down();
  [[nodiscard]] bool idle() const noexcept { return engine_->idle() && pending_work_.empty(); }
  void assert_not_forked() const;
  void tick(Duration max_wait, bool with_timers);
  bool poll_or_sleep(Duration wait, bool with_timers) noexcept;
  [[nodiscard]] bool poll_busily(Duration& wait) noexcept;
  [[nodiscard]] bool posted() const noexcept { return posted_.load(std::memory_order_relaxed) != nullptr; }

  EventLoopOptions options_;
  BlockPool pool_;
  CopyLedger& copy_ledger_;
  LoopCounters counters_;
  TimePoint now_;
  bool now_is_old_ = true;
  bool guest_ = false;
  bool unattended_ = false;  // a guest between two ticks, of which the second is not asked for yet
  std::unique_ptr<TimerWheel> timers_;
  std::unique_ptr<Timer> trim_timer_;
  std::unique_ptr<PendingBudget> pending_budget_;
  std::unique_ptr<BusyPoll> busy_poll_;  // nullptr: off
  IntrusiveList<DeferredTask, DeferredTask> deferred_;
  IntrusiveList<PendingWork, PendingWork> pending_work_;
  PostedTask* ready_first_ = nullptr;  // taken from posted_, in order
  PostedTask* ready_last_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<AsyncFiles> files_;  // made on first use
  TimePoint shut_down_begin_;
  bool shut_down_begun_ = false;
  bool shut_down_done_ = false;
  std::thread::id thread_;
  int process_;
  std::atomic<LoopCompanion*> companion_{nullptr};  // owned

  alignas(64) std::atomic<PostedTask*> posted_{nullptr};  // newest first; a mark once the loop takes no more
  std::atomic<std::size_t> pending_tasks_{0};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stop_requested_{false};
};

}  // namespace linkspan
