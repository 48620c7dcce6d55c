// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// AsyncOptions: when an asynchronous operation ends early. And what all operations with Asio completion
// tokens share: that they complete once, on their loop, at the end of a tick, before the loop is done.
// Not for: the core's own calls, which take callbacks.
// Cost: nothing but a test for what is not asked for; a timeout is a timer of the loop's wheel, a stop token
// an allocation and a registration.
// Threads: AsyncOptions is a value; its stop token may be asked to stop on any thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

/// Every operation takes them before its completion token: async_read(channel, 5s, token).
class AsyncOptions {
 public:
  /// From the call on; then the operation completes with errc::timed_out. Duration::max(): none.
  Duration timeout = Duration::max();
  /// A request completes the operation with errc::cancelled.
  std::stop_token stop;

  AsyncOptions() noexcept {}
  template <class Rep, class Period>
  explicit(false) AsyncOptions(std::chrono::duration<Rep, Period> timeout_in) noexcept
      : timeout(timeout_in) {}
  explicit(false) AsyncOptions(std::stop_token stop_in) noexcept : stop(std::move(stop_in)) {}
  AsyncOptions(Duration timeout_in, std::stop_token stop_in) noexcept
      : timeout(timeout_in), stop(std::move(stop_in)) {}
};

namespace detail {

/// Runs once at the end of a tick, or is dropped when its loop has ended. Owns itself.
class LINKSPAN_API ReadyWork : public ListNode<ReadyWork> {
 public:
  /// May throw.
  virtual void run_and_release() = 0;
  virtual void drop_and_release() noexcept = 0;

 protected:
  ~ReadyWork() = default;
};

class Operation;

/// A loop's operations: those under way, and what is ready to run. The loop's end waits for both.
class LINKSPAN_API LoopOperations : public LoopCompanion, private DeferredTask, private PendingWork {
 public:
  explicit LoopOperations(EventLoop& loop) noexcept : loop_(loop) {}

  [[nodiscard]] EventLoop& loop() const noexcept { return loop_; }
  /// Runs `work` at the end of this tick, in the order of the calls, at most EventLoopOptions::tasks_per_tick
  /// of them a tick. When the loop has ended: here, or not at all if that happens inside of another one.
  void ready(ReadyWork& work) noexcept;

 protected:
  void run_deferred() override;

 private:
  friend class Operation;

  void begin(Operation& operation) noexcept;
  void run(ReadyWork& work) noexcept;
  void leave_if_idle() noexcept;
  void loop_stops() noexcept final;
  void loop_ends() noexcept final;

  EventLoop& loop_;
  IntrusiveList<ReadyWork, ReadyWork> under_way_;  // Operations
  IntrusiveList<ReadyWork, ReadyWork> ready_;
  bool running_after_end_ = false;
};

/// One operation: it ends once, by its result or early. Shared by its loop, until it has completed, and by
/// whoever is to bring the result. Loop's thread, but for refuse().
class LINKSPAN_API Operation : public ReadyWork, public std::enable_shared_from_this<Operation> {
 public:
  Operation(LoopOperations& operations, AsyncOptions&& options) noexcept
      : operations_(operations), options_(std::move(options)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation();

  [[nodiscard]] EventLoop& loop() const noexcept { return operations_.loop(); }
  /// Once, before it is started. False when it has ended by then and is not to be started.
  [[nodiscard]] bool begin();
  /// Ends it early, unless it has ended.
  void cancel(std::error_code reason) noexcept;
  /// The loop takes no more work: completes with errc::stopped here and now. Any thread.
  void refuse() noexcept;

  /// Called, outside of completions, when it ends early: nobody waits for the result any more.
  void when_abandoned(unique_function<void()> abandon) noexcept { abandon_ = std::move(abandon); }
  /// The result comes even when the loop stops, and is waited for.
  void result_is_certain() noexcept { certain_ = true; }
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// Somebody may ask it to, before the loop ends.
  [[nodiscard]] bool may_end_early() const noexcept {
    return listens_ || options_.timeout != Duration::max() || options_.stop.stop_possible();
  }

 protected:
  /// A signal may ask it to end early.
  void listens() noexcept { listens_ = true; }
  /// The result is stored: completes at the end of the tick.
  void end(std::error_code error) noexcept;
  [[nodiscard]] std::error_code error() const noexcept { return error_; }
  /// Calls the handler; once, if at all.
  virtual void deliver() = 0;
  /// Destroys the handler without a call.
  virtual void drop() noexcept = 0;

 private:
  friend class LoopOperations;

  struct StopRequest {
    EventLoop* loop;
    EventLoop::PreparedTask task;
    void operator()() noexcept { std::move(task).post(*loop); }
  };

  void run_and_release() final;
  void drop_and_release() noexcept final;

  LoopOperations& operations_;
  AsyncOptions options_;
  std::shared_ptr<Operation> self_;  // from begin() until it has completed
  unique_function<void()> abandon_;
  std::optional<Timer> timeout_;
  std::optional<std::stop_callback<StopRequest>> stop_;
  std::error_code error_;
  bool begun_ = false;
  bool ended_ = false;
  bool certain_ = false;
  bool listens_ = false;
};

}  // namespace detail
}  // namespace linkspan
