// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The queue that a program puts in front of a library which can only be told that there is something to do.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace linkspan::perf {

class TaskQueue {
 public:
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  void run_all() {
    {
      const std::lock_guard lock(mutex_);
      running_.swap(tasks_);
    }
    for (auto& task : running_) task();
    running_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  std::vector<std::function<void()>> running_;
};

}  // namespace linkspan::perf
