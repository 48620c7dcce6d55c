// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
// Posts and stops from other threads, to a loop that sleeps.
#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/loop/event_loop.hpp"
#include "support/engines.hpp"
#include "support/sanitized.hpp"

using namespace linkspan;
using linkspan::test::make_sleeping_engine;
using linkspan::test::SleepingEngine;

namespace {

std::unique_ptr<EventLoop> sleeping_loop(EventLoopOptions options = {}) {
  return EventLoop::create(&make_sleeping_engine, std::move(options)).value_or_throw();
}

}  // namespace

TEST_CASE("tasks of one thread run in the order of its posts, and none is lost") {
  constexpr int kThreads = 4;
  constexpr int kPosts = test::kSanitized ? 5'000 : 50'000;
  const auto loop = sleeping_loop();
  std::vector<int> next(kThreads, 0);
  int left = kThreads * kPosts;
  bool in_order = true;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kPosts; ++i) {
        while (!loop->post([&, thread, i] {
          in_order = in_order && std::exchange(next[static_cast<std::size_t>(thread)], i + 1) == i;
          if (--left == 0) loop->stop();
        })) {
        }
      }
    });
  }
  loop->run();
  for (std::thread& thread : threads) thread.join();
  CHECK(in_order);
  CHECK(left == 0);
}

TEST_CASE("a post wakes a loop that sleeps, and so does stop") {
  constexpr int kRounds = test::kSanitized ? 500 : 5'000;
  const auto loop = sleeping_loop();
  auto& engine = static_cast<SleepingEngine&>(loop->engine());
  int ran = 0;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      engine.wait_until_asleep();
      std::promise<void> done;
      CHECK(loop->post([&] {
        ++ran;
        done.set_value();
      }));
      done.get_future().wait();
    }
    engine.wait_until_asleep();
    loop->stop();
  });
  loop->run();
  other.join();
  CHECK(ran == kRounds);
}

TEST_CASE("a post that meets a loop on its way to sleep is not lost") {
  constexpr int kRounds = test::kSanitized ? 2'000 : 20'000;
  const auto loop = sleeping_loop();
  std::atomic<int> ran{0};
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      CHECK(loop->post([&] { ++ran; }));
      while (ran != i + 1) std::this_thread::yield();
    }
    loop->stop();
  });
  loop->run();
  other.join();
  CHECK(ran == kRounds);
}

TEST_CASE("of tasks posted while a loop stops, each runs or is refused, and all are destroyed") {
  constexpr int kRounds = test::kSanitized ? 50 : 300;
  for (int round = 0; round < kRounds; ++round) {
    auto alive = std::make_shared<int>(0);
    std::atomic<int> ran{0};
    std::atomic<int> accepted{0};
    EventLoopOptions options;
    options.max_pending_tasks = 100;
    const auto loop = sleeping_loop(std::move(options));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&] {
        for (;;) {
          if (loop->post([&ran, alive] { ++ran; })) {
            ++accepted;
          } else if (loop->stopping()) {
            return;
          }
        }
      });
    }
    while (!loop->post([&] { loop->stop(); })) loop->run_once(Duration::zero());
    loop->run();
    for (std::thread& thread : threads) thread.join();
    REQUIRE(ran == accepted);
    REQUIRE(alive.use_count() == 1);
  }
}
