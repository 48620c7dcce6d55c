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

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include "linkspan/base/assert.hpp"
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

/// What an operation gets that nobody asks to end early: nothing is moved about for them.
struct NoOptions {};

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

/// One operation: it ends once, by its result or early. It has two holders: its loop, until it has completed,
/// and, by an OperationRef, whoever is to bring the result. Loop's thread, but for refuse() and holding it.
class LINKSPAN_API Operation : public ReadyWork {
 public:
  explicit Operation(LoopOperations& operations) noexcept : operations_(operations) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  [[nodiscard]] EventLoop& loop() const noexcept { return operations_.loop(); }
  /// Once, before it is started. False when it has ended by then and is not to be started.
  [[nodiscard]] bool begin(AsyncOptions&& options);
  [[nodiscard]] bool begin(NoOptions&&) {
    begun_ = true;
    if (error_ || loop().stopping()) {
      end(error_ ? error_ : make_error_code(errc::stopped));
      return false;
    }
    operations_.begin(*this);
    return true;
  }
  /// Ends it early, unless it has ended.
  void cancel(std::error_code reason) noexcept;
  /// It does not get to its loop: completes here and now, with errc::stopped if that is stopping, or else
  /// with errc::pool_exhausted. Any thread.
  void refuse() noexcept;

  /// Called, outside of completions, when it ends early: nobody waits for the result any more.
  template <class Abandon>
  void when_abandoned(Abandon&& abandon) {
    abandon_ = unique_function<void()>(std::forward<Abandon>(abandon));
  }
  /// The result comes even when the loop stops, and is waited for.
  void result_is_certain() noexcept { certain_ = true; }
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// Somebody may ask it to, before the loop ends.
  [[nodiscard]] bool may_end_early() const noexcept { return may_end_early_; }

  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  /// The last one destroys it.
  void release() noexcept {
    if (holders_.load(std::memory_order_acquire) == 1 ||
        holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      destroy();
    }
  }

 protected:
  virtual ~Operation();
  virtual void destroy() noexcept = 0;

  /// A signal may ask it to end early.
  void listens() noexcept { may_end_early_ = true; }
  /// The result is stored: completes at the end of the tick.
  void end(std::error_code error) noexcept {
    LINKSPAN_ASSERT(begun_ && !ended_, "an operation ends once");
    ended_ = true;
    error_ = error;
    if (may_end_early_) stop_waiting();
    abandon_.reset();
    operations_.ready(*this);
  }
  [[nodiscard]] std::error_code error() const noexcept { return error_; }

 private:
  friend class LoopOperations;

  struct StopRequest {
    EventLoop* loop;
    EventLoop::PreparedTask task;
    void operator()() noexcept { std::move(task).post(*loop); }
  };

  [[nodiscard]] bool wait_for_early_end(AsyncOptions&& options);
  void stop_waiting() noexcept;

  LoopOperations& operations_;
  unique_function<void()> abandon_;
  std::error_code error_;
  std::atomic<std::uint32_t> holders_{2};  // the loop, and who begins it
  bool begun_ = false;
  bool ended_ = false;
  bool certain_ = false;
  bool may_end_early_ = false;
  std::optional<Timer> timeout_;
  std::optional<std::stop_callback<StopRequest>> stop_;
};

/// A hold on an operation: a copy is one more. Any thread, as a shared_ptr.
template <class Op>
class OperationRef {
 public:
  OperationRef() noexcept = default;
  explicit(false) OperationRef(std::nullptr_t) noexcept {}
  /// Takes over a hold.
  explicit OperationRef(Op* operation) noexcept : operation_(operation) {}
  OperationRef(const OperationRef& other) noexcept : operation_(other.operation_) {
    if (operation_ != nullptr) operation_->hold();
  }
  OperationRef(OperationRef&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  OperationRef& operator=(OperationRef other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~OperationRef() {
    if (operation_ != nullptr) operation_->release();
  }

  [[nodiscard]] Op* operator->() const noexcept { return operation_; }
  [[nodiscard]] Op* get() const noexcept { return operation_; }
  friend bool operator==(const OperationRef& ref, std::nullptr_t) noexcept {
    return ref.operation_ == nullptr;
  }

 private:
  Op* operation_ = nullptr;
};

}  // namespace detail
}  // namespace linkspan
