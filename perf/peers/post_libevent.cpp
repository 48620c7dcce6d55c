// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// event_active from another thread, which says that there is something to do, and a queue that says what.
#include <event2/event.h>
#include <event2/thread.h>

#include <thread>
#include <utility>

#include "perf/support/posts.hpp"
#include "perf/support/task_queue.hpp"

namespace {

using linkspan::perf::TaskQueue;

class Loop {
 public:
  Loop() : base_(event_base_new()) {
    const auto run = [](evutil_socket_t, short, void* tasks) { static_cast<TaskQueue*>(tasks)->run_all(); };
    event_ = event_new(base_, -1, EV_PERSIST, run, &tasks_);
    event_add(event_, nullptr);
    thread_ = std::thread([this] { event_base_loop(base_, EVLOOP_NO_EXIT_ON_EMPTY); });
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    post([this] { event_base_loopbreak(base_); });
    thread_.join();
    event_free(event_);
    event_base_free(base_);
  }

  template <class Function>
  void post(Function function) {
    tasks_.push(std::move(function));
    event_active(event_, 0, 0);
  }

 private:
  TaskQueue tasks_;
  event_base* base_;
  event* event_ = nullptr;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  evthread_use_pthreads();
  return linkspan::perf::run_own_rounds(
      argc, argv, [](bool quick) { linkspan::perf::measure_posts<Loop>("libevent", quick); });
}
