// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/interop/task_scope.hpp"

#include <doctest/doctest.h>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "linkspan/interop/async_files.hpp"
#include "linkspan/interop/async_loop.hpp"
#include "tests/interop/loops.hpp"
#include "tests/support/temporary_directory.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::literals::chrono_literals::operator""h;
using std::literals::chrono_literals::operator""ms;
using std::literals::chrono_literals::operator""s;
using asio::use_awaitable;
using asio::experimental::as_tuple;

namespace {

asio::awaitable<void> nap(EventLoop& loop, int& finished) {
  co_await async_sleep(loop, 1ms, use_awaitable);
  ++finished;
}

asio::awaitable<void> sleep_long(EventLoop& loop, int& cancelled) {
  auto [error] = co_await async_sleep(loop, 1h, as_tuple(use_awaitable));
  if (error == errc::cancelled) ++cancelled;
  if (error) throw std::system_error(error);
}

asio::awaitable<void> fail(EventLoop& loop) {
  co_await async_sleep(loop, 1ms, use_awaitable);
  throw std::runtime_error("failed first");
}

asio::awaitable<void> spawn_more(TaskScope& scope, int& finished) {
  co_await async_sleep(scope.loop(), 1ms, use_awaitable);
  for (int i = 0; i < 10; ++i) scope.spawn(nap(scope.loop(), finished));
}

struct Joined {
  int completions = 0;
  std::exception_ptr failure;

  [[nodiscard]] auto record() {
    return [this](std::exception_ptr result) {
      ++completions;
      failure = std::move(result);
    };
  }
  [[nodiscard]] std::string what() const {
    try {
      if (failure != nullptr) std::rethrow_exception(failure);
    } catch (const std::exception& exception) {
      return exception.what();
    }
    return "nothing";
  }
};

asio::awaitable<void> use_file(EventLoop& loop, std::string path, std::string& text, std::uint64_t& size) {
  AsyncFile file = co_await async_open(loop, path, OpenMode::open_or_create, use_awaitable);
  Chain data(Slice::copy("some text"));
  co_await async_write_at(loop, file, std::move(data), 0, use_awaitable);
  co_await async_sync(loop, file, use_awaitable);
  size = co_await async_size(loop, file, use_awaitable);
  file = co_await async_open(loop, path, OpenMode::read, use_awaitable);
  Block into = loop.pool().allocate(4096);
  auto [block, bytes] = co_await async_read_at(loop, file, std::move(into), 4096, 5, use_awaitable);
  text = Chain(std::move(block).freeze_all(bytes)).to_string();
}

}  // namespace

TEST_CASE("a join waits for all tasks, also for those that tasks spawn") {
  on_every_loop([](TestLoop& test) {
    TaskScope scope(test.loop());
    int finished = 0;
    Joined nothing;
    async_join(scope, nothing.record());
    CHECK(test.run_until([&] { return nothing.completions == 1; }));
    scope.spawn(spawn_more(scope, finished));
    CHECK(scope.running() == 1);
    Joined joined;
    async_join(scope, joined.record());
    CHECK(test.run_until([&] { return joined.completions == 1; }));
    CHECK(finished == 10);
    CHECK(joined.what() == "nothing");
  });
}

TEST_CASE("the first error stops the other tasks, and is what a join says") {
  on_every_loop([](TestLoop& test) {
    TaskScope scope(test.loop());
    int cancelled = 0;
    for (int i = 0; i < 5; ++i) scope.spawn(sleep_long(test.loop(), cancelled));
    scope.spawn(fail(test.loop()));
    Joined joined;
    async_join(scope, joined.record());
    CHECK(test.run_until([&] { return joined.completions == 1; }));
    CHECK(joined.what() == "failed first");
    CHECK(cancelled == 5);
    CHECK(scope.stop_token().stop_requested());
  });
}

TEST_CASE("a scope is asked to stop from any thread, and that is no error") {
  on_every_loop([](TestLoop& test) {
    TaskScope scope(test.loop());
    int cancelled = 0;
    scope.spawn(sleep_long(test.loop(), cancelled));
    test.settle();
    std::thread([&] { scope.request_stop(); }).join();
    scope.spawn(sleep_long(test.loop(), cancelled));
    Joined joined;
    async_join(scope, joined.record());
    CHECK(test.run_until([&] { return joined.completions == 1; }));
    CHECK(joined.what() == "nothing");
    CHECK(cancelled == 2);
  });
}

TEST_CASE("a join may end early, and another one take its place") {
  TestLoop test("epoll");
  TaskScope scope(test.loop());
  int cancelled = 0;
  scope.spawn(sleep_long(test.loop(), cancelled));
  Joined first;
  Joined second;
  Joined third;
  async_join(scope, 1ms, first.record());
  async_join(scope, second.record());
  CHECK(test.run_until([&] { return first.completions == 1 && second.completions == 1; }));
  CHECK(first.what() == make_error_code(errc::timed_out).message());
  CHECK(second.what() == make_error_code(errc::limit_exceeded).message());
  async_join(scope, third.record());
  scope.request_stop();
  CHECK(test.run_until([&] { return third.completions == 1; }));
}

TEST_CASE("a scope that is destroyed stops its tasks, and a loop that ends as well") {
  on_every_loop([](TestLoop& test) {
    int cancelled = 0;
    std::optional<TaskScope> scope(std::in_place, test.loop());
    scope->spawn(sleep_long(test.loop(), cancelled));
    test.settle();
    SUBCASE("the scope") {
      scope.reset();
      CHECK(test.run_until([&] { return cancelled == 1; }));
    }
    SUBCASE("the loop") {
      Joined joined;
      async_join(*scope, joined.record());
      test.stop();
      CHECK(cancelled == 1);
      CHECK(joined.completions == 1);
    }
  });
}

TEST_CASE("a coroutine uses files") {
  const TemporaryDirectory directory;
  for (const std::string_view kind : transport_names()) {
    CAPTURE(kind);
    TestLoop test(kind);
    TaskScope scope(test.loop());
    std::string text;
    std::uint64_t size = 0;
    scope.spawn(use_file(test.loop(), directory.path() + "/file", text, size));
    Joined joined;
    async_join(scope, joined.record());
    CHECK(test.run_until([&] { return joined.completions == 1; }));
    CHECK(joined.what() == "nothing");
    CHECK(size == 9);
    CHECK(text == "text");
  }
}

TEST_CASE("large memory comes to a token, and is given up with it") {
  TestLoop test("epoll");
  const std::unique_ptr<LargeMemory> memory = LargeMemory::create().value_or_throw();
  std::optional<std::size_t> size;
  async_allocate(test.loop(), *memory, std::size_t{8} << 20, LargeAllocation::Place::on_loop,
                 [&](std::error_code error, Block block) {
                   CHECK_FALSE(error);
                   size = block.size();
                 });
  CHECK(test.run_until([&] { return size.has_value(); }));
  CHECK(*size >= std::size_t{8} << 20);
  std::stop_source source;
  std::error_code stopped;
  async_allocate(test.loop(), *memory, std::size_t{256} << 20, LargeAllocation::Place::on_loop,
                 source.get_token(), [&](std::error_code error, Block) { stopped = error; });
  source.request_stop();
  CHECK(test.run_until([&] { return static_cast<bool>(stopped); }));
  CHECK(stopped == errc::cancelled);
}
