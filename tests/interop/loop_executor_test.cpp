// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/interop/loop_executor.hpp"

#include <doctest/doctest.h>

#include <array>
#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/experimental/deferred.hpp>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/interop/async_loop.hpp"
#include "tests/interop/loops.hpp"
#include "tests/support/death.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::literals::chrono_literals::operator""h;
using std::literals::chrono_literals::operator""ms;
using std::literals::chrono_literals::operator""s;
using asio::experimental::as_tuple;
using asio::experimental::deferred;

namespace {

static_assert(asio::execution::is_executor_v<LoopExecutor>);
static_assert(std::is_convertible_v<LoopExecutor, asio::any_io_executor>);
static_assert(std::is_nothrow_copy_constructible_v<LoopExecutor>);

struct Outcome {
  int completions = 0;
  std::error_code error;

  [[nodiscard]] auto record() {
    return [this](std::error_code result) {
      ++completions;
      error = result;
    };
  }
};

// A loop's executor inside another one.
class CountingExecutor {
 public:
  CountingExecutor(EventLoop& loop, int& executed) noexcept : loop_(loop), executed_(&executed) {}

  template <class Function>
  void execute(Function&& function) const {
    ++*executed_;
    loop_.execute(std::forward<Function>(function));
  }
  [[nodiscard]] asio::execution_context& query(asio::execution::context_t) const {
    return asio::query(loop_, asio::execution::context);
  }
  [[nodiscard]] auto query(asio::execution::blocking_t) const {
    return asio::query(loop_, asio::execution::blocking);
  }
  template <class Property>
  requires asio::can_require_v<LoopExecutor, Property>
  [[nodiscard]] CountingExecutor require(Property property) const {
    CountingExecutor other = *this;
    other.loop_ = asio::require(loop_, property);
    return other;
  }
  bool operator==(const CountingExecutor&) const = default;

 private:
  LoopExecutor loop_;
  int* executed_;
};

asio::awaitable<void> sleep_and_say(EventLoop& loop, Duration delay, std::vector<std::string>& log) {
  co_await async_sleep(loop, delay, asio::use_awaitable);
  log.emplace_back(loop.in_loop_thread() ? "slept on the loop" : "slept elsewhere");
}

// Tells when it is destroyed, as a coroutine's local variable.
class Witness {
 public:
  explicit Witness(int& destroyed) : destroyed_(destroyed) {}
  Witness(const Witness&) = delete;
  ~Witness() { ++destroyed_; }

 private:
  int& destroyed_;
};

asio::awaitable<void> sleep_long(EventLoop& loop, std::error_code& error, int& destroyed) {
  const Witness witness(destroyed);
  auto [result] = co_await async_sleep(loop, 1h, as_tuple(asio::use_awaitable));
  error = result;
}

asio::awaitable<void> sleep_again_and_again(EventLoop& loop, int& rounds) {
  for (;;) {
    co_await async_sleep(loop, 1h, as_tuple(asio::use_awaitable));
    ++rounds;
  }
}

asio::awaitable<void> race(EventLoop& loop, std::size_t& winner) {
  using namespace asio::experimental::awaitable_operators;
  auto outcome =
      co_await (async_sleep(loop, 1h, asio::use_awaitable) || async_sleep(loop, 1ms, asio::use_awaitable));
  winner = outcome.index();
  co_await (async_sleep(loop, 1ms, asio::use_awaitable) && async_sleep(loop, 2ms, asio::use_awaitable));
}

asio::awaitable<void> wait_with_asios_timer(EventLoop& loop, bool& on_loop) {
  asio::steady_timer timer(co_await asio::this_coro::executor, 5ms);
  co_await timer.async_wait(asio::use_awaitable);
  on_loop = loop.in_loop_thread();
}

asio::awaitable<void> wait_for_ever_with_asios_timer(int& destroyed) {
  const Witness witness(destroyed);
  asio::steady_timer timer(co_await asio::this_coro::executor, 1h);
  co_await timer.async_wait(asio::use_awaitable);
}

asio::awaitable<void> talk_over_asios_sockets(std::string& received) {
  const auto executor = co_await asio::this_coro::executor;
  asio::ip::tcp::acceptor acceptor(executor, {asio::ip::address_v4::loopback(), 0});
  asio::ip::tcp::socket here(executor);
  asio::ip::tcp::socket there(executor);
  const auto endpoint = acceptor.local_endpoint();
  co_await here.async_connect(endpoint, asio::use_awaitable);
  co_await acceptor.async_accept(there, asio::use_awaitable);
  co_await asio::async_write(here, asio::buffer("hello", 5), asio::use_awaitable);
  std::array<char, 5> bytes{};
  co_await asio::async_read(there, asio::buffer(bytes), asio::use_awaitable);
  received.assign(bytes.data(), bytes.size());
}

}  // namespace

