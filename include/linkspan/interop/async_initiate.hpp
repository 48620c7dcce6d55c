// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// How Linkspan's operations take Asio's completion tokens: the handler that Asio makes of a token becomes an
// Operation of a loop, which completes on the handler's own executor, or on the loop if it has none.
// Not for: users, but for those who write operations of their own.
// Cost: one allocation an operation, besides those of the token; operations that coroutines begin one after
// the other use the same memory again.
// Threads: an operation may be begun on any thread; on another one than the loop's that is a post.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/any_io_executor.hpp>
#include <asio/associated_cancellation_slot.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/dispatch.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/recycling_allocator.hpp>
#include <concepts>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include "linkspan/base/assert.hpp"
#include "linkspan/base/error.hpp"
#include "linkspan/interop/async_operation.hpp"
#include "linkspan/interop/loop_executor.hpp"

namespace linkspan::detail {

/// An operation whose handler takes Failure and Values; after a failure these are as default-constructed,
/// unless end_with says otherwise. Failure is std::error_code or std::exception_ptr.
template <class Failure, class... Values>
class OperationOf : public Operation {
 public:
  using Operation::Operation;

  /// The result. Nothing happens when the operation has ended early.
  void end_with(Failure failure, Values... values) {
    if (ended()) return;
    if constexpr (std::same_as<Failure, std::exception_ptr>) failure_ = std::move(failure);
    values_ = std::tuple<Values...>(std::move(values)...);
    if constexpr (std::same_as<Failure, std::error_code>) {
      end(failure);
    } else {
      end({});
    }
  }

 protected:
  [[nodiscard]] Failure failure() const {
    if constexpr (std::same_as<Failure, std::error_code>) {
      return error();
    } else {
      return error() ? std::make_exception_ptr(std::system_error(error())) : failure_;
    }
  }

  std::tuple<Values...> values_;

 private:
  struct None {};
  [[no_unique_address]] std::conditional_t<std::same_as<Failure, std::exception_ptr>, Failure, None> failure_;
};

template <class Handler, class Failure, class... Values>
class HandledOperation final : public OperationOf<Failure, Values...> {
 public:
  HandledOperation(LoopOperations& operations, AsyncOptions&& options, Handler&& handler)
      : OperationOf<Failure, Values...>(operations, std::move(options)),
        work_(asio::get_associated_executor(handler, LoopExecutor(operations.loop()))),
        handler_(std::move(handler)) {}

  void listen_for_cancellation() {
    auto slot = asio::get_associated_cancellation_slot(*handler_);
    if (!slot.is_connected()) return;
    this->listens();
    slot.assign([weak = this->weak_from_this()](asio::cancellation_type) {
      const std::shared_ptr<Operation> operation = weak.lock();
      if (operation == nullptr) return;
      LINKSPAN_ASSERT(
          operation->loop().in_loop_thread(),
          "a cancellation signal is emitted on the loop; from other threads a stop token is safe");
      operation->cancel(make_error_code(errc::cancelled));
    });
  }

 private:
  using Executor = asio::associated_executor_t<Handler, LoopExecutor>;

  void deliver() override {
    auto slot = asio::get_associated_cancellation_slot(*handler_);
    if (slot.is_connected()) slot.clear();
    auto call = [handler = take(), failure = this->failure(), values = std::move(this->values_)]() mutable {
      std::apply([&](Values&... each) { std::move(handler)(std::move(failure), std::move(each)...); },
                 values);
    };
    if (is_here()) {
      work_.reset();
      call();
      return;
    }
    const asio::executor_work_guard<Executor> work = std::move(work_);
    asio::dispatch(work.get_executor(), std::move(call));
  }

  void drop() noexcept override {
    work_.reset();
    static_cast<void>(take());
  }

  Handler take() {
    Handler taken = std::move(*handler_);
    handler_.reset();
    return taken;
  }

  /// The handler's executor is the loop, whose thread this is.
  [[nodiscard]] bool is_here() const noexcept {
    const LoopExecutor here(this->loop());
    if constexpr (std::same_as<Executor, LoopExecutor>) {
      return &work_.get_executor().loop() == &here.loop();
    } else if constexpr (std::same_as<Executor, asio::any_io_executor>) {
      const Executor executor = work_.get_executor();
      const auto* target = executor.template target<LoopExecutor>();
      return target != nullptr && &target->loop() == &here.loop() && here.loop().in_loop_thread();
    } else {
      return false;
    }
  }

  asio::executor_work_guard<Executor> work_;
  std::optional<Handler> handler_;
};

/// Begins an operation on its loop's thread; one that the loop refuses completes at once.
template <class Operation, class Start>
class Launch {
 public:
  Launch(std::shared_ptr<Operation> operation, Start&& start)
      : operation_(std::move(operation)), start_(std::move(start)) {}
  Launch(Launch&& other) noexcept = default;
  Launch& operator=(Launch&&) = delete;
  ~Launch() {
    if (operation_ != nullptr) operation_->refuse();
  }

  void operator()() {
    const std::shared_ptr<Operation> operation = std::move(operation_);
    begin(operation, start_);
  }

  static void begin(const std::shared_ptr<Operation>& operation, Start& start) {
    if (!operation->begin()) return;
    try {
      start(operation);
    } catch (const std::bad_alloc&) {
      operation->cancel(make_error_code(errc::pool_exhausted));
    }
  }

 private:
  std::shared_ptr<Operation> operation_;
  Start start_;
};

template <class Failure, class... Values>
struct Initiate {
  EventLoop* loop;

  template <class Handler, class Start>
  void operator()(Handler&& handler, AsyncOptions options, Start start) const {
    using Op = HandledOperation<std::decay_t<Handler>, Failure, Values...>;
    AsioCompanion& companion = AsioCompanion::of(*loop);
    // By value: what else it may be a reference to is the caller's.
    std::decay_t<Handler> taken(std::forward<Handler>(handler));
    auto operation = std::allocate_shared<Op>(asio::recycling_allocator<Op>(), companion, std::move(options),
                                              std::move(taken));
    operation->listen_for_cancellation();
    using Begin = Launch<OperationOf<Failure, Values...>, Start>;
    if (loop->in_loop_thread()) {
      Begin::begin(std::move(operation), start);
    } else {
      EventLoop::PreparedTask task(Begin(std::move(operation), std::move(start)));
      std::move(task).post(*loop);
    }
  }
};

/// Begins an operation. `start` is called on the loop with a shared pointer to its OperationOf, unless it
/// has ended by then.
template <class Failure, class... Values, class Start, class Token>
auto initiate(EventLoop& loop, AsyncOptions options, Start start, Token&& token) {
  return asio::async_initiate<Token, void(Failure, Values...)>(Initiate<Failure, Values...>{&loop}, token,
                                                               std::move(options), std::move(start));
}

}  // namespace linkspan::detail
