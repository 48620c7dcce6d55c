// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/interop/async_operation.hpp"

#include <cstddef>
#include <new>

#include "lib/base/log_exception.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/base/error.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan::detail {

// --- LoopOperations ---------------------------------------------------------------------------------------

void LoopOperations::ready(ReadyWork& work) noexcept {
  work.unlink();
  if (loop_.ended()) {
    if (running_after_end_) {
      log(LogLevel::error, "loop",
          "an operation was begun by the completion of one on a loop that has ended");
      work.drop_and_release();
      return;
    }
    running_after_end_ = true;
    run(work);
    running_after_end_ = false;
    return;
  }
  ready_.push_back(work);
  if (!ListNode<PendingWork>::linked()) loop_.await(*this);
  loop_.defer(*this);
}

void LoopOperations::begin(Operation& operation) noexcept {
  under_way_.push_back(operation);
  if (!ListNode<PendingWork>::linked()) loop_.await(*this);
}

void LoopOperations::run(ReadyWork& work) noexcept {
  try {
    work.run_and_release();
  } catch (...) {
    loop_.counters().failed_callbacks.add(1);
    log_exception("loop", "the completion of an operation");
  }
}

void LoopOperations::run_deferred() {
  for (std::size_t left = loop_.options().tasks_per_tick; !ready_.empty() && left != 0; --left) {
    run(ready_.pop_front());
  }
  if (!ready_.empty()) loop_.defer(*this);
  leave_if_idle();
}

void LoopOperations::leave_if_idle() noexcept {
  if (under_way_.empty() && ready_.empty()) ListNode<PendingWork>::unlink();
}

void LoopOperations::loop_stops() noexcept {
  for (ReadyWork* work = under_way_.first(); work != nullptr;) {
    Operation& operation = static_cast<Operation&>(*work);
    work = under_way_.next(*work);
    if (!operation.certain_) operation.cancel(make_error_code(errc::cancelled));
  }
}

void LoopOperations::loop_ends() noexcept {
  constexpr int kRoundsMost = 1000;
  for (int round = 0; round < kRoundsMost && (!under_way_.empty() || !ready_.empty()); ++round) {
    while (!under_way_.empty()) {
      static_cast<Operation&>(under_way_.front()).cancel(make_error_code(errc::cancelled));
    }
    IntrusiveList<ReadyWork, ReadyWork> running;
    running.splice_back(ready_);
    while (!running.empty()) run(running.pop_front());
  }
  if (!under_way_.empty() || !ready_.empty()) {
    log(LogLevel::error, "loop", loop_.name() + ": completions began operations again and again at its end");
  }
  for (int round = 0; !under_way_.empty() || !ready_.empty(); ++round) {
    LINKSPAN_ASSERT(round < kRoundsMost, "destroying a handler begins no operations for ever");
    while (!under_way_.empty()) {
      static_cast<Operation&>(under_way_.front()).cancel(make_error_code(errc::cancelled));
    }
    IntrusiveList<ReadyWork, ReadyWork> dropped;
    dropped.splice_back(ready_);
    while (!dropped.empty()) dropped.pop_front().drop_and_release();
  }
  ListNode<DeferredTask>::unlink();
  ListNode<PendingWork>::unlink();
}

// --- Operation --------------------------------------------------------------------------------------------

Operation::~Operation() = default;

bool Operation::begin(AsyncOptions&& options) {
  if (!error_ && !loop().stopping() && options.stop.stop_requested()) {
    error_ = make_error_code(errc::cancelled);
  }
  if (!begin(NoOptions())) return false;
  if (options.timeout == Duration::max() && !options.stop.stop_possible()) return true;
  return wait_for_early_end(std::move(options));
}

bool Operation::wait_for_early_end(AsyncOptions&& options) try {
  may_end_early_ = true;
  if (options.timeout != Duration::max()) {
    timeout_.emplace(loop(), [this] { cancel(make_error_code(errc::timed_out)); });
    timeout_->start(options.timeout);
  }
  if (options.stop.stop_possible()) {
    hold();
    EventLoop::PreparedTask task(
        [operation = OperationRef<Operation>(this)] { operation->cancel(make_error_code(errc::cancelled)); });
    stop_.emplace(std::move(options.stop), StopRequest{&loop(), std::move(task)});
  }
  return true;
} catch (const std::bad_alloc&) {
  cancel(make_error_code(errc::pool_exhausted));
  return false;
}

void Operation::stop_waiting() noexcept {
  timeout_.reset();
  stop_.reset();
}

void Operation::cancel(std::error_code reason) noexcept {
  if (ended_) return;
  if (!begun_) {  // on its way from another thread
    error_ = reason;
    return;
  }
  unique_function<void()> abandon = std::move(abandon_);
  end(reason);
  if (abandon) abandon();
}

void Operation::refuse() noexcept {
  if (ended_) return;
  ended_ = true;
  error_ = make_error_code(loop().stopping() ? errc::stopped : errc::pool_exhausted);
  try {
    run_and_release();
  } catch (...) {
    log_exception("loop", "the completion of an operation that did not get to its loop");
  }
}

}  // namespace linkspan::detail
