// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/transport/resolution.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/engines.hpp"
#include "support/fake_clock.hpp"
#include "support/helpers.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::Gate;

namespace {

// What a test says instead of the system; called on a helper thread.
class FakeResolver final : public Resolver {
 public:
  std::function<Result<std::vector<std::string>>(const std::string&)> answer =
      [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"::1", "127.0.0.1"};
  };
  Result<std::vector<std::string>> resolve(const std::string& host) override { return answer(host); }
};

struct World {
  World() {
    EventLoopOptions options;
    options.environment = &environment;
    options.helpers = &helpers;
    loop = test::null_loop(script, std::move(options));
  }
  void tick() { loop->run_once(Duration::zero()); }

  test::FakeClock clock;
  FakeResolver resolver;
  Environment environment{clock, Environment::system().random, Environment::system().threads, resolver,
                          Environment::system().files};
  test::ManualHelpers helpers;
  test::EngineScript script;
  std::unique_ptr<EventLoop> loop;
};

// What completions say.
struct Outcome {
  int calls = 0;
  std::error_code error;
  std::string detail;
  std::vector<std::string> endpoints;
  std::function<void()> during;

  Resolution::Completion completion() {
    return [this](Result<std::vector<Endpoint>> result) {
      ++calls;
      if (result) {
        for (const Endpoint& endpoint : result.value()) endpoints.push_back(endpoint.to_string());
      } else {
        error = result.error().code;
        detail = result.error().message();
      }
      if (during) during();
    };
  }
};

}  // namespace

TEST_CASE("a name is resolved by a helper, to all its addresses in order") {
  World world;
  Outcome outcome;
  Resolution resolution(*world.loop, "example:80", outcome.completion());
  world.tick();
  CHECK(resolution.active());
  world.helpers.run_all();
  CHECK(outcome.calls == 0);
  world.tick();
  CHECK(outcome.calls == 1);
  CHECK(outcome.endpoints == std::vector<std::string>{"[::1]:80", "127.0.0.1:80"});
  CHECK_FALSE(resolution.active());
  world.clock.advance(std::chrono::hours(1));
  world.tick();
  CHECK(outcome.calls == 1);
}

TEST_CASE("what needs no lookup completes without a helper, but not inside the call") {
  for (const std::string text : {"127.0.0.1:80", "[::1]:80", "unix:/x"}) {
    World world;
    Outcome outcome;
    Resolution resolution(*world.loop, text, outcome.completion());
    CHECK(outcome.calls == 0);
    world.tick();
    CHECK(outcome.calls == 1);
    CHECK(outcome.endpoints == std::vector{text});
    CHECK(world.helpers.waiting() == 0);
  }
  for (const std::string text : {"", "host", "host:http", "unix:"}) {
    World world;
    Outcome outcome;
    Resolution resolution(*world.loop, text, outcome.completion());
    CHECK(outcome.calls == 0);
    world.tick();
    CHECK(outcome.error == errc::invalid_argument);
    CHECK(world.helpers.waiting() == 0);
  }
}

TEST_CASE("a lookup that fails, finds nothing or throws is an error") {
  World world;
  const test::LogCapture log;
  Outcome outcome;
  SUBCASE("fails") {
    world.resolver.answer = [](const std::string& host) -> Result<std::vector<std::string>> {
      return Error(errc::unresolved, "no such name as " + host);
    };
  }
  SUBCASE("finds nothing") {
    world.resolver.answer = [](const std::string&) -> Result<std::vector<std::string>> {
      return std::vector<std::string>();
    };
  }
  SUBCASE("throws") {
    world.resolver.answer = [](const std::string&) -> Result<std::vector<std::string>> {
      throw std::runtime_error("oops");
    };
  }
  Resolution resolution(*world.loop, "example:80", outcome.completion());
  world.helpers.run_all();
  world.tick();
  CHECK(outcome.calls == 1);
  CHECK(outcome.error);
  CHECK(outcome.detail.find("example") != std::string::npos);
}

TEST_CASE("a cancelled resolution completes in the next tick, whatever its lookup does") {
  World world;
  Outcome outcome;
  auto resolution = std::make_unique<Resolution>(*world.loop, "example:80", outcome.completion());
  SUBCASE("before the lookup begins") {
    resolution->cancel();
  }
  SUBCASE("when it has ended, but the loop does not know") {
    world.helpers.run_all();
    resolution->cancel();
    resolution->cancel();
  }
  SUBCASE("while it runs") {
    world.resolver.answer = [&](const std::string&) -> Result<std::vector<std::string>> {
      resolution->cancel();
      return Error(errc::unavailable, "too late");
    };
    world.helpers.run_all();
  }
  CHECK(outcome.calls == 0);
  world.tick();
  CHECK(outcome.calls == 1);
  CHECK(outcome.error == errc::cancelled);
  world.helpers.run_all();
  world.tick();
  resolution->cancel();
  world.tick();
  resolution.reset();
  CHECK(outcome.calls == 1);
}

