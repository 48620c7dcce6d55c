// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// TaskScope: coroutines that belong together. They are spawned into the scope, asked to stop together, and
// joined before it ends; the first error of one stops the others.
// Not for: a coroutine that nobody waits for; co_spawn(LoopExecutor(loop), task(), asio::detached).
// Cost: three allocations a scope and one a task, besides those of Asio; asking to stop allocates nothing.
// Threads: the loop's, but for request_stop and the stop token.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <system_error>
#include <utility>

#include "linkspan/base/assert.hpp"
#include "linkspan/base/error.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/interop/async_initiate.hpp"
#include "linkspan/interop/loop_executor.hpp"

#ifdef ASIO_HAS_CO_AWAIT  // not with clang 14 on libstdc++

namespace linkspan {

namespace detail {

/// Shared by the scope and its tasks, which may outlive it.
class TaskScopeState : public std::enable_shared_from_this<TaskScopeState> {
 public:
  using JoinOperation = OperationOf<std::exception_ptr>;

  struct Task : ListNode<Task> {
    asio::cancellation_signal signal;
  };

  /// Tasks may spawn others before they first wait.
  class Spawning {
   public:
    Spawning(TaskScopeState& state, const Task& task) noexcept
        : state_(state), before_(std::exchange(state.spawning, &task)) {}
    Spawning(const Spawning&) = delete;
    Spawning& operator=(const Spawning&) = delete;
    ~Spawning() { state_.spawning = before_; }

   private:
    TaskScopeState& state_;
    const Task* before_;
  };

  explicit TaskScopeState(EventLoop& loop_in) noexcept : loop(loop_in) {}

  /// On the loop, once stopping was asked for.
  void cancel_all() {
    for (Task* task = tasks.first(); task != nullptr;) {
      Task& cancelled = *task;
      task = tasks.next(*task);
      cancelled.signal.emit(asio::cancellation_type::terminal);
    }
  }

  void finished(Task& task, const std::exception_ptr& failure) {
    task.unlink();
    --count;
    if (failure != nullptr && first_failure == nullptr && !was_cancelled(failure)) {
      first_failure = failure;
      stop.request_stop();
    }
    if (count == 0 && joiner != nullptr) std::exchange(joiner, nullptr)->end_with(first_failure);
  }

  EventLoop& loop;
  std::stop_source stop;
  IntrusiveList<Task, Task> tasks;
  std::size_t count = 0;
  std::exception_ptr first_failure;
  OperationRef<JoinOperation> joiner;
  const Task* spawning = nullptr;  // whose exception is the spawner's

 private:
  // A task that was asked to stop, and said that it has, did not fail.
  [[nodiscard]] bool was_cancelled(const std::exception_ptr& failure) const {
    if (!stop.stop_requested()) return false;
    try {
      std::rethrow_exception(failure);
    } catch (const std::system_error& error) {
      return error.code() == errc::cancelled || error.code() == asio::error::operation_aborted;
    } catch (...) {
      return false;
    }
  }
};

/// How a task completes. One whose completion is destroyed instead, since there was no memory for it or the
/// operation that the task waited for is gone, has ended too.
class TaskEnd {
 public:
  TaskEnd(std::shared_ptr<TaskScopeState> state, std::unique_ptr<TaskScopeState::Task> task) noexcept
      : state_(std::move(state)), task_(std::move(task)) {
    state_->tasks.push_back(*task_);
    ++state_->count;
  }
  TaskEnd(TaskEnd&&) noexcept = default;
  TaskEnd& operator=(TaskEnd&&) = delete;
  ~TaskEnd() {
    if (task_ == nullptr) return;
    const bool spawner_hears = state_->spawning == task_.get();
    end(spawner_hears ? nullptr
                      : std::make_exception_ptr(std::system_error(make_error_code(errc::cancelled))));
  }

  void operator()(const std::exception_ptr& failure) { end(failure); }

 private:
  void end(const std::exception_ptr& failure) {
    const std::unique_ptr<TaskScopeState::Task> task = std::move(task_);
    state_->finished(*task, failure);
  }

