// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// uv_async_send, which says that there is something to do, and a queue that says what.
#include <uv.h>

#include <thread>
#include <utility>

#include "perf/support/posts.hpp"
#include "perf/support/task_queue.hpp"

namespace {

using linkspan::perf::TaskQueue;

class Loop {
 public:
  Loop() {
    uv_loop_init(&loop_);
    uv_async_init(&loop_, &async_,
                  [](uv_async_t* async) { static_cast<TaskQueue*>(async->data)->run_all(); });
    async_.data = &tasks_;
    thread_ = std::thread([this] { uv_run(&loop_, UV_RUN_DEFAULT); });
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    post([this] { uv_close(reinterpret_cast<uv_handle_t*>(&async_), nullptr); });
    thread_.join();
    uv_loop_close(&loop_);
  }

  template <class Function>
  void post(Function function) {
    tasks_.push(std::move(function));
    uv_async_send(&async_);
  }

 private:
  TaskQueue tasks_;
  uv_loop_t loop_;
  uv_async_t async_;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  return linkspan::perf::run_own_rounds(
      argc, argv, [](bool quick) { linkspan::perf::measure_posts<Loop>("libuv", quick); });
}
