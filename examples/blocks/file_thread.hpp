// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FileThread: the one thread that touches the disk, so that no loop ever waits for it. Tasks run one after
// the other in the order in which they came; they post their results back to a loop.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "linkspan/base/result.hpp"
#include "linkspan/base/ring_queue.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/environment.hpp"

namespace linkspan::blocks {

class FileThread {
 public:
  static Result<std::unique_ptr<FileThread>> start(Threads& threads);
  /// Runs what waits, then ends.
  ~FileThread();

  /// Any thread. Callers bound what they have in flight; see kWindow in server.cpp and client.cpp.
  void run(unique_function<void()> task);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  RingQueue<unique_function<void()>> tasks_;
  bool stopping_ = false;
  std::unique_ptr<Thread> thread_;
};

}  // namespace linkspan::blocks
