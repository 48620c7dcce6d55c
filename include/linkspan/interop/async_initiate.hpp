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
#include <cstddef>
#include <exception>
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
  void end_with(Failure failure, Values&&... values) {
    if (ended()) return;
    values_ = std::tuple<Values&&...>(std::move(values)...);
    finish(std::move(failure));
  }
  void end_with(Failure failure) requires(sizeof...(Values) != 0) {
    if (!ended()) finish(std::move(failure));
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
  void finish(Failure failure) {
    if constexpr (std::same_as<Failure, std::error_code>) {
      end(failure);
    } else {
      failure_ = std::move(failure);
      end({});
    }
  }

  struct None {};
  [[no_unique_address]] std::conditional_t<std::same_as<Failure, std::exception_ptr>, Failure, None> failure_;
};

using PlainOperationRef = OperationRef<OperationOf<std::error_code>>;

/// Memory for an operation and its handler, which is there before Asio suspends the coroutine that begins the
/// operation: from then on Asio takes exceptions for the program's end.
template <class Operation>
class OperationMemory {
 public:
  struct alignas(std::max_align_t) Storage {
    std::byte bytes[sizeof(Operation) + 192];  // coroutines' handlers fit
  };
  using Allocator = asio::recycling_allocator<Storage>;

  /// Throws std::bad_alloc.
  OperationMemory() : storage_(Allocator().allocate(1)) {}
  OperationMemory(OperationMemory&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  OperationMemory& operator=(OperationMemory&&) = delete;
  ~OperationMemory() {
    if (storage_ != nullptr) Allocator().deallocate(storage_, 1);
  }

  /// For Allocator.
  [[nodiscard]] Storage* release() noexcept { return std::exchange(storage_, nullptr); }

 private:
  Storage* storage_;
};

template <class Handler, class Failure, class... Values>
class HandledOperation final : public OperationOf<Failure, Values...> {
 public:
  using Memory = OperationMemory<OperationOf<Failure, Values...>>;

  [[nodiscard]] static constexpr bool fits() noexcept {
    return sizeof(HandledOperation) <= sizeof(typename Memory::Storage) &&
           alignof(HandledOperation) <= alignof(typename Memory::Storage);
  }

  /// Held by its loop and by the caller. Throws std::bad_alloc if it does not fit into `prepared`.
  template <class From>
  [[nodiscard]] static HandledOperation* make(LoopOperations& operations, From&& handler, Memory&& prepared) {
    if constexpr (fits()) {
      void* const memory = prepared.release();
      return ::new (memory) HandledOperation(operations, std::forward<From>(handler));
    } else {
      void* const memory = asio::recycling_allocator<HandledOperation>().allocate(1);
      return ::new (memory) HandledOperation(operations, std::forward<From>(handler));
    }
  }

 private:
  using Executor = asio::associated_executor_t<Handler, LoopExecutor>;
  using Guard = asio::executor_work_guard<Executor>;

  template <class From>
  HandledOperation(LoopOperations& operations, From&& handler) noexcept
      : OperationOf<Failure, Values...>(operations), handler_(std::in_place, std::forward<From>(handler)) {
    Executor executor = asio::get_associated_executor(*handler_, LoopExecutor(this->loop()));
    if (!is_here(executor)) elsewhere_.emplace(std::move(executor));
    auto slot = asio::get_associated_cancellation_slot(*handler_);
    if (!slot.is_connected()) return;
    this->listens();
    try {
      slot.assign([this](asio::cancellation_type) {  // cleared before this goes
        LINKSPAN_ASSERT(
            this->loop().in_loop_thread(),
            "a cancellation signal is emitted on the loop; from other threads a stop token is safe");
        this->cancel(make_error_code(errc::cancelled));
      });
    } catch (const std::bad_alloc&) {
      this->cancel(make_error_code(errc::pool_exhausted));  // completes with that when it is begun
    }
  }
  ~HandledOperation() override {
    if (handler_) stop_listening();  // it was not begun
  }

  void destroy() noexcept override {
    this->~HandledOperation();
    if constexpr (fits()) {
      typename Memory::Allocator().deallocate(reinterpret_cast<typename Memory::Storage*>(this), 1);
    } else {
      asio::recycling_allocator<HandledOperation>().deallocate(this, 1);
    }
  }

