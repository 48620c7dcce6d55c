// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Operations with each kind of token, and coroutines whose scope or loop ends while they wait in one.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/deferred.hpp>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/interop/asio.hpp"
#include "linkspan/loop/loop_group.hpp"
#include "tests/interop/pair.hpp"
#include "tests/support/temporary_directory.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::literals::chrono_literals::operator""h;
using std::literals::chrono_literals::operator""ms;
using asio::use_awaitable;
using asio::experimental::as_tuple;
using asio::experimental::deferred;

namespace {

using Bytes = AsyncChannel<Chain>;

Chain chain_of(std::string text) {
  return Chain(Slice::adopt(std::move(text)));
}

bool exists(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0;
}

Status collecting(Channel& channel) {
  return channel.pipeline().append<Collector<Chain>>();
}

// Runs the loop until another thread, which waits for futures, is done.
void with_other_thread(TestLoop& test, const std::function<void()>& function) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    function();
    done = true;
  });
  CHECK(test.run_until([&] { return done.load(); }));
  other.join();
}

void run(TestLoop& test, asio::awaitable<void> task) {
  std::optional<std::exception_ptr> end;
  co_spawn(LoopExecutor(test.loop()), std::move(task), [&](std::exception_ptr failure) { end = failure; });
  CHECK(test.run_until([&] { return end.has_value(); }));
  if (end && *end != nullptr) std::rethrow_exception(*end);
}

asio::awaitable<void> use_paths(EventLoop& loop, std::string root, std::vector<std::string>& log) {
  co_await async_create_directories(loop, root + "/a/b", use_awaitable);
  AsyncFile file = co_await async_open(loop, root + "/a/b/one", OpenMode::open_or_create, use_awaitable);
  co_await async_rename(loop, root + "/a/b/one", root + "/a/b/two", use_awaitable);
  co_await async_sync_directory(loop, root + "/a/b", use_awaitable);
  log.push_back(exists(root + "/a/b/two") && !exists(root + "/a/b/one") ? "renamed" : "not renamed");
  co_await async_remove(loop, root + "/a/b/two", use_awaitable);
  log.push_back(exists(root + "/a/b/two") ? "not removed" : "removed");
  auto [rename] = co_await async_rename(loop, root + "/none", root + "/other", as_tuple(use_awaitable));
  auto [remove] = co_await async_remove(loop, root + "/none", as_tuple(use_awaitable));
  auto [sync] = co_await async_sync_directory(loop, root + "/none", as_tuple(use_awaitable));
  for (const std::error_code error : {rename, remove, sync}) {
    log.emplace_back(error == std::errc::no_such_file_or_directory ? "none" : error.message());
  }
  auto later = async_create_directories(loop, root + "/later", deferred);
  log.emplace_back(exists(root + "/later") ? "too early" : "not yet");
  co_await std::move(later)(use_awaitable);
  log.emplace_back(exists(root + "/later") ? "made" : "not made");
}

asio::awaitable<void> connect_plainly(EventLoop& loop, Endpoint to, Endpoint nobody, int& connected) {
  const Client client(loop, collecting);
  const ChannelRef first = co_await async_connect(loop, client, to, use_awaitable);
  if (first.alive()) ++connected;
  auto [error, none] = co_await async_connect(loop, client, nobody, as_tuple(use_awaitable));
  if (error && !none.alive()) ++connected;
  auto later = async_connect(loop, client, std::vector{nobody, to}, deferred);
  const ChannelRef third = co_await std::move(later)(use_awaitable);
  if (third.alive()) ++connected;
  first.abort();
  third.abort();
}

}  // namespace