  std::shared_ptr<TaskScopeState> state_;
  std::unique_ptr<TaskScopeState::Task> task_;
};

}  // namespace detail

/// Tasks may spawn others. A scope that is destroyed before it was joined asks what still runs to stop, and
/// does not wait: what a task refers to has to outlive it, so join first.
class TaskScope {
 public:
  explicit TaskScope(EventLoop& loop) : state_(std::make_shared<detail::TaskScopeState>(loop)) {
    EventLoop::PreparedTask cancel([weak = std::weak_ptr(state_)] {
      if (const std::shared_ptr<detail::TaskScopeState> there = weak.lock()) there->cancel_all();
    });
    stop_requested_.emplace(state_->stop.get_token(), Cancel{&loop, std::move(cancel)});
  }
  TaskScope(const TaskScope&) = delete;
  TaskScope& operator=(const TaskScope&) = delete;
  ~TaskScope() {
    if (state_->count != 0) request_stop();
  }

  [[nodiscard]] EventLoop& loop() const noexcept { return state_->loop; }

  /// Runs `task` on the loop. It is cancelled at once if the scope is stopping. Throws std::bad_alloc; the
  /// task is none of the scope's then.
  void spawn(asio::awaitable<void> task) {
    LINKSPAN_ASSERT(loop().in_loop_thread(), "tasks are spawned on the scope's loop");
    const std::shared_ptr<detail::TaskScopeState> state = state_;  // the task may destroy the scope
    const detail::AsioCompanion::SpawnMemory memory(detail::AsioCompanion::of(loop()));
    auto entry = std::make_unique<detail::TaskScopeState::Task>();
    const detail::TaskScopeState::Spawning spawning(*state, *entry);
    const asio::cancellation_slot slot = entry->signal.slot();
    const bool stopping = state->stop.stop_requested();
    asio::co_spawn(LoopExecutor(loop()), std::move(task),
                   asio::bind_cancellation_slot(slot, detail::TaskEnd(state, std::move(entry))));
    if (stopping) state->cancel_all();
  }

  /// Cancels what the tasks wait for: with errc::cancelled, or asio::error::operation_aborted at their next
  /// wait. Any thread.
  void request_stop() noexcept { state_->stop.request_stop(); }
  /// For operations that are to end with the scope. Any thread.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return state_->stop.get_token(); }

  [[nodiscard]] std::size_t running() const noexcept { return state_->count; }
  [[nodiscard]] const std::shared_ptr<detail::TaskScopeState>& state() const noexcept { return state_; }

 private:
  struct Cancel {
    EventLoop* loop;
    EventLoop::PreparedTask task;  // asking to stop may not fail
    void operator()() noexcept { std::move(task).post(*loop); }
  };

  std::shared_ptr<detail::TaskScopeState> state_;
  std::optional<std::stop_callback<Cancel>> stop_requested_;
};

/// Completes when no task runs any more, with the first exception that one has thrown, if any; use_awaitable
/// throws it. Joining that ends early leaves the tasks alone. One at a time: another one meanwhile fails with
/// errc::limit_exceeded. Handler: void(std::exception_ptr).
template <class Token>
auto async_join(TaskScope& scope, AsyncOptions options, Token&& token) {
  auto start = [state = scope.state()](
                   const detail::OperationRef<detail::OperationOf<std::exception_ptr>>& operation) {
    if (state->count == 0) return operation->end_with(state->first_failure);
    if (state->joiner != nullptr) {
      const std::error_code error = make_error_code(errc::limit_exceeded);
      return operation->end_with(std::make_exception_ptr(std::system_error(error)));
    }
    state->joiner = operation;
    operation->when_abandoned([state] { state->joiner = nullptr; });
  };
  return detail::initiate<std::exception_ptr>(scope.loop(), std::move(options), std::move(start),
                                              std::forward<Token>(token));
}
template <class Token>
auto async_join(TaskScope& scope, Token&& token) {
  return async_join(scope, AsyncOptions(), std::forward<Token>(token));
}

}  // namespace linkspan

#endif
