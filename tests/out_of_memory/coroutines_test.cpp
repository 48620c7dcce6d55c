// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Coroutines for which there is no memory: operations throw or complete, tasks are run or not, and whoever
// joins them hears of it.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <doctest/doctest.h>

#include <asio.hpp>
#include <cerrno>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "linkspan/interop/asio.hpp"
#include "linkspan/transport/transport.hpp"
#include "out_of_memory/connecting.hpp"
#include "out_of_memory/failing_allocations.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::connect_without_memory;
using linkspan::test::fail_each_allocation;
using linkspan::test::FailingAllocation;
using linkspan::test::LogCapture;
using std::literals::chrono_literals::operator""h;
using asio::use_awaitable;

namespace {

std::unique_ptr<EventLoop> make_loop() {
  return EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
}

void settle(EventLoop& loop) {
  for (int i = 0; i < 20; ++i) loop.run_once(Duration::zero());
}

// How an awaited operation ends when the allocation that comes after `allowed` others fails; "" when none
// has.
asio::awaitable<void> sleep_without_memory(EventLoop& loop, std::stop_token stop, std::size_t allowed,
                                           std::string& outcome) {
  const FailingAllocation failing(allowed);
  try {
    co_await async_sleep(loop, Duration::zero(), AsyncOptions(1h, stop), use_awaitable);
    if (failing.failed()) outcome = "slept";
  } catch (const std::bad_alloc&) {
    outcome = "threw";
  } catch (const std::system_error& error) {
    outcome = error.code() == errc::pool_exhausted ? "completed" : error.what();
  }
}

// Its completion is destroyed instead of called.
asio::awaitable<void> wait_in_vain() {
  co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(
      [](auto&& handler) { const auto dropped = std::move(handler); }, use_awaitable);
}

asio::awaitable<void> sleep_shortly(EventLoop& loop, bool& ran) {
  co_await async_sleep(loop, Duration::zero(), use_awaitable);
  ran = true;
}
asio::awaitable<void> run_at_once(EventLoop&, bool& ran) {
  ran = true;
  co_return;
}

struct Joined {
  int completions = 0;
  std::exception_ptr failure;

  void join(TaskScope& scope) {
    async_join(scope, [this](std::exception_ptr result) {
      ++completions;
      failure = std::move(result);
    });
  }
};

}  // namespace

TEST_CASE(
    "an operation that a coroutine begins without memory throws or completes, and never ends the program") {
  const auto loop = make_loop();
  std::stop_source source;
  std::string outcomes;
  int quiet = 0;  // recycled memory is used up one allocation after the other
  for (std::size_t allowed = 0; quiet < 3; ++allowed) {
    TaskScope scope(*loop);
    std::string outcome;
    scope.spawn(sleep_without_memory(*loop, source.get_token(), allowed, outcome));
    settle(*loop);
    REQUIRE(scope.running() == 0);
    quiet = outcome.empty() ? quiet + 1 : 0;
    outcomes += outcome + " ";
  }
  CHECK(outcomes.find("threw") != std::string::npos);
  CHECK(outcomes.find("completed") != std::string::npos);
}

TEST_CASE("an operation of a coroutine on another thread completes when there is no memory to go there") {
  const auto loop = make_loop();
  std::stop_source source;
  std::string outcomes;
  const auto sleeper = [](EventLoop& to, std::stop_token stop, std::size_t allowed,
                          std::string& outcome) -> asio::awaitable<void> {
    co_await sleep_without_memory(to, std::move(stop), allowed, outcome);
  };
  async_sleep(*loop, Duration::zero(), [](std::error_code) {});  // what the loop keeps for all is there then
  settle(*loop);
  int quiet = 0;
  for (std::size_t allowed = 0; quiet < 3; ++allowed) {
    asio::io_context context(1);
    std::string outcome;
    std::thread other([&] {
      co_spawn(context, sleeper(*loop, source.get_token(), allowed, outcome), [](std::exception_ptr) {});
      context.run();
    });
    while (!context.stopped()) loop->run_once(std::chrono::milliseconds(1));
    other.join();
    quiet = outcome.empty() ? quiet + 1 : 0;
    outcomes += outcome + " ";
  }
  CAPTURE(outcomes);
  CHECK(outcomes.find("threw") != std::string::npos);
  CHECK(outcomes.find("completed") != std::string::npos);
}

TEST_CASE("a task that cannot be spawned is none of its scope's, whichever allocation fails") {
  const auto loop = make_loop();
  const LogCapture log;
  const auto spawn_with_failures = [&](const auto task, bool recycles) {
    bool threw = false;
    int thrown = 0;
    bool ran = false;
    std::optional<TaskScope> scope;
    std::optional<asio::awaitable<void>> made;
    const auto prepare = [&] {
      if (recycles) {  // what a task leaves for the next one, so that other allocations are those that fail
        TaskScope other(*loop);
        other.spawn(task(*loop, ran));
        settle(*loop);
      }
      ran = false;
      threw = true;
      scope.emplace(*loop);
      made.emplace(task(*loop, ran));
    };
    prepare();
    fail_each_allocation(
        [&] {
          scope->spawn(std::move(*made));
          threw = false;
        },
        [&](bool failed) {
          Joined joined;
          joined.join(*scope);
          settle(*loop);
          CHECK(joined.completions == 1);
          CHECK(scope->running() == 0);
          if (!failed) {
            CHECK(ran);
            CHECK(joined.failure == nullptr);
          }
          if (threw) CHECK(joined.failure == nullptr);
          thrown += threw ? 1 : 0;
          prepare();
        });
    CHECK(thrown > 0);
    made.reset();
  };
  for (const bool recycles : {false, true}) {
    spawn_with_failures(sleep_shortly, recycles);
    spawn_with_failures(run_at_once, recycles);
  }
}

TEST_CASE("a task whose completion is destroyed has ended, and whoever joins hears of it") {
  const auto loop = make_loop();
  TaskScope scope(*loop);
  scope.spawn(wait_in_vain());
  Joined joined;
  joined.join(scope);
  settle(*loop);
  CHECK(scope.running() == 0);
  CHECK(joined.completions == 1);
  REQUIRE(joined.failure != nullptr);
  CHECK_THROWS_AS(std::rethrow_exception(joined.failure), std::system_error);
}

namespace {

asio::awaitable<void> greet(AsyncChannel<Chain> channel) {
  Chain greeting(Slice::immortal("hello"));
  co_await async_write(channel, std::move(greeting), use_awaitable);
}

}  // namespace

TEST_CASE("a connection whose coroutine there is no memory for is closed; the server goes on") {
  const LogCapture log;
  const auto loop = make_loop();
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  options.initializer = serve_with<Chain>(greet);
  {
    Server server = Server::start(*loop, options).value_or_throw();
    CHECK(connect_without_memory(*loop, server, "served served served ").starts_with("closed closed "));
  }
}