TEST_CASE("post runs at the end of the tick, dispatch at once on the loop's thread") {
  on_every_loop([](TestLoop& test) {
    const LoopExecutor executor(test.loop());
    std::vector<int> order;
    asio::post(executor, [&] { order.push_back(2); });
    asio::dispatch(executor, [&] { order.push_back(1); });
    CHECK(order == std::vector{1});
    std::thread([&] { asio::dispatch(executor, [&] { order.push_back(3); }); }).join();
    CHECK(order == std::vector{1});
    CHECK(test.run_until([&] { return order.size() == 3; }));
    const asio::any_io_executor any = executor;
    CHECK(any == asio::any_io_executor(LoopExecutor(test.loop())));
    CHECK(&asio::query(any, asio::execution::context) == &executor.query(asio::execution::context));
  });
}

TEST_CASE("a coroutine sleeps on the loop, of any kind") {
  on_every_loop([](TestLoop& test) {
    std::vector<std::string> log;
    co_spawn(LoopExecutor(test.loop()), sleep_and_say(test.loop(), 2ms, log), asio::detached);
    CHECK(test.run_until([&] { return !log.empty(); }));
    CHECK(log == std::vector<std::string>{"slept on the loop"});
  });
}

TEST_CASE("a sleep takes callbacks, futures, deferred and as_tuple") {
  on_every_loop([](TestLoop& test) {
    Outcome callback;
    async_sleep(test.loop(), 1ms, callback.record());
    CHECK(callback.completions == 0);
    std::future<void> future = async_sleep(test.loop(), 1ms, asio::use_future);
    Outcome later;
    auto operation = async_sleep(test.loop(), 1ms, deferred);
    std::optional<std::tuple<std::error_code>> tuple;
    async_sleep(test.loop(), 1ms, as_tuple([&](std::tuple<std::error_code> result) { tuple = result; }));
    test.settle();
    CHECK(later.completions == 0);
    std::move(operation)(later.record());
    CHECK(test.run_until([&] {
      return callback.completions == 1 && later.completions == 1 &&
             future.wait_for(0s) == std::future_status::ready && tuple;
    }));
    CHECK_FALSE(callback.error);
    CHECK_NOTHROW(future.get());
    CHECK_FALSE(std::get<0>(*tuple));
  });
}

TEST_CASE("a handler with an executor of its own runs there, and keeps that busy until then") {
  TestLoop test("epoll");
  asio::io_context context;
  std::atomic<bool> there{false};
  async_sleep(test.loop(), 1ms, asio::bind_executor(context, [&](std::error_code) {
                there = context.get_executor().running_in_this_thread();
              }));
  std::thread thread([&] { context.run(); });
  CHECK(test.run_until([&] { return there.load(); }));
  thread.join();
}

TEST_CASE("a completion goes through the executor that its handler was bound to, whatever that looks like") {
  on_every_loop([](TestLoop& test) {
    int executed = 0;
    Outcome outcome;
    const asio::any_io_executor own = CountingExecutor(test.loop(), executed);
    async_sleep(test.loop(), Duration::zero(), asio::bind_executor(own, outcome.record()));
    CHECK(test.run_until([&] { return outcome.completions == 1; }));
    CHECK(executed == 1);
  });
}

TEST_CASE("a timeout ends an operation with timed_out") {
  on_every_loop([](TestLoop& test) {
    Outcome outcome;
    async_sleep(test.loop(), 1h, 1ms, outcome.record());
    CHECK(test.run_until([&] { return outcome.completions == 1; }));
    CHECK(outcome.error == errc::timed_out);
  });
}

