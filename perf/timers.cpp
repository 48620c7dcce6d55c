// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Starting, moving and cancelling timers on Linkspan.
#include "linkspan/loop/timer.hpp"

#include <deque>

#include "linkspan/transport/transport.hpp"
#include "perf/support/timers.hpp"

namespace {

using namespace linkspan;

class Timers {
 public:
  explicit Timers(std::size_t count)
      : loop_(EventLoop::create(transport_engine().value_or_throw()).value_or_throw()) {
    for (std::size_t i = 0; i < count; ++i) timers_.emplace_back(*loop_, [] {});
  }

  template <class Function>
  void run(Function function) {
    bool done = false;
    const bool posted = loop_->post([&] {
      function();
      done = true;
    });
    while (posted && !done) loop_->run_once(Duration::zero());
  }
  void start(std::size_t index, std::chrono::milliseconds delay) { timers_[index].start(delay); }
  void cancel(std::size_t index) { timers_[index].cancel(); }
  void drain() {}

 private:
  std::unique_ptr<EventLoop> loop_;
  std::deque<Timer> timers_;
};

}  // namespace

int main(int argc, char** argv) {
  return linkspan::perf::run_timers<Timers>("linkspan", argc, argv);
}
