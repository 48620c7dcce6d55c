// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Helpers without threads: jobs wait until the test runs them. And a gate, for what has to block on a thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "linkspan/loop/helper_threads.hpp"

namespace linkspan::test {

class ManualHelpers final : public Helpers {
 public:
  bool refuses = false;

  [[nodiscard]] Status submit(Job job, Pace) override {
    if (refuses) return Error(errc::limit_exceeded, "too many jobs");
    jobs_.push_back(std::move(job));
    return std::monostate();
  }

  [[nodiscard]] std::size_t waiting() const { return jobs_.size(); }
  /// Runs the one that has waited longest, or cancels it.
  void run_one(std::error_code error = {}) {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    job(error);
  }
  void run_all() {
    while (!jobs_.empty()) run_one();
  }

 private:
  std::deque<Job> jobs_;
};

/// Closed until the test opens it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// Waits at the gate.
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  /// Returns when so many have come to the gate.
  void await_arrivals(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }
  [[nodiscard]] int arrived() const {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

}  // namespace linkspan::test