TEST_CASE("a stop request ends an operation: before it begins, and from any thread") {
  on_every_loop([](TestLoop& test) {
    std::stop_source source;
    Outcome first;
    Outcome second;
    async_sleep(test.loop(), 1h, source.get_token(), first.record());
    std::thread([&] { source.request_stop(); }).join();
    async_sleep(test.loop(), 1h, source.get_token(), second.record());
    CHECK(second.completions == 0);
    CHECK(test.run_until([&] { return first.completions == 1 && second.completions == 1; }));
    CHECK(first.error == errc::cancelled);
    CHECK(second.error == errc::cancelled);
    test.settle();
    CHECK(first.completions + second.completions == 2);
  });
}

TEST_CASE("a stop request may race the result, ten thousand times") {
  TestLoop test("auto");
  constexpr int kBatches = 100;
  constexpr std::size_t kBatch = 100;
  int stopped = 0;
  int completions = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<std::stop_source> sources(kBatch);
    std::atomic<bool> begun{false};
    std::thread other([&] {
      while (!begun) std::this_thread::yield();
      for (std::stop_source& source : sources) source.request_stop();
    });
    std::size_t completed = 0;
    begun = true;
    for (const std::stop_source& source : sources) {
      // An address needs no look-up: its result comes with the next tick.
      async_resolve(test.loop(), "127.0.0.1:80", source.get_token(),
                    [&](std::error_code error, std::vector<Endpoint>) {
                      ++completed;
                      if (error) ++stopped;
                    });
      if (completed % 8 == 0) test.loop().run_once(0ms);
    }
    test.run_until([&] { return completed == kBatch; });
    other.join();
    test.settle();
    completions += static_cast<int>(completed);
  }
  CHECK(completions == kBatches * static_cast<int>(kBatch));
  MESSAGE("stopped first: " << stopped);
}

TEST_CASE("a cancellation slot works when it is emitted on the loop") {
  on_every_loop([](TestLoop& test) {
    asio::cancellation_signal signal;
    Outcome outcome;
    async_sleep(test.loop(), 1h, asio::bind_cancellation_slot(signal.slot(), outcome.record()));
    test.settle();
    signal.emit(asio::cancellation_type::terminal);
    CHECK(outcome.completions == 0);
    CHECK(test.run_until([&] { return outcome.completions == 1; }));
    CHECK(outcome.error == errc::cancelled);
    signal.emit(asio::cancellation_type::terminal);
    test.settle();
    CHECK(outcome.completions == 1);
  });
}

TEST_CASE("a cancellation slot that is emitted on another thread is noticed") {
  const std::string words = last_words([] {
    TestLoop test("epoll");
    asio::cancellation_signal signal;
    async_sleep(test.loop(), 1h, asio::bind_cancellation_slot(signal.slot(), [](std::error_code) {}));
    std::thread([&] { signal.emit(asio::cancellation_type::terminal); }).join();
  });
  CHECK(words.find("a cancellation signal is emitted on the loop") != std::string::npos);
}

TEST_CASE("awaitables are raced and joined") {
  on_every_loop([](TestLoop& test) {
    std::size_t winner = 99;
    bool done = false;
    co_spawn(LoopExecutor(test.loop()), race(test.loop(), winner), [&](std::exception_ptr failure) {
      CHECK(failure == nullptr);
      done = true;
    });
    CHECK(test.run_until([&] { return done; }));
    CHECK(winner == 1);
  });
}

