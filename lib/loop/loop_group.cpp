// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/loop_group.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>

namespace linkspan {

LoopPolicy round_robin() {
  auto turn = std::make_shared<std::atomic<std::size_t>>(0);
  return [turn](std::span<EventLoop* const> loops) {
    return turn->fetch_add(1, std::memory_order_relaxed) % loops.size();
  };
}

LoopPolicy fewest_bytes() {
  return [](std::span<EventLoop* const> loops) {
    const auto bytes = [](const EventLoop* loop) {
      return loop->counters().bytes_received.get() + loop->counters().bytes_sent.get();
    };
    return static_cast<std::size_t>(std::ranges::min_element(loops, {}, bytes) - loops.begin());
  };
}

// Shared by the group and its threads, which end before it does.
struct LoopGroup::State {
  LoopPolicy policy;
  std::vector<EventLoop*> loops;

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t reported = 0;  // threads whose loop runs or could not be made
  std::size_t running = 0;
  std::optional<Error> error;  // the first one
  bool released = false;       // loops may be destroyed

  std::vector<std::unique_ptr<Thread>> threads;  // last: joined before the rest goes

  // An engine factory is a user's callback: what it throws is an error of its loop.
  static Result<std::unique_ptr<EventLoop>> create_loop(const EngineFactory& engine,
                                                        EventLoopOptions options) {
    const std::string name = options.name;
    try {
      return EventLoop::create(engine, std::move(options));
    } catch (const std::exception& exception) {
      return Error(errc::handler_failed, name + ": creating the loop threw: " + exception.what());
    } catch (...) {
      return Error(errc::handler_failed, name + ": creating the loop threw something else than an exception");
    }
  }

  void run_loop(std::size_t index, const EngineFactory& engine, EventLoopOptions options) {
    Result<std::unique_ptr<EventLoop>> loop = create_loop(engine, std::move(options));
    {
      const std::lock_guard lock(mutex);
      ++reported;
      if (released) return;  // creating the group has failed meanwhile
      if (loop) {
        loops[index] = loop.value().get();
        ++running;
      } else if (!error) {
        error = loop.error();
      }
    }
    changed.notify_all();
    if (!loop) return;
    loop.value()->run();
    std::unique_lock lock(mutex);
    --running;
    changed.notify_all();
    changed.wait(lock, [this] { return released; });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      for (EventLoop* loop : loops) {
        if (loop != nullptr) loop->stop();
      }
    }
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return running == 0; });
      released = true;
    }
    changed.notify_all();
    threads.clear();
  }
};

LoopGroup::LoopGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoopGroup::~LoopGroup() = default;

Result<std::unique_ptr<LoopGroup>> LoopGroup::create(const EngineFactory& engine, LoopGroupOptions options) {
  constexpr std::size_t kMaxLoops = 1024;
  if (options.size == 0 || options.size > kMaxLoops) {
    return Error(errc::invalid_argument,
                 "a loop group has 1 to 1024 loops, not " + std::to_string(options.size));
  }
  auto state = std::make_unique<State>();
  state->policy = options.policy ? std::move(options.policy) : round_robin();
  state->loops.resize(options.size);
  state->threads.reserve(options.size);
  for (std::size_t i = 0; i < options.size; ++i) {
    EventLoopOptions loop = options.loop;
    loop.name += "-" + std::to_string(i);
    std::optional<int> cpu;
    if (!options.cpus.empty()) cpu = options.cpus[i % options.cpus.size()];
    const std::string name = loop.name;
    auto thread = loop.environment->threads.start(
        name, cpu, [shared = state.get(), i, engine, loop = std::move(loop)]() mutable {
          shared->run_loop(i, engine, std::move(loop));
        });
    if (!thread) {
      const std::lock_guard lock(state->mutex);
      ++state->reported;
      if (!state->error) state->error = thread.error();
      continue;
    }
    state->threads.push_back(std::move(thread).value());
  }
  {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->reported == options.size; });
    if (state->error) {
      Error error = *state->error;
      lock.unlock();
      return error;
    }
  }
  return std::unique_ptr<LoopGroup>(new LoopGroup(std::move(state)));
}

std::span<EventLoop* const> LoopGroup::loops() const noexcept {
  return state_->loops;
}

EventLoop& LoopGroup::next() {
  const std::size_t index = state_->policy(state_->loops);
  LINKSPAN_ASSERT(index < state_->loops.size(), "a loop policy returns an index below the number of loops");
  return *state_->loops[index];
}

void LoopGroup::stop() noexcept {
  for (EventLoop* loop : state_->loops) loop->stop();
}

void LoopGroup::wait() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->running == 0; });
}

}  // namespace linkspan