  // The operation goes first, so that what the handler begins can use its memory.
  void run_and_release() override {
    Handler handler = take();
    Failure failure = this->failure();
    std::tuple<Values...> values = std::move(this->values_);
    if (!elsewhere_) {
      this->release();
      call(handler, failure, values);
      return;
    }
    const Guard work = std::move(*elsewhere_);
    elsewhere_.reset();
    this->release();
    asio::dispatch(work.get_executor(),
                   [handler = std::move(handler), failure = std::move(failure),
                    values = std::move(values)]() mutable { call(handler, failure, values); });
  }

  void drop_and_release() noexcept override {
    elsewhere_.reset();
    static_cast<void>(take());
    this->release();
  }

  static void call(Handler& handler, Failure& failure, std::tuple<Values...>& values) {
    std::apply([&](Values&... each) { std::move(handler)(std::move(failure), std::move(each)...); }, values);
  }

  Handler take() {
    stop_listening();
    Handler taken = std::move(*handler_);
    handler_.reset();
    return taken;
  }

  void stop_listening() noexcept {
    auto slot = asio::get_associated_cancellation_slot(*handler_);
    if (slot.is_connected()) slot.clear();
  }

  /// The executor is the loop: completions run there anyway.
  [[nodiscard]] bool is_here(const Executor& executor) const noexcept {
    if constexpr (std::same_as<Executor, LoopExecutor>) {
      return &executor.loop() == &this->loop();
    } else if constexpr (std::same_as<Executor, asio::any_io_executor>) {
#ifdef ASIO_NO_TYPEID
      return false;
#else
      // target() alone does not look at the type in Asio 1.22.
      return executor.target_type() == typeid(LoopExecutor) &&
             &executor.template target<LoopExecutor>()->loop() == &this->loop();
#endif
    } else {
      return false;
    }
  }

  std::optional<Handler> handler_;
  std::optional<Guard> elsewhere_;  // the handler's executor, unless that is the loop
};

/// Begins an operation on its loop's thread; one that does not get there completes at once.
template <class Operation, class Options, class Start>
class Launch {
 public:
  Launch(OperationRef<Operation> operation, Options&& options, Start&& start)
      : operation_(std::move(operation)), options_(std::move(options)), start_(std::move(start)) {}
  Launch(Launch&& other) noexcept = default;
  Launch& operator=(Launch&&) = delete;
  ~Launch() {
    if (operation_ != nullptr) operation_->refuse();
  }

  void operator()() { begin(std::move(operation_), std::move(options_), start_); }

  /// `start` may be gone when an operation that is not started has completed.
  static void begin(OperationRef<Operation> operation, Options&& options, Start& start) {
    if (!operation->begin(std::move(options))) return;
    Operation* const begun = operation.get();  // there until it has completed, which it cannot in here
    try {
      start(std::move(operation));
    } catch (const std::bad_alloc&) {
      begun->cancel(make_error_code(errc::pool_exhausted));
    }
  }

 private:
  OperationRef<Operation> operation_;
  [[no_unique_address]] Options options_;
  Start start_;
};

template <class Options, class Start, class Failure, class... Values>
struct Initiation {
  LoopOperations* operations;
  [[no_unique_address]] Options options;
  Start start;
  OperationMemory<OperationOf<Failure, Values...>> memory = {};

  template <class Handler>
  void operator()(Handler&& handler) {
    using Begin = Launch<OperationOf<Failure, Values...>, Options, Start>;
    EventLoop& loop = operations->loop();  // this may be gone once the operation is on its way
    OperationRef<OperationOf<Failure, Values...>> operation(
        HandledOperation<std::decay_t<Handler>, Failure, Values...>::make(
            *operations, std::forward<Handler>(handler), std::move(memory)));
    if (loop.in_loop_thread()) {
      Begin::begin(std::move(operation), std::move(options), start);
      return;
    }
    try {
      EventLoop::PreparedTask task(Begin(std::move(operation), std::move(options), std::move(start)));
      std::move(task).post(loop);
    } catch (const std::bad_alloc&) {
      // Completed when it could not be posted.
    }
  }
};

/// Begins an operation. `start` is called on the loop with an OperationRef of its OperationOf, unless it has
/// ended by then. Options are AsyncOptions or NoOptions. Throws std::bad_alloc; when there is no memory for
/// what comes later the operation completes with errc::pool_exhausted.
template <class Failure, class... Values, class Options, class Start, class Token>
auto initiate(EventLoop& loop, Options options, Start&& start, Token&& token) {
  using Begin = Initiation<Options, std::decay_t<Start>, Failure, Values...>;
  return asio::async_initiate<Token, void(Failure, Values...)>(
      Begin{&AsioCompanion::of(loop), std::move(options), std::forward<Start>(start)}, token);
}

}  // namespace linkspan::detail