TEST_CASE("directories are made, files renamed and removed, for each kind of token") {
  on_every_loop([](TestLoop& test) {
    const TemporaryDirectory directory;
    std::vector<std::string> log;
    run(test, use_paths(test.loop(), directory.path(), log));
    CHECK(log == std::vector<std::string>{"renamed", "removed", "none", "none", "none", "not yet", "made"});
    if (test.is_sim()) return;
    with_other_thread(test, [&] {
      const std::string path = directory.path() + "/x";
      async_create_directories(test.loop(), path, asio::use_future).get();
      async_rename(test.loop(), path, path + "y", asio::use_future).get();
      async_sync_directory(test.loop(), path + "y", asio::use_future).get();
      CHECK_THROWS_AS(async_remove(test.loop(), path, asio::use_future).get(), std::system_error);
    });
    std::stop_source source;
    std::error_code stopped;
    async_remove(test.loop(), "/none", source.get_token(), [&](std::error_code error) { stopped = error; });
    source.request_stop();
    CHECK(test.run_until([&] { return static_cast<bool>(stopped); }));
  });
}

TEST_CASE("a callback's client connects for each kind of token, also on other loops") {
  on_every_loop([](TestLoop& test) {
    ServerOptions options = listening();
    options.initializer = collecting;
    const Server server = Server::start(test.loop(), options).value_or_throw();
    const Endpoint nobody = Server::start(test.loop(), options).value_or_throw().local_endpoint();
    test.settle();
    int connected = 0;
    run(test, connect_plainly(test.loop(), server.local_endpoint(), nobody, connected));
    CHECK(connected == 3);
    if (test.is_sim()) return;
    const auto group = LoopGroup::create(transport_engine("auto").value_or_throw()).value_or_throw();
    const Client elsewhere(*group, collecting);
    with_other_thread(test, [&] {
      const ChannelRef channel =
          async_connect(test.loop(), elsewhere, server.local_endpoint(), asio::use_future).get();
      CHECK(channel.alive());
      channel.abort();
      CHECK_THROWS_AS(async_connect(test.loop(), elsewhere, nobody, asio::use_future).get(),
                      std::system_error);
    });
    std::error_code stopped;
    asio::cancellation_signal signal;
    async_connect(test.loop(), elsewhere, server.local_endpoint(),
                  asio::bind_cancellation_slot(signal.slot(),
                                               [&](std::error_code error, ChannelRef) { stopped = error; }));
    signal.emit(asio::cancellation_type::terminal);
    CHECK(test.run_until([&] { return static_cast<bool>(stopped); }));
    CHECK(stopped == errc::cancelled);
    CHECK(test.run_until([&] { return server.connections() == 0; }));
  });
}

TEST_CASE("a write that ends early before it was begun is not sent, and its memory comes back at once") {
  on_every_loop([](TestLoop& test) {
    Pair pair(test);
    std::vector<std::string> ends;
    const auto end = [&](const std::string& name) {
      return [&, name](std::error_code error) { ends.push_back(name + " " + error.message()); };
    };
    asio::cancellation_signal signal;
    std::stop_source source;
    const auto owner = std::make_shared<int>();
    static const char content[] = "borrowed";
    async_write(pair.here, chain_of("a"), end("a"));
    async_write(pair.here, Chain(Slice::borrow(std::as_bytes(std::span(content, 8)), [owner] {})),
                asio::bind_cancellation_slot(signal.slot(), end("b")));
    async_write(pair.here, chain_of("c"), 1h, end("c"));
    async_write(pair.here, chain_of("d"), source.get_token(), end("d"));
    async_flush(pair.here, end("flush"));
    signal.emit(asio::cancellation_type::terminal);
    CHECK(test.run_until([&] { return ends.size() == 5; }));
    CHECK(ends.front() == "b " + make_error_code(errc::cancelled).message());
    CHECK(ends.back() == "flush " + std::error_code().message());
    CHECK(owner.use_count() == 1);
    source.request_stop();  // too late
    std::string read;
    while (read.size() < 3) {
      bool completed = false;
      async_read(pair.there, [&](std::error_code, const Chain& data) {
        completed = true;
        read += data.to_string();
      });
      REQUIRE(test.run_until([&] { return completed; }));
    }
    CHECK(read == "acd");
    CHECK(ends.size() == 5);
  });
}

