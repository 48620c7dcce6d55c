// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/engine.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {
namespace {

/// Does nothing but what a test asks for, and remembers how long it was allowed to wait.
class ScriptedEngine final : public Engine {
 public:
  ScriptedEngine(std::function<void()> on_prepare, std::vector<Duration>& waits)
      : on_prepare_(std::move(on_prepare)), waits_(waits) {}

  std::string_view name() const noexcept override { return "scripted"; }
  void prepare() noexcept override {
    if (on_prepare_) std::exchange(on_prepare_, nullptr)();
  }
  bool poll(Duration timeout) noexcept override {
    waits_.push_back(timeout);
    return false;
  }
  void wake() noexcept override {}
  void stop() noexcept override {}
  bool idle() const noexcept override { return true; }

 private:
  std::function<void()> on_prepare_;
  std::vector<Duration>& waits_;
};

class Deferred final : public DeferredTask {
 public:
  void run_deferred() override { ran = true; }
  bool ran = false;
};

std::unique_ptr<EventLoop> make_loop(std::function<void()> on_prepare, std::vector<Duration>& waits) {
  return EventLoop::create([&](EventLoop&) -> Result<std::unique_ptr<Engine>> {
           return std::unique_ptr<Engine>(std::make_unique<ScriptedEngine>(std::move(on_prepare), waits));
         })
      .value_or_throw();
}

TEST_CASE("a timer that is started while the engine prepares bounds the wait that follows") {
  std::vector<Duration> waits;
  std::unique_ptr<Timer> timer;
  auto loop = make_loop([&] { timer->start(std::chrono::seconds(3)); }, waits);
  timer = std::make_unique<Timer>(*loop, [] {});

  loop->run_once(Duration::max());
  REQUIRE(waits.size() == 1);
  CHECK(waits[0] <= std::chrono::seconds(4));
  timer.reset();
}

TEST_CASE("a task that is deferred or posted while the engine prepares keeps the engine from waiting") {
  std::vector<Duration> waits;
  Deferred deferred;
  EventLoop* self = nullptr;

  SUBCASE("deferred") {
    auto loop = make_loop([&] { self->defer(deferred); }, waits);
    self = loop.get();
    loop->run_once(Duration::max());
    loop->run_once(Duration::max());
    CHECK(deferred.ran);
  }
  SUBCASE("posted") {
    auto loop = make_loop([&] { CHECK(self->post([] {})); }, waits);
    self = loop.get();
    loop->run_once(Duration::max());
  }
  REQUIRE(!waits.empty());
  CHECK(waits[0] == Duration::zero());
}

}  // namespace
}  // namespace linkspan
