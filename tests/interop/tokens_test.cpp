// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Every operation with every kind of token: the table below lists the operations, and each has to compile and
// to complete with each token, with and without options.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <doctest/doctest.h>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/deferred.hpp>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/interop/asio.hpp"
#include "tests/interop/loops.hpp"
#include "tests/interop/pair.hpp"
#include "tests/support/temporary_directory.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::literals::chrono_literals::operator""h;
using std::literals::chrono_literals::operator""s;
using asio::use_awaitable;
using asio::experimental::as_tuple;
using asio::experimental::deferred;

namespace {

Chain chain_of(std::string text) {
  return Chain(Slice::adopt(std::move(text)));
}

// What the operations are begun on.
struct Things {
  TestLoop& test;
  TemporaryDirectory directory;
  std::optional<Pair> pair;
  AsyncClient<Chain> async_client;
  Client client;
  AsyncFile file;
  TaskScope scope;
  std::unique_ptr<LargeMemory> memory = LargeMemory::create().value_or_throw();

  explicit Things(TestLoop& test_in)
      : test(test_in),
        async_client(test.loop()),
        client(test.loop(), [](Channel& channel) { return channel.pipeline().append<Collector<Chain>>(); }),
        scope(test.loop()) {
    pair.emplace(test);
    directory.write("file", "contents");
    async_open(loop(), directory.file("file"), OpenMode::open_or_create,
               [&](std::error_code, AsyncFile opened) { file = std::move(opened); });
    REQUIRE(test.run_until([&] { return static_cast<bool>(file); }));
  }

