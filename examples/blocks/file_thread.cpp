// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "file_thread.hpp"

#include <utility>

namespace linkspan::blocks {

Result<std::unique_ptr<FileThread>> FileThread::start(Threads& threads) {
  auto files = std::make_unique<FileThread>();
  auto thread = threads.start("blocks-files", std::nullopt, [self = files.get()] { self->work(); });
  if (!thread) return thread.error();
  files->thread_ = std::move(thread).value();
  return files;
}

FileThread::~FileThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.reset();
}

void FileThread::run(unique_function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void FileThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    unique_function<void()> task = tasks_.pop_front();
    lock.unlock();
    task();
    task.reset();
    lock.lock();
  }
}

}  // namespace linkspan::blocks
