// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Waits that are due at once, each begun by the end of the one before: async_sleep, Asio's steady_timer on a
// LoopExecutor, which Asio waits for on a thread of its own, and the same timer on an io_context.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <linkspan/interop/asio.hpp>
#include <linkspan/transport/transport.hpp>
#include <memory>
#include <system_error>
#include <utility>

#include "perf/support/rounds.hpp"

namespace linkspan::perf {
namespace {

// `start` begins a wait, `end` is called after the last.
template <class Start, class End>
class Waits {
 public:
  Waits(benchmark::State& state, Start start, End end)
      : state_(state), start_(std::move(start)), end_(std::move(end)) {}

  void next() {
    if (!state_.KeepRunning()) return end_();
    start_([this](std::error_code) { next(); });
  }

 private:
  benchmark::State& state_;
  Start start_;
  End end_;
};

template <class Start>
void run_on(EventLoop& loop, benchmark::State& state, Start start) {
  Waits waits(state, std::move(start), [&loop] { loop.stop(); });
  if (!loop.post([&] { waits.next(); })) state.SkipWithError("the loop takes no tasks");
  loop.run();
}

std::unique_ptr<EventLoop> make_loop() {
  return EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
}

void sleep_on_loop(benchmark::State& state) {
  const auto loop = make_loop();
  run_on(*loop, state, [&](auto next) { async_sleep(*loop, Duration::zero(), std::move(next)); });
}

void steady_timer_on_loop(benchmark::State& state) {
  const auto loop = make_loop();
  asio::steady_timer timer{asio::any_io_executor(LoopExecutor(*loop))};
  run_on(*loop, state, [&](auto next) {
    timer.expires_after(Duration::zero());
    timer.async_wait(std::move(next));
  });
}

void steady_timer_on_context(benchmark::State& state) {
  asio::io_context context(1);
  asio::steady_timer timer(context);
  const auto start = [&timer](auto next) {
    timer.expires_after(Duration::zero());
    timer.async_wait(std::move(next));
  };
  Waits waits(state, start, [] {});
  waits.next();
  context.run();
}

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  const auto add_waits = [](const char* variant, void (*run)(benchmark::State&)) {
    add({.variant = variant, .parameters = {}, .run = run, .wall = true, .quick = true});
  };
  add_waits("async_sleep", sleep_on_loop);
  add_waits("steady_timer on the loop", steady_timer_on_loop);
  add_waits("steady_timer on an io_context", steady_timer_on_context);
  return run(argc, argv);
}