  [[nodiscard]] EventLoop& loop() const { return test.loop(); }
  [[nodiscard]] Endpoint endpoint() const { return pair->acceptor->local_endpoint(); }
  void new_pair() {
    pair.reset();
    pair.emplace(test);
  }
};

// `prepare` sees to it that the operation completes without an error; `begin` takes a token, or options and
// one.
template <class Prepare, class Begin>
struct Row {
  const char* name;
  Prepare prepare;
  Begin begin;
};
template <class Prepare, class Begin>
Row(const char*, Prepare, Begin) -> Row<Prepare, Begin>;

const auto nothing = [](Things&) {};
const auto some_bytes = [](Things& things) { things.pair->there.write(chain_of("abcdefgh\n")); };
const auto new_pair = [](Things& things) { things.new_pair(); };
// Whose other side has ended, so that closing does not linger.
const auto ending_pair = [](Things& things) {
  things.new_pair();
  things.pair->there.shutdown_write();
};

#define BEGIN(call) [](Things& things, auto&&... rest) { return call; }
#define REST std::forward<decltype(rest)>(rest)...

const std::tuple kOperations{
    Row{"async_sleep", nothing, BEGIN(async_sleep(things.loop(), Duration::zero(), REST))},
    Row{"async_resolve", nothing, BEGIN(async_resolve(things.loop(), "127.0.0.1:80", REST))},
    Row{"async_read", some_bytes, BEGIN(async_read(things.pair->here, REST))},
    Row{"async_read_exactly", some_bytes, BEGIN(async_read_exactly(things.pair->here, 4, REST))},
    Row{"async_read_until", some_bytes, BEGIN(async_read_until(things.pair->here, "\n", 1000, REST))},
    Row{"async_write", nothing, BEGIN(async_write(things.pair->here, chain_of("text"), REST))},
    Row{"async_flush", nothing, BEGIN(async_flush(things.pair->here, REST))},
    Row{"async_close", ending_pair, BEGIN(async_close(things.pair->here, 1s, REST))},
    Row{"async_drain", ending_pair, BEGIN(async_drain(things.pair->here, 1s, REST))},
    Row{"async_accept",
        [](Things& things) {
          things.new_pair();
          async_connect(things.async_client, things.endpoint(), [](std::error_code, AsyncChannel<Chain>) {});
        },
        BEGIN(async_accept(*things.pair->acceptor, REST))},
    Row{"async_connect", new_pair, BEGIN(async_connect(things.async_client, things.endpoint(), REST))},
    Row{"async_connect, of a Client", new_pair,
        BEGIN(async_connect(things.loop(), things.client, things.endpoint(), REST))},
    Row{"async_join", nothing, BEGIN(async_join(things.scope, REST))},
    Row{"async_open", nothing,
        BEGIN(async_open(things.loop(), things.directory.file("file"), OpenMode::read, REST))},
    Row{"async_rename", [](Things& things) { things.directory.write("old", "x"); },
        BEGIN(async_rename(things.loop(), things.directory.file("old"), things.directory.file("new"), REST))},
    Row{"async_remove", [](Things& things) { things.directory.write("old", "x"); },
        BEGIN(async_remove(things.loop(), things.directory.file("old"), REST))},
    Row{"async_create_directories", nothing,
        BEGIN(async_create_directories(things.loop(), things.directory.file("a/b"), REST))},
    Row{"async_sync_directory", nothing,
        BEGIN(async_sync_directory(things.loop(), things.directory.path(), REST))},
    Row{"async_list_directory", nothing,
        BEGIN(async_list_directory(things.loop(), things.directory.path(), ListOptions(), REST))},
    Row{"async_read_at", nothing,
        BEGIN(async_read_at(things.loop(), things.file, things.loop().pool().allocate(4096), 4, 0, REST))},
    Row{"async_write_at", nothing,
        BEGIN(async_write_at(things.loop(), things.file, chain_of("text"), 0, REST))},
    Row{"async_sync", nothing, BEGIN(async_sync(things.loop(), things.file, REST))},
    Row{"async_size", nothing, BEGIN(async_size(things.loop(), things.file, REST))},
    Row{"async_allocate", nothing,
        BEGIN(async_allocate(things.loop(), *things.memory, std::size_t{4} << 20,
                             LargeAllocation::Place::on_loop, REST))},
};

#undef REST
#undef BEGIN

template <class First>
bool succeeded(const First& first) {
  return !first;  // an error_code or an exception_ptr
}

template <class Begin>
asio::awaitable<void> await(Things& things, const Begin& begin) {
  co_await begin(things, use_awaitable);
}
template <class Begin>
asio::awaitable<void> await_with_options(Things& things, const Begin& begin) {
  co_await begin(things, AsyncOptions(1h), use_awaitable);
}
template <class Begin>
asio::awaitable<void> await_tuple(Things& things, const Begin& begin) {
  auto result = co_await begin(things, as_tuple(use_awaitable));
  CHECK(succeeded(std::get<0>(result)));
}
template <class Begin>
asio::awaitable<void> await_deferred(Things& things, const Begin& begin) {
  auto later = begin(things, deferred);
  co_await async_sleep(things.loop(), Duration::zero(), use_awaitable);
  co_await std::move(later)(use_awaitable);
}

void run(Things& things, asio::awaitable<void> task) {
  std::optional<std::exception_ptr> end;
  co_spawn(LoopExecutor(things.loop()), std::move(task), [&](std::exception_ptr failure) { end = failure; });
  REQUIRE(things.test.run_until([&] { return end.has_value(); }));
  CHECK_NOTHROW(if (*end != nullptr) std::rethrow_exception(*end));
}

template <class Operation>
void use_each_token(Things& things, const Operation& row) {
  CAPTURE(row.name);
  int completions = 0;
  const auto callback = [&](const auto& first, auto&&...) {
    ++completions;
    CHECK(succeeded(first));
  };
  const auto completed = [&](int count) {
    CHECK(things.test.run_until([&] { return completions == count; }));
    things.test.settle();
    CHECK(completions == count);
  };

  row.prepare(things);
  row.begin(things, callback);
  CHECK(completions == 0);
  completed(1);
  row.prepare(things);
  row.begin(things, AsyncOptions(1h), callback);
  CHECK(completions == 1);
  completed(2);

  row.prepare(things);
  run(things, await(things, row.begin));
  row.prepare(things);
  run(things, await_with_options(things, row.begin));
  row.prepare(things);
  run(things, await_tuple(things, row.begin));
  row.prepare(things);
  run(things, await_deferred(things, row.begin));

  row.prepare(things);
  auto future = row.begin(things, asio::use_future);
  REQUIRE(things.test.run_until(
      [&] { return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
  CHECK_NOTHROW(static_cast<void>(future.get()));
}

asio::awaitable<void> write_and_wait(const AsyncChannel<Chain>& channel, Chain message, AsyncOptions options,
                                     std::error_code& error) {
  try {
    co_await async_write(channel, std::move(message), options, use_awaitable);
  } catch (const std::system_error& failure) {
    error = failure.code();
    throw;
  }
}

}  // namespace

TEST_CASE("each operation completes once with each kind of token") {
  on_every_loop([](TestLoop& test) {
    Things things(test);
    std::apply([&](const auto&... rows) { (use_each_token(things, rows), ...); }, kOperations);
  });
}

TEST_CASE("a coroutine whose write waits for room is cancelled, and the write is not sent") {
  on_every_loop([](TestLoop& test) {
    Pair pair(test);
    static const std::string large(std::size_t{64} << 20, 'x');
    pair.here.write(Chain(Slice::immortal(large)));
    test.settle();
    REQUIRE_FALSE(pair.here.channel()->writable());
    const auto owner = std::make_shared<int>();
    static const char content[] = "borrowed";
    Chain message(Slice::borrow(std::as_bytes(std::span(content, 8)), [owner] {}));
    std::stop_source source;
    asio::cancellation_signal signal;
    AsyncOptions options;
    std::error_code error;
    bool ended = false;
    const auto end = [&](const std::exception_ptr& failure) {
      ended = true;
      CHECK(failure != nullptr);
    };
    SUBCASE("by a stop token") {
      options.stop = source.get_token();
    }
    SUBCASE("by a signal") {}
    co_spawn(LoopExecutor(test.loop()), write_and_wait(pair.here, std::move(message), options, error),
             asio::bind_cancellation_slot(signal.slot(), end));
    test.settle();
    CHECK_FALSE(ended);
    if (options.stop.stop_possible()) {
      source.request_stop();
    } else {
      signal.emit(asio::cancellation_type::terminal);
    }
    CHECK(test.run_until([&] { return ended; }));
    CHECK(error == errc::cancelled);
    CHECK(test.run_until([&] { return owner.use_count() == 1; }));
    CHECK(pair.here.channel()->queued_bytes() <= large.size());
    pair.here.abort();
  });
}
