// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/helper_threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/loop/offload.hpp"
#include "support/engines.hpp"
#include "support/helpers.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::EngineScript;
using linkspan::test::Gate;
using linkspan::test::ManualHelpers;
using linkspan::test::null_loop;
using Pace = Helpers::Pace;

namespace {

// Starts real threads and counts them; refuses when told to.
class CountedThreads final : public Threads {
 public:
  Result<std::unique_ptr<Thread>> start(const std::string& name, std::optional<int> cpu,
                                        unique_function<void()> body) override {
    if (started >= allowed) return Error(errc::unavailable, "no thread for " + name);
    ++started;
    return Environment::system().threads.start(name, cpu, std::move(body));
  }
  int started = 0;
  int allowed = 1000;
};

struct World {
  std::unique_ptr<HelperThreads> helpers(std::size_t max_threads, std::size_t max_queued = 1024) {
    HelperThreadsOptions options;
    options.max_threads = max_threads;
    options.max_queued_jobs = max_queued;
    options.thread_name = "helper";
    options.environment = &environment;
    return HelperThreads::create(std::move(options)).value_or_throw();
  }

  const Environment& system = Environment::system();
  CountedThreads threads;
  Environment environment{system.clock, system.random, threads, system.resolver, system.files};
};

// A loop on this thread, with helpers.
struct HelpedLoop {
  explicit HelpedLoop(Helpers& helpers, EventLoopOptions options = {}) {
    options.helpers = &helpers;
    loop = null_loop(script, std::move(options));
  }
  void tick() { loop->run_once(Duration::zero()); }

  EngineScript script;
  std::unique_ptr<EventLoop> loop;
};

}  // namespace

TEST_CASE("helpers without a thread or without a queue are refused") {
  HelperThreadsOptions options;
  options.max_threads = 0;
  CHECK(HelperThreads::create(options).error().code == errc::invalid_argument);
  options.max_threads = 1;
  options.max_queued_jobs = 0;
  CHECK(HelperThreads::create(options).error().code == errc::invalid_argument);
}

TEST_CASE("a thread is started only when a job finds none that is free, and no more than are allowed") {
  World world;
  Gate gate;
  const auto helpers = world.helpers(3);
  CHECK(world.threads.started == 0);
  std::atomic<int> ran{0};
  for (int i = 1; i <= 10; ++i) {
    CHECK(helpers->submit([&](std::error_code) { gate.pass(), ++ran; }, Pace::quick).ok());
    CHECK(world.threads.started == std::min(i, 3));
  }
  gate.await_arrivals(3);
  gate.open();
  gate.await_arrivals(10);
  while (ran != 10) std::this_thread::yield();
  CHECK(world.threads.started == 3);
}

TEST_CASE("too many jobs are refused with the limit's name, and nothing is called") {
  World world;
  Gate gate;
  std::atomic<int> calls{0};
  const auto helpers = world.helpers(1, 2);
  CHECK(helpers->submit([&](std::error_code) { gate.pass(); }, Pace::quick).ok());
  gate.await_arrivals(1);
  for (int i = 0; i < 2; ++i) CHECK(helpers->submit([&](std::error_code) { ++calls; }, Pace::quick).ok());
  const auto alive = std::make_shared<int>();
  const Status refused = helpers->submit([&calls, alive](std::error_code) { ++calls; }, Pace::slow);
  CHECK(refused.error().code == errc::limit_exceeded);
  CHECK(refused.error().detail.find("max_queued_jobs") != std::string::npos);
  CHECK(alive.use_count() == 1);
  gate.open();
  while (calls != 2) std::this_thread::yield();
}

TEST_CASE("slow jobs leave half of the threads to others") {
  World world;
  Gate gate;
  const auto helpers = world.helpers(4);
  std::atomic<int> slow{0};
  for (int i = 0; i < 6; ++i) {
    CHECK(helpers->submit([&](std::error_code) { gate.pass(), ++slow; }, Pace::slow).ok());
  }
  gate.await_arrivals(2);
  std::atomic<int> quick{0};
  for (int i = 0; i < 50; ++i) CHECK(helpers->submit([&](std::error_code) { ++quick; }, Pace::quick).ok());
  while (quick != 50) std::this_thread::yield();
  CHECK(gate.arrived() == 2);
  gate.open();
  while (slow != 6) std::this_thread::yield();
}

