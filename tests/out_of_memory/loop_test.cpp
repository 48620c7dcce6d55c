// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <string>
#include <utility>

#include "linkspan/loop/async_files.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/loop_group.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/resolution.hpp"
#include "linkspan/transport/transport.hpp"
#include "out_of_memory/failing_allocations.hpp"
#include "support/engines.hpp"
#include "support/fake_clock.hpp"
#include "support/helpers.hpp"

using namespace linkspan;
using linkspan::test::EngineScript;
using linkspan::test::fail_each_allocation;
using linkspan::test::FailingAllocation;

TEST_CASE("a loop that cannot be made leaves nothing behind, whichever allocation fails") {
  EngineScript script;
  std::unique_ptr<EventLoop> loop;
  CHECK(fail_each_allocation([&] { loop = test::null_loop(script); },
                             [&](bool failed) { CHECK((loop == nullptr) == failed); }) != 0);
}

TEST_CASE("a group that cannot be made has ended its threads, whichever allocation fails") {
  const auto engine = transport_engine().value_or_throw();
  std::unique_ptr<LoopGroup> group;
  LoopGroupOptions options;
  options.size = 2;
  const auto make = [&] {
    auto made = LoopGroup::create(engine, options);
    if (made) group = std::move(made).value();
  };
  CHECK(fail_each_allocation(make, [&](bool failed) { CHECK((group == nullptr) == failed); }) != 0);
}

TEST_CASE("a task that cannot be posted is destroyed, and the caller hears of it") {
  EngineScript script;
  const auto loop = test::null_loop(script);
  const auto alive = std::make_shared<int>();
  {
    const FailingAllocation failing(0);
    CHECK_THROWS_AS(static_cast<void>(loop->post([alive] {})), std::bad_alloc);
  }
  CHECK(alive.use_count() == 1);
  int ran = 0;
  CHECK(loop->post([&ran] { ++ran; }));
  loop->run_once(Duration::zero());
  CHECK(ran == 1);
}

TEST_CASE("timers start and fire in order without memory") {
  test::FakeWorld world;
  EngineScript script;
  script.timeouts.reserve(10);
  EventLoopOptions options;
  options.environment = &world.environment;
  const auto loop = test::null_loop(script, std::move(options));
  std::string fired;
  Timer one(*loop, [&fired] { fired += "1"; });
  Timer two(*loop, [&fired] { fired += "2"; });
  Timer three(*loop, [&fired] { fired += "3"; });
  bool failed = true;
  {
    const FailingAllocation failing(0);
    three.start(std::chrono::microseconds(2));
    one.start(std::chrono::microseconds(1));
    two.start(std::chrono::microseconds(1));
    for (int i = 0; i < 3; ++i) {
      world.clock.advance(std::chrono::milliseconds(1));
      loop->run_once(Duration::zero());
    }
    failed = failing.failed();
  }
  CHECK(fired == "123");
  CHECK_FALSE(failed);
}

TEST_CASE("out of memory in a task is an exception like any other: logged, and the loop goes on") {
  EngineScript script;
  const auto loop = test::null_loop(script);
  CHECK(loop->post([] {
    const FailingAllocation failing(0);
    static_cast<void>(new std::string(100, 'x'));
  }));
  loop->run_once(Duration::zero());
  CHECK(loop->counters().failed_callbacks.get() == 1);
}

TEST_CASE("what cannot be begun throws or completes with an error, never both, whichever allocation fails") {
  test::ManualHelpers helpers;
  EngineScript script;
  script.timeouts.reserve(10'000);
  EventLoopOptions options;
  options.helpers = &helpers;
  const auto loop = test::null_loop(script, options);
  AsyncFiles& files = loop->files();
  std::unique_ptr<Resolution> resolution;
  int calls = 0;
  bool threw = false;
  const auto check = [&](bool) {
    helpers.run_all();
    loop->run_once(Duration::zero());
    CHECK(calls == (threw ? 0 : 1));
    calls = 0;
  };
  const std::string missing = "/nowhere/at/all/but/long/enough/for/the/heap";
  CHECK(fail_each_allocation(
            [&] {
              threw = true;
              files.sync_directory(missing, [&](Status) { ++calls; });
              threw = false;
            },
            check) != 0);
  CHECK(fail_each_allocation(
            [&] {
              threw = true;
              resolution = std::make_unique<Resolution>(*loop, "localhost:80", [&](auto&&) { ++calls; });
              threw = false;
            },
            check) != 0);
}