TEST_CASE("cancelling a resolution that has completed does nothing") {
  World world;
  Outcome outcome;
  Resolution resolution(*world.loop, "1.2.3.4:5", outcome.completion());
  outcome.during = [&] { resolution.cancel(); };
  world.tick();
  resolution.cancel();
  world.tick();
  CHECK(outcome.calls == 1);
  CHECK_FALSE(outcome.error);
}

TEST_CASE("a resolution that takes too long times out, and its late result is dropped") {
  World world;
  Outcome outcome;
  Resolution resolution(*world.loop, "example:80", outcome.completion(), std::chrono::seconds(2));
  world.clock.advance(std::chrono::milliseconds(1990));
  world.tick();
  CHECK(outcome.calls == 0);
  world.clock.advance(std::chrono::milliseconds(20));
  world.tick();
  CHECK(outcome.calls == 1);
  CHECK(outcome.error == errc::timed_out);
  CHECK(outcome.detail.find("example:80") != std::string::npos);
  world.helpers.run_all();
  world.tick();
  CHECK(outcome.calls == 1);
}

TEST_CASE("destroying a resolution completes it; its completion may destroy it") {
  World world;
  Outcome outcome;
  auto resolution = std::make_unique<Resolution>(*world.loop, "example:80", outcome.completion());
  SUBCASE("destroyed") {
    resolution.reset();
    CHECK(outcome.error == errc::cancelled);
  }
  SUBCASE("by its completion") {
    outcome.during = [&] { resolution.reset(); };
    SUBCASE("cancelled") {
      resolution->cancel();
    }
    SUBCASE("resolved") {}
    SUBCASE("timed out") {
      world.clock.advance(std::chrono::seconds(6));
    }
    world.helpers.run_all();
    world.tick();
  }
  CHECK(outcome.calls == 1);
  CHECK(resolution == nullptr);
  world.helpers.run_all();
  world.tick();
  CHECK(outcome.calls == 1);
}

TEST_CASE("a lookup that no helper takes is an error that says why") {
  World world;
  Outcome outcome;
  world.helpers.refuses = true;
  Resolution resolution(*world.loop, "example:80", outcome.completion());
  CHECK(outcome.calls == 0);
  world.tick();
  CHECK(outcome.error == errc::limit_exceeded);
  CHECK(outcome.detail == "resolving example:80: too many jobs");
}

TEST_CASE("a loop that stops cancels its resolutions and does not wait for lookups that hang") {
  Gate gate;
  FakeResolver resolver;
  resolver.answer = [&](const std::string&) -> Result<std::vector<std::string>> {
    gate.pass();
    return std::vector<std::string>{"127.0.0.1"};
  };
  const Environment& system = Environment::system();
  const Environment environment{system.clock, system.random, system.threads, resolver, system.files};
  HelperThreadsOptions helper_options;
  helper_options.max_threads = 2;
  const auto helpers = HelperThreads::create(helper_options).value_or_throw();
  EventLoopOptions options;
  options.environment = &environment;
  options.helpers = helpers.get();
  options.stop_deadline = std::chrono::hours(1);
  test::EngineScript script;
  auto loop = test::null_loop(script, options);

  Outcome running;
  Outcome queued;
  Outcome late;
  std::unique_ptr<Resolution> another;
  running.during = [&, raw = loop.get()] {
    another = std::make_unique<Resolution>(*raw, "example:80", late.completion());
  };
  auto first = std::make_unique<Resolution>(*loop, "example:80", running.completion());
  auto second = std::make_unique<Resolution>(*loop, "example:80", queued.completion());
  gate.await_arrivals(1);
  loop->stop();
  loop->run();
  CHECK(running.calls == 1);
  CHECK(running.error == errc::cancelled);
  CHECK(queued.calls == 1);
  CHECK(queued.error == errc::cancelled);
  CHECK(late.calls == 1);
  CHECK(late.error == errc::stopped);
  first.reset();
  second.reset();
  another.reset();
  loop.reset();
  gate.open();
}

TEST_CASE("the system resolves localhost") {
  test::EngineScript script;
  const auto loop = test::null_loop(script);
  Outcome outcome;
  Resolution resolution(*loop, "localhost:80", outcome.completion(), std::chrono::hours(1));
  while (resolution.active()) loop->run_once(Duration::zero());
  REQUIRE(!outcome.endpoints.empty());
  for (const std::string& endpoint : outcome.endpoints) {
    CHECK((endpoint == "127.0.0.1:80" || endpoint == "[::1]:80"));
  }
}