namespace {

// Counts the frames of coroutines that are there.
struct Frame {
  int& alive;
  explicit Frame(int& alive_in) : alive(alive_in) { ++alive; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() { --alive; }
};

struct Places {
  TestLoop& test;
  Pair& pair;
  AsyncFile& file;
  TaskScope& inner;
  std::string root;
  int alive = 0;
};

asio::awaitable<void> wait_in(Places& places, int operation) {
  const Frame frame(places.alive);
  EventLoop& loop = places.test.loop();
  const Bytes& here = places.pair.here;
  const Client client(loop, collecting);
  const AsyncClient<Chain> async_client(loop);
  const Endpoint to = places.pair.acceptor->local_endpoint();
  switch (operation) {
    case 0: co_await async_sleep(loop, 1h, use_awaitable); break;
    case 1: co_await async_resolve(loop, "here:1", as_tuple(use_awaitable)); break;
    case 2: co_await async_read_exactly(here, 1'000'000, use_awaitable); break;
    case 3: co_await async_write(here, chain_of(std::string(1'000'000, 'x')), use_awaitable); break;
    case 4: co_await async_flush(here, use_awaitable); break;
    case 5: co_await async_accept(*places.pair.acceptor, use_awaitable); break;
    case 6: co_await async_connect(async_client, to, use_awaitable); break;
    case 7: (co_await async_connect(loop, client, to, use_awaitable)).abort(); break;
    case 8: co_await async_join(places.inner, use_awaitable); break;
    case 9: co_await async_size(loop, places.file, use_awaitable); break;
    case 10: {
      Chain data = chain_of("x");
      co_await async_write_at(loop, places.file, std::move(data), 0, use_awaitable);
      break;
    }
    case 11: co_await async_sync(loop, places.file, use_awaitable); break;
    case 12: co_await async_create_directories(loop, places.root + "/d", use_awaitable); break;
    default: co_await async_rename(loop, places.root + "/none", places.root, as_tuple(use_awaitable));
  }
  // Those that do not wait for long.
  if (!loop.stopping()) co_await async_sleep(loop, 1h, use_awaitable);
}
constexpr int kOperations = 14;

asio::awaitable<void> throw_later(EventLoop& loop, int& alive) {
  const Frame frame(alive);
  co_await async_sleep(loop, 1ms, use_awaitable);
  throw std::runtime_error("a child's");
}

}  // namespace

TEST_CASE("children that wait in any operation end with their scope or their loop, and free their frames") {
  on_every_loop([](TestLoop& test) {
    const TemporaryDirectory directory;
    std::optional<AsyncFile> file;
    async_open(test.loop(), directory.path() + "/file", OpenMode::open_or_create,
               [&](std::error_code, AsyncFile opened) { file = std::move(opened); });
    REQUIRE(test.run_until([&] { return file.has_value(); }));
    std::optional<Pair> pair(std::in_place, test);
    std::optional<TaskScope> inner(std::in_place, test.loop());
    std::optional<TaskScope> scope(std::in_place, test.loop());
    Places places{test, *pair, *file, *inner, directory.path()};
    const auto sleeper = [](EventLoop& loop) -> asio::awaitable<void> {
      co_await async_sleep(loop, 1h, use_awaitable);
    };
    inner->spawn(sleeper(test.loop()));
    for (int operation = 0; operation < kOperations; ++operation) {
      scope->spawn(wait_in(places, operation));
    }
    test.turn();
    CHECK(places.alive == kOperations);
    bool joined = false;
    std::exception_ptr failure;
    async_join(*scope, [&](std::exception_ptr result) {
      joined = true;
      failure = std::move(result);
    });
    SUBCASE("cancelled") {
      scope->request_stop();
      CHECK(test.run_until([&] { return joined; }));
      CHECK_NOTHROW(if (failure != nullptr) std::rethrow_exception(failure));
      CHECK(places.alive == 0);
    }
    SUBCASE("a child that throws") {
      scope->spawn(throw_later(test.loop(), places.alive));
      CHECK(test.run_until([&] { return joined; }));
      CHECK(failure != nullptr);
      CHECK(places.alive == 0);
    }
    SUBCASE("the scope is destroyed") {
      scope.reset();
      CHECK(test.run_until([&] { return places.alive == 0; }));
    }
    SUBCASE("the loop stops") {
      test.stop();
      CHECK(joined);
      CHECK(places.alive == 0);
    }
    inner->request_stop();
    scope.reset();
    inner.reset();
    pair.reset();
    file.reset();
  });
}