TEST_CASE("jobs begin in the order of the calls, whatever their pace") {
  World world;
  Gate gate;
  Gate last;
  std::vector<int> order;
  {
    const auto helpers = world.helpers(1);
    CHECK(helpers->submit([&](std::error_code) { gate.pass(); }, Pace::slow).ok());
    for (int i = 0; i < 6; ++i) {
      const Pace pace = i % 3 == 0 ? Pace::slow : Pace::quick;
      CHECK(helpers->submit([&order, i](std::error_code) { order.push_back(i); }, pace).ok());
    }
    CHECK(helpers->submit([&](std::error_code) { last.pass(); }, Pace::quick).ok());
    gate.open();
    last.await_arrivals(1);
    last.open();
  }
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("destruction cancels what has not begun and waits for what has") {
  World world;
  Gate gate;
  std::vector<std::error_code> cancelled;
  bool finished = false;
  auto helpers = world.helpers(1);
  CHECK(helpers->submit([&](std::error_code) { gate.pass(), finished = true; }, Pace::quick).ok());
  gate.await_arrivals(1);
  for (const Pace pace : {Pace::quick, Pace::slow}) {
    CHECK(helpers
              ->submit(
                  [&](std::error_code error) {
                    cancelled.push_back(error);
                    gate.open();
                  },
                  pace)
              .ok());
  }
  helpers.reset();
  CHECK(finished);
  REQUIRE(cancelled.size() == 2);
  CHECK(cancelled[0] == errc::cancelled);
  CHECK(cancelled[1] == errc::cancelled);
}

TEST_CASE("a job is refused when there is no thread, and waits when there is one") {
  World world;
  world.threads.allowed = 0;
  Gate gate;
  std::atomic<int> ran{0};
  const auto helpers = world.helpers(2);
  const auto alive = std::make_shared<int>();
  CHECK(helpers->submit([alive](std::error_code) {}, Pace::quick).error().detail == "no thread for helper");
  CHECK(alive.use_count() == 1);

  world.threads.allowed = 1;
  for (int i = 0; i < 3; ++i) {
    CHECK(helpers->submit([&](std::error_code) { gate.pass(), ++ran; }, Pace::quick).ok());
  }
  gate.open();
  while (ran != 3) std::this_thread::yield();
}

TEST_CASE("a job that throws is logged, and its thread goes on") {
  const test::LogCapture log;
  World world;
  const auto helpers = world.helpers(1);
  CHECK(helpers->submit([](std::error_code) { throw std::runtime_error("oops"); }, Pace::quick).ok());
  std::atomic<bool> ran{false};
  CHECK(helpers->submit([&](std::error_code) { ran = true; }, Pace::quick).ok());
  while (!ran) std::this_thread::yield();
  CHECK(log.contains("oops"));
}

TEST_CASE("work off the loop is reported once, on the loop's thread, also when that takes no more posts") {
  World world;
  const auto helpers = world.helpers(2);
  EventLoopOptions options;
  options.max_pending_tasks = 0;
  HelpedLoop helped(*helpers, options);
  std::thread::id worked_on;
  std::vector<std::error_code> reports;
  Offload offload;
  CHECK(offload
            .start(
                *helped.loop, Pace::quick, [&] { worked_on = std::this_thread::get_id(); },
                [&](std::error_code error) {
                  CHECK(helped.loop->in_loop_thread());
                  reports.push_back(error);
                })
            .ok());
  CHECK(reports.empty());
  while (reports.empty()) helped.tick();
  helped.tick();
  CHECK(reports.size() == 1);
  CHECK_FALSE(reports[0]);
  CHECK(worked_on != std::this_thread::get_id());
}

TEST_CASE("work that was cancelled, or threw, is reported as that") {
  const test::LogCapture log;
  ManualHelpers helpers;
  HelpedLoop helped(helpers);
  std::vector<std::error_code> reports;
  const auto report = [&](std::error_code error) { reports.push_back(error); };
  Offload cancelled;
  Offload throwing;
  CHECK(cancelled
            .start(
                *helped.loop, Pace::quick, [] {}, report)
            .ok());
  CHECK(throwing
            .start(
                *helped.loop, Pace::quick, [] { throw std::runtime_error("oops"); }, report)
            .ok());
  helpers.run_one(make_error_code(errc::cancelled));
  helpers.run_one();
  helped.tick();
  REQUIRE(reports.size() == 2);
  CHECK(reports[0] == errc::cancelled);
  CHECK(reports[1] == errc::handler_failed);
  CHECK(log.contains("oops"));
}

TEST_CASE("forgotten work is not reported, whether it runs later, has run, or outlives the loop") {
  ManualHelpers helpers;
  auto helped = std::make_unique<HelpedLoop>(helpers);
  int reports = 0;
  const auto report = [&](std::error_code) { ++reports; };
  const auto held = std::make_shared<int>();
  {
    Offload later;
    Offload posted;
    CHECK(posted
              .start(
                  *helped->loop, Pace::quick, [held] {}, report)
              .ok());
    CHECK(later
              .start(
                  *helped->loop, Pace::quick, [held] {}, report)
              .ok());
    helpers.run_one();
  }
  helped->tick();
  helped.reset();
  CHECK(held.use_count() == 2);
  helpers.run_all();
  CHECK(held.use_count() == 1);
  CHECK(reports == 0);
}

namespace {

struct Work final : PendingWork {
  explicit Work(std::vector<std::string>& journal) : journal_(journal) {}
  void loop_stops() noexcept override { journal_.push_back("stops"); }
  void loop_ends() noexcept override {
    journal_.push_back("ends");
    unlink();
  }
  std::vector<std::string>& journal_;
};

}  // namespace

TEST_CASE("a loop's end waits for pending work, until its deadline") {
  const test::LogCapture log;
  std::vector<std::string> journal;
  EngineScript script;
  EventLoopOptions options;
  SUBCASE("that finishes") {
    auto loop = null_loop(script, options);
    Work work(journal);
    loop->await(work);
    script.on_poll = [&](Duration) {
      if (script.timeouts.size() == 3) work.unlink();
    };
    loop.reset();
    CHECK(script.timeouts.size() == 3);
    CHECK(journal == std::vector<std::string>{"stops"});
  }
  SUBCASE("that does not") {
    options.stop_deadline = Duration::zero();
    auto loop = null_loop(script, options);
    Work work(journal);
    loop->await(work);
    loop.reset();
    CHECK(journal == std::vector<std::string>{"stops", "ends"});
    CHECK(log.contains("stopped with operations still open"));
  }
  SUBCASE("that begins in its last tasks") {
    options.stop_deadline = Duration::zero();
    auto loop = null_loop(script, options);
    Work work(journal);
    script.on_poll = [&, raw = loop.get()](Duration) { CHECK(raw->post([&, raw] { raw->await(work); })); };
    loop.reset();
    CHECK(journal == std::vector<std::string>{"ends"});
  }
}
