// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/helper_threads.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "lib/base/log_exception.hpp"
#include "linkspan/base/ring_queue.hpp"

namespace linkspan {

Helpers::~Helpers() = default;

struct HelperThreads::State {
  struct Queued {
    Job job;
    std::uint64_t number = 0;  // of all jobs
  };

  explicit State(HelperThreadsOptions options_in) : options(std::move(options_in)) {}

  [[nodiscard]] std::size_t queued() const noexcept { return quick.size() + slow.size(); }
  [[nodiscard]] std::size_t slow_places() const noexcept {
    return std::max<std::size_t>(options.max_threads / 2, 1) - slow_running;
  }
  // Jobs that a free thread may begin now.
  [[nodiscard]] std::size_t startable() const noexcept {
    return quick.size() + std::min(slow.size(), slow_places());
  }

  // For the job that is queued last, with the lock. It stays queued if there is another thread to take it.
  Status start_thread_if_needed() {
    if (idle >= startable() || threads.size() == options.max_threads) return std::monostate();
    Result<std::unique_ptr<Thread>> thread = start_thread();
    if (thread) {
      threads.push_back(std::move(thread).value());
    } else if (threads.empty()) {
      return thread.error();
    }
    return std::monostate();
  }

  Result<std::unique_ptr<Thread>> start_thread() {
    try {
      threads.reserve(threads.size() + 1);
      return options.environment->threads.start(options.thread_name, std::nullopt, [this] { run(); });
    } catch (const std::bad_alloc&) {
      return Error(std::make_error_code(std::errc::not_enough_memory), options.thread_name);
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      changed.wait(lock, [this] { return stop || startable() != 0; });
      --idle;
      if (stop) return;
      const bool take_slow = !slow.empty() && slow_places() != 0 &&
                             (quick.empty() || slow.front().number < quick.front().number);
      Job job = (take_slow ? slow : quick).pop_front().job;
      if (take_slow) ++slow_running;
      lock.unlock();
      call(job, {});
      job.reset();
      lock.lock();
      if (take_slow) --slow_running;
    }
  }

  static void call(Job& job, std::error_code error) noexcept {
    try {
      job(error);
    } catch (...) {
      log_exception("loop", "a job of a helper thread");
    }
  }

  const HelperThreadsOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  RingQueue<Queued> quick;
  RingQueue<Queued> slow;
  std::uint64_t submitted = 0;
  std::size_t slow_running = 0;
  std::size_t idle = 0;  // threads that wait
  bool stop = false;
  std::vector<std::unique_ptr<Thread>> threads;
};

HelperThreads::HelperThreads(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

Result<std::unique_ptr<HelperThreads>> HelperThreads::create(HelperThreadsOptions options) {
  if (options.max_threads == 0 || options.max_queued_jobs == 0) {
    return Error(errc::invalid_argument,
                 options.thread_name + ": max_threads and max_queued_jobs are at least 1, not 0");
  }
  return std::unique_ptr<HelperThreads>(new HelperThreads(std::make_unique<State>(std::move(options))));
}

HelperThreads::~HelperThreads() {
  RingQueue<State::Queued> left[2];
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    left[0] = std::move(state_->quick);
    left[1] = std::move(state_->slow);
  }
  state_->changed.notify_all();
  for (RingQueue<State::Queued>& queue : left) {
    for (; !queue.empty(); queue.pop_front()) {
      State::call(queue.front().job, make_error_code(errc::cancelled));
    }
  }
  state_->threads.clear();
}

HelperThreads& HelperThreads::system() {
  static HelperThreads& threads = *create().value_or_throw().release();
  return threads;
}

Status HelperThreads::submit(Job job, Pace pace) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->queued() >= state_->options.max_queued_jobs) {
      return Error(errc::limit_exceeded, state_->options.thread_name + ": " +
                                             std::to_string(state_->queued()) +
                                             " jobs wait already (HelperThreadsOptions::max_queued_jobs)");
    }
    RingQueue<State::Queued>& queue = pace == Pace::slow ? state_->slow : state_->quick;
    queue.push_back({std::move(job), state_->submitted++});
    if (Status started = state_->start_thread_if_needed(); !started) {
      job = queue.pop_front().job;  // the only one, as there is no thread; destroyed without the lock
      return started;
    }
  }
  state_->changed.notify_one();
  return std::monostate();
}

}  // namespace linkspan
