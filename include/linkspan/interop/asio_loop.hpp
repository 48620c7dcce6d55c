// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// AsioLoop: an EventLoop that lives on an asio::io_context which the program runs anyway, so that a program
// that uses Asio can add Linkspan's servers and clients to it: same thread, no second loop.
// Not for: programs without Asio; LoopGroup and transport_engine("asio") run loops of their own.
// Cost: a tick is a handler of the context. Nothing runs and nothing is polled while there is nothing to do.
// Header-only; the dependency linkspan-asio has the definitions that it expects.
// Threads: the context is run by one thread, on which the loop is made and destroyed too. The loop's post()
// and stop() are safe from any thread as always, and do not allocate in Asio.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "linkspan/base/result.hpp"
#include "linkspan/interop/asio_reactor.hpp"
#include "linkspan/interop/handler_memory.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/reactor.hpp"

namespace linkspan {

/// Owns the loop. Destroying it, which no callback of the loop may do, aborts what is open and delivers every
/// completion before it returns. It has to go before the context does, like everything of Asio's.
class AsioLoop {
 public:
  /// The loop's first tick comes when the context runs. From now on until loop().stop() has done its work, or
  /// until this is destroyed, the loop counts as work of the context: run() does not return for lack of
  /// others. Fails as EventLoop::create does, and for a busy_poll: it is not this loop that waits.
  [[nodiscard]] static Result<AsioLoop> create(asio::io_context& context, EventLoopOptions options = {}) {
    if (options.busy_poll > Duration::zero()) {
      return Error(errc::invalid_argument, options.name + ": a loop on an io_context has no busy_poll");
    }
    try {
      auto ticks = std::make_shared<Ticks>(context);
      const auto make_engine = [&](EventLoop& loop) -> Result<std::unique_ptr<Engine>> {
        return make_transport(loop, std::make_unique<GuestReactor>(context, loop, ticks));
      };
      Result<std::unique_ptr<EventLoop>> loop = EventLoop::create(make_engine, std::move(options));
      if (!loop) return loop.error();
      ticks->begin(*loop.value());
      return AsioLoop(std::move(loop).value(), std::move(ticks));
    } catch (const asio::system_error& failure) {  // its epoll or kqueue
      return Error(failure.code(), "asio::io_context");
    }
  }

  AsioLoop(AsioLoop&&) noexcept = default;
  AsioLoop& operator=(AsioLoop&&) = delete;
  ~AsioLoop() {
    if (loop_ == nullptr) return;
    ticks_->end();  // what there still is to do comes without the context
    loop_.reset();
  }

  /// For servers, clients, timers; the context runs it.
  [[nodiscard]] EventLoop& loop() const noexcept { return *loop_; }

 private:
  // When ticks come. Handlers that the context holds share it, since they may come when the loop is gone.
  class Ticks : public std::enable_shared_from_this<Ticks> {
   public:
    explicit Ticks(asio::io_context& context)
        : context_(context), work_(context.get_executor()), timer_(context) {}

    void begin(EventLoop& loop) noexcept {
      loop_ = &loop;
      schedule();
    }

    /// No more ticks.
    void end() noexcept {
      loop_ = nullptr;
      timer_.reset();
      work_.reset();
    }

    [[nodiscard]] bool ended() const noexcept { return loop_ == nullptr; }

    /// Any thread.
    void wake() noexcept {
      schedule();
      const std::lock_guard lock(mutex_);
      woken_ = true;
      woken_changed_.notify_one();
    }

    /// For the last ticks, which destroying the loop makes itself: sleeps until wake().
    void sleep(Duration timeout) {
      std::unique_lock lock(mutex_);
      woken_changed_.wait_for(lock, timeout, [this] { return woken_; });
      woken_ = false;
    }

    void schedule() noexcept {
      if (!scheduled_.exchange(true, std::memory_order_acq_rel)) asio::post(context_, Posted(*this));
    }

    void schedule_after(Duration delay) {
      constexpr Duration kLongest = std::chrono::hours(24);
      const auto due = std::chrono::steady_clock::now() + std::min(delay, kLongest);
      if (due >= timer_due_) return;  // a tick that comes early finds nothing, and asks again
      timer_due_ = due;
      timer_->expires_at(due);
      timer_->async_wait([ticks = shared_from_this()](const asio::error_code& cancelled) {
        if (cancelled) return;
        ticks->timer_due_ = kNotSet;
        ticks->tick();
      });
    }

   private:
    static constexpr std::size_t kPostedBytes = 256;

    class Posted {
     public:
      using allocator_type = detail::HandlerAllocator<char, kPostedBytes>;

      explicit Posted(Ticks& ticks) noexcept : ticks_(ticks.shared_from_this()) {}
      [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_type(ticks_->memory_); }

      void operator()() {
        // Sees what was posted before the schedule() that found this one on its way.
        static_cast<void>(ticks_->scheduled_.exchange(false, std::memory_order_acq_rel));
        ticks_->tick();
      }

     private:
      std::shared_ptr<Ticks> ticks_;
    };

    void tick() {
      if (loop_ != nullptr && !loop_->run_as_guest()) end();
    }

    static constexpr auto kNotSet = std::chrono::steady_clock::time_point::max();

    asio::io_context& context_;
    EventLoop* loop_ = nullptr;  // nullptr: stopped, or gone
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
    std::optional<asio::steady_timer> timer_;  // for the loop's next one
    std::chrono::steady_clock::time_point timer_due_ = kNotSet;
    std::atomic<bool> scheduled_{false};
    std::mutex mutex_;
    std::condition_variable woken_changed_;
    bool woken_ = false;
    detail::HandlerMemory<kPostedBytes> memory_;  // one tick is posted at a time
  };

  class GuestReactor final : public AsioReactor {
   public:
    GuestReactor(asio::io_context& context, EventLoop& loop, std::shared_ptr<Ticks> ticks)
        : AsioReactor(context), loop_(loop), ticks_(std::move(ticks)) {}

    bool wait(Duration timeout) noexcept override {
      ask();
      if (ticks_->ended()) {
        ticks_->sleep(timeout);
      } else if (timeout <= Duration::zero()) {
        ticks_->schedule();
      } else if (timeout != Duration::max()) {
        ticks_->schedule_after(timeout);
      }
      return false;
    }

    void wake() noexcept override { ticks_->wake(); }

   private:
    void changed() noexcept override { loop_.need_tick(); }

    EventLoop& loop_;
    std::shared_ptr<Ticks> ticks_;
  };

  AsioLoop(std::unique_ptr<EventLoop> loop, std::shared_ptr<Ticks> ticks) noexcept
      : loop_(std::move(loop)), ticks_(std::move(ticks)) {}

  std::unique_ptr<EventLoop> loop_;
  std::shared_ptr<Ticks> ticks_;
};

}  // namespace linkspan
