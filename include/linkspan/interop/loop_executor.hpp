// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// LoopExecutor: an event loop as an Asio executor, so that co_spawn and composed operations run on it,
// whatever it waits with; there is no io_context.
// Not for: Asio's own timers and sockets in numbers. They work, but Asio then waits for them on a thread of
// its own, one a loop, started by the first of them, and each goes there and back. async_sleep and Linkspan's
// channels stay on the loop.
// Cost: 8 bytes. On the loop's thread dispatch is a call, and post an allocation; from other threads as
// EventLoop::post.
// Threads: any, for as long as the loop lives.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/detail/thread_context.hpp>
#include <asio/detail/thread_info_base.hpp>
#include <asio/execution.hpp>
#include <asio/execution_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "linkspan/interop/async_operation.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {

namespace detail {

/// What Asio keeps with a loop: its services, which the loop's end shuts down, and the memory of coroutine
/// frames and operations, which it uses again on threads that it takes for its own. Public Asio has no way to
/// say that a thread is one, so this is the one place that reaches into its details.
class AsioCompanion final : public LoopOperations, private asio::detail::thread_context {
 public:
  explicit AsioCompanion(EventLoop& loop) : LoopOperations(loop) {}

  [[nodiscard]] static AsioCompanion& of(EventLoop& loop) {
    return static_cast<AsioCompanion&>(loop.companion([](EventLoop& its_loop) {
      return std::unique_ptr<LoopCompanion>(std::make_unique<AsioCompanion>(its_loop));
    }));
  }

  [[nodiscard]] asio::execution_context& context() noexcept { return context_; }

  /// While a coroutine is spawned, on the loop's thread. Asio allocates then where it cannot throw: so that
  /// memory is there before. Throws std::bad_alloc.
  class SpawnMemory {
   public:
    explicit SpawnMemory(AsioCompanion& companion) : as_one_of_asios_(&companion, companion.memory_) {
      using Memory = asio::detail::thread_info_base;
      constexpr std::size_t kBytes = 256;  // of a function that is executed
      void* const memory = Memory::allocate(Memory::executor_function_tag(), &companion.memory_, kBytes);
      Memory::deallocate(Memory::executor_function_tag(), &companion.memory_, memory, kBytes);
      if (companion.spare_ == nullptr) companion.spare_.reset(::operator new(kSpareBytes));
    }

   private:
    const thread_call_stack::context as_one_of_asios_;
  };

  /// Of a function that is posted, for ::operator delete: a coroutine that ends while it is spawned posts its
  /// completion, and gets what was kept for that if there is no other. Throws std::bad_alloc.
  [[nodiscard]] void* allocate_posted(std::size_t bytes) {
    if (void* const memory = ::operator new(bytes, std::nothrow)) return memory;
    if (bytes > kSpareBytes || spare_ == nullptr) throw std::bad_alloc();
    return spare_.release();
  }

 private:
  static constexpr std::size_t kSpareBytes = 64;
  struct Free {
    void operator()(void* memory) const noexcept { ::operator delete(memory); }
  };

  class Context final : public asio::execution_context {
   public:
    using execution_context::shutdown;
  };

  void run_deferred() override {
    const thread_call_stack::context as_one_of_asios(this, memory_);
    LoopOperations::run_deferred();
  }
  void before_end() noexcept override { context_.shutdown(); }

  asio::detail::thread_info_base memory_;
  std::unique_ptr<void, Free> spare_;
  Context context_;
};

/// A function that the loop's own thread has posted.
template <class Function>
class ReadyFunction final : public ReadyWork {
 public:
  static void* operator new(std::size_t bytes, AsioCompanion& companion) {
    return companion.allocate_posted(bytes);
  }
  static void operator delete(void* memory, AsioCompanion&) noexcept { ::operator delete(memory); }
  static void operator delete(void* memory) noexcept { ::operator delete(memory); }

  template <class From>
  explicit ReadyFunction(From&& function) : function_(std::forward<From>(function)) {}

  void run_and_release() override {
    Function function = take();
    std::move(function)();
  }
  void drop_and_release() noexcept override { static_cast<void>(take()); }

 private:
  Function take() {
    const std::unique_ptr<ReadyFunction> self(this);
    return std::move(function_);
  }

  Function function_;
};

}  // namespace detail

/// Converts to asio::any_io_executor. What is executed runs on the loop's thread: with blocking.possibly, the
/// default, at once if that is the caller's; with blocking.never at the end of the tick. A loop that has
/// ended destroys what other threads give it, as an io_context that is gone does.
class LoopExecutor {
 public:
  explicit LoopExecutor(EventLoop& loop) noexcept : bits_(reinterpret_cast<std::uintptr_t>(&loop)) {}

  [[nodiscard]] EventLoop& loop() const noexcept {
    return *reinterpret_cast<EventLoop*>(bits_ & ~kNeverInline);
  }

  template <class Function>
  void execute(Function&& function) const {
    using Callable = std::decay_t<Function>;
    EventLoop& its_loop = loop();
    if (!its_loop.in_loop_thread()) {
      EventLoop::PreparedTask task{Callable(std::forward<Function>(function))};
      std::move(task).post(its_loop);
    } else if ((bits_ & kNeverInline) == 0) {
      Callable callable(std::forward<Function>(function));
      std::move(callable)();
    } else {
      auto& companion = detail::AsioCompanion::of(its_loop);
      companion.ready(*new (companion) detail::ReadyFunction<Callable>(std::forward<Function>(function)));
    }
  }

  [[nodiscard]] asio::execution_context& query(asio::execution::context_t) const {
    return detail::AsioCompanion::of(loop()).context();
  }
  [[nodiscard]] asio::execution::blocking_t query(asio::execution::blocking_t) const noexcept {
    if ((bits_ & kNeverInline) != 0) return asio::execution::blocking.never;
    return asio::execution::blocking.possibly;
  }
  [[nodiscard]] LoopExecutor require(asio::execution::blocking_t::never_t) const noexcept {
    return LoopExecutor(bits_ | kNeverInline);
  }
  [[nodiscard]] LoopExecutor require(asio::execution::blocking_t::possibly_t) const noexcept {
    return LoopExecutor(bits_ & ~kNeverInline);
  }

  friend bool operator==(const LoopExecutor&, const LoopExecutor&) noexcept = default;

 private:
  static constexpr std::uintptr_t kNeverInline = 1;
  static_assert(alignof(EventLoop) > kNeverInline);

  explicit LoopExecutor(std::uintptr_t bits) noexcept : bits_(bits) {}

  std::uintptr_t bits_;  // the loop's address; the lowest bit says blocking.never
};

static_assert(sizeof(LoopExecutor) == 8);

}  // namespace linkspan