TEST_CASE("a loop that stops completes what is under way with cancelled, and what comes later with stopped") {
  on_every_loop([](TestLoop& test) {
    std::error_code error;
    int destroyed = 0;
    bool done = false;
    Outcome begun_late;
    co_spawn(LoopExecutor(test.loop()), sleep_long(test.loop(), error, destroyed), [&](std::exception_ptr) {
      done = true;
      async_sleep(test.loop(), 1ms, begun_late.record());
    });
    test.settle();
    CHECK_FALSE(done);
    test.stop();
    CHECK(error == errc::cancelled);
    CHECK(destroyed == 1);
    CHECK(done);
    CHECK(begun_late.completions == 1);
    CHECK(begun_late.error == errc::stopped);

    Outcome after_end;
    async_sleep(test.loop(), 1ms, after_end.record());
    CHECK(after_end.completions == 1);
    CHECK(after_end.error == errc::stopped);
    std::future<void> elsewhere;
    std::thread([&] { elsewhere = async_sleep(test.loop(), 1ms, asio::use_future); }).join();
    CHECK_THROWS_AS(elsewhere.get(), std::system_error);
  });
}

TEST_CASE("a loop that is destroyed without a stop completes everything") {
  on_every_loop([](TestLoop& test) {
    std::error_code error;
    int destroyed = 0;
    co_spawn(LoopExecutor(test.loop()), sleep_long(test.loop(), error, destroyed), asio::detached);
    test.settle();
    test.destroy();
    CHECK(error == errc::cancelled);
    CHECK(destroyed == 1);
  });
}

TEST_CASE("a coroutine that never gives up does not keep a loop from ending") {
  EventLoopOptions options;
  options.stop_deadline = 20ms;
  TestLoop test("epoll", std::move(options));
  int rounds = 0;
  co_spawn(LoopExecutor(test.loop()), sleep_again_and_again(test.loop(), rounds), asio::detached);
  test.settle();
  test.stop();
  CHECK(rounds > 0);
}

TEST_CASE("a completion that throws is counted, and the others go on") {
  TestLoop test("epoll");
  Outcome outcome;
  async_sleep(test.loop(), 1ms, [](std::error_code) { throw std::runtime_error("thrown by a test"); });
  async_sleep(test.loop(), 1ms, outcome.record());
  CHECK(test.run_until([&] { return outcome.completions == 1; }));
  CHECK(test.loop().counters().failed_callbacks.get() == 1);
}

TEST_CASE("Asio's own timers and sockets work on a loop, by way of a thread of Asio's") {
  on_every_loop([](TestLoop& test) {
    bool on_loop = false;
    bool timer_done = false;
    std::string received;
    const LoopExecutor executor(test.loop());
    co_spawn(executor, wait_with_asios_timer(test.loop(), on_loop), [&](std::exception_ptr failure) {
      CHECK(failure == nullptr);
      timer_done = true;
    });
    CHECK(test.run_until([&] { return timer_done; }));
    CHECK(on_loop);
    bool talked = false;
    co_spawn(executor, talk_over_asios_sockets(received), [&](std::exception_ptr failure) {
      CHECK(failure == nullptr);
      talked = true;
    });
    CHECK(test.run_until([&] { return talked; }));
    CHECK(received == "hello");
  });
}

TEST_CASE("what waits for a timer of Asio's is destroyed at the loop's end, without a hang") {
  on_every_loop([](TestLoop& test) {
    int destroyed = 0;
    co_spawn(LoopExecutor(test.loop()), wait_for_ever_with_asios_timer(destroyed), asio::detached);
    test.settle();
    CHECK(destroyed == 0);
    test.stop();
    CHECK(destroyed == 1);
  });
}

TEST_CASE("an address is resolved for any token, and a name that takes too long is given up") {
  on_every_loop([](TestLoop& test) {
    std::optional<std::vector<Endpoint>> endpoints;
    std::error_code error;
    async_resolve(test.loop(), "127.0.0.1:80", [&](std::error_code result, std::vector<Endpoint> found) {
      error = result;
      endpoints = std::move(found);
    });
    CHECK_FALSE(endpoints);
    CHECK(test.run_until([&] { return endpoints.has_value(); }));
    CHECK_FALSE(error);
    REQUIRE(endpoints->size() == 1);
    CHECK(endpoints->front().to_string() == "127.0.0.1:80");

    std::future<std::vector<Endpoint>> refused = async_resolve(test.loop(), "nonsense", asio::use_future);
    CHECK(test.run_until([&] { return refused.wait_for(0s) == std::future_status::ready; }));
    CHECK_THROWS_AS(refused.get(), std::system_error);
  });
}
