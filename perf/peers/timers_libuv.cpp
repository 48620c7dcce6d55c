// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// libuv's timers. The loop is never run: its time is that of the last turn, as it is for whoever starts
// timers in a callback.
#include <uv.h>

#include <vector>

#include "perf/support/timers.hpp"

namespace {

class Timers {
 public:
  explicit Timers(std::size_t count) : timers_(count) {
    uv_loop_init(&loop_);
    for (uv_timer_t& timer : timers_) uv_timer_init(&loop_, &timer);
  }
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;
  ~Timers() {
    for (uv_timer_t& timer : timers_) uv_close(reinterpret_cast<uv_handle_t*>(&timer), nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);
    uv_loop_close(&loop_);
  }

  template <class Function>
  void run(Function function) {
    function();
  }
  void start(std::size_t index, std::chrono::milliseconds delay) {
    uv_timer_start(
        &timers_[index], [](uv_timer_t*) {}, static_cast<std::uint64_t>(delay.count()), 0);
  }
  void cancel(std::size_t index) { uv_timer_stop(&timers_[index]); }
  void drain() {}

 private:
  uv_loop_t loop_;
  std::vector<uv_timer_t> timers_;
};

}  // namespace

int main(int argc, char** argv) {
  return linkspan::perf::run_timers<Timers>("libuv", argc, argv);
}
