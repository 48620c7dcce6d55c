// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Asio's steady_timer. Moving or cancelling one completes the wait that was there, which is part of the cost.
#include <asio.hpp>
#include <deque>
#include <system_error>

#include "perf/support/timers.hpp"

namespace {

class Timers {
 public:
  explicit Timers(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) timers_.emplace_back(context_);
  }

  template <class Function>
  void run(Function function) {
    function();
  }
  void start(std::size_t index, std::chrono::milliseconds delay) {
    timers_[index].expires_after(delay);
    timers_[index].async_wait([](std::error_code) {});
  }
  void cancel(std::size_t index) { timers_[index].cancel(); }
  void drain() {
    context_.restart();
    context_.poll();
  }

 private:
  asio::io_context context_{1};
  std::deque<asio::steady_timer> timers_;
};

}  // namespace

int main(int argc, char** argv) {
  return linkspan::perf::run_timers<Timers>("Asio", argc, argv);
}
