// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Two engines without sockets: one that never waits, and one that sleeps until it is woken.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/loop/engine.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan::test {

/// What a test sees of a NullEngine and tells it; outlives the loop.
struct EngineScript {
  std::function<void(Duration timeout)> on_poll;  // on the loop's thread
  std::vector<Duration> timeouts;                 // of all polls
  std::vector<std::string>* journal = nullptr;    // gets "stop"
  bool idle = true;
  bool finds_events = false;  // what poll returns
  std::atomic<int> memory_available{0};
};

class NullEngine final : public Engine {
 public:
  explicit NullEngine(EngineScript& script) noexcept : script_(script) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "null"; }
  bool poll(Duration timeout) noexcept override {
    script_.timeouts.push_back(timeout);
    if (script_.on_poll) script_.on_poll(timeout);
    return script_.finds_events;
  }
  void wake() noexcept override {}
  void memory_available() noexcept override { ++script_.memory_available; }
  void stop() noexcept override {
    if (script_.journal != nullptr) script_.journal->push_back("stop");
  }
  [[nodiscard]] bool idle() const noexcept override { return script_.idle; }

 private:
  EngineScript& script_;
};

/// A loop on this thread over a NullEngine.
[[nodiscard]] inline std::unique_ptr<EventLoop> null_loop(EngineScript& script,
                                                          EventLoopOptions options = {}) {
  return EventLoop::create(
             [&script](EventLoop&) -> Result<std::unique_ptr<Engine>> {
               return std::unique_ptr<Engine>(std::make_unique<NullEngine>(script));
             },
             std::move(options))
      .value_or_throw();
}

/// Sleeps on a condition variable.
class SleepingEngine final : public Engine {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "sleeping"; }
  bool poll(Duration timeout) noexcept override {
    std::unique_lock lock(mutex_);
    asleep_ = timeout > Duration::zero();
    changed_.notify_all();
    if (timeout == Duration::max()) {
      changed_.wait(lock, [this] { return woken_; });
    } else {
      changed_.wait_for(lock, timeout, [this] { return woken_; });
    }
    asleep_ = false;
    return std::exchange(woken_, false);
  }
  void wake() noexcept override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  void stop() noexcept override {}
  [[nodiscard]] bool idle() const noexcept override { return true; }

  /// Any other thread: returns when the loop sleeps.
  void wait_until_asleep() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return asleep_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asleep_ = false;
  bool woken_ = false;
};

[[nodiscard]] inline Result<std::unique_ptr<Engine>> make_sleeping_engine(EventLoop&) {
  return std::unique_ptr<Engine>(std::make_unique<SleepingEngine>());
}

}  // namespace linkspan::test
