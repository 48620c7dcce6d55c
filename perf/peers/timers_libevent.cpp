// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// libevent's timers, started inside a callback, where its time is cached.
#include <event2/event.h>
#include <event2/event_struct.h>

#include <vector>

#include "perf/support/timers.hpp"

namespace {

class Timers {
 public:
  explicit Timers(std::size_t count) : base_(event_base_new()), timers_(count) {
    for (event& timer : timers_) {
      event_assign(
          &timer, base_, -1, 0, [](evutil_socket_t, short, void*) {}, nullptr);
    }
  }
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;
  ~Timers() {
    for (event& timer : timers_) event_del(&timer);
    event_base_free(base_);
  }

  template <class Function>
  void run(Function function) {
    const auto call = [](evutil_socket_t, short, void* context) { (*static_cast<Function*>(context))(); };
    event_base_once(base_, -1, EV_TIMEOUT, call, &function, nullptr);
    event_base_loop(base_, EVLOOP_ONCE);
  }
  void start(std::size_t index, std::chrono::milliseconds delay) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(delay);
    const timeval time{seconds.count(), std::chrono::microseconds(delay - seconds).count()};
    event_add(&timers_[index], &time);
  }
  void cancel(std::size_t index) { event_del(&timers_[index]); }
  void drain() {}

 private:
  event_base* base_;
  std::vector<event> timers_;
};

}  // namespace

int main(int argc, char** argv) {
  return linkspan::perf::run_timers<Timers>("libevent", argc, argv);
}
