// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/interop/async_channel.hpp"

#include <doctest/doctest.h>

#include <asio.hpp>
#include <asio/experimental/as_tuple.hpp>
#include <asio/experimental/deferred.hpp>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/interop/asio.hpp"
#include "tests/channel/handlers.hpp"
#include "tests/interop/pair.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::literals::chrono_literals::operator""h;
using std::literals::chrono_literals::operator""ms;
using std::literals::chrono_literals::operator""s;
using asio::use_awaitable;
using asio::experimental::as_tuple;

namespace {

using Bytes = AsyncChannel<Chain>;
using Text = AsyncChannel<std::string>;

Chain chain_of(std::string text) {
  return Chain(Slice::adopt(std::move(text)));
}

Status add_lines(Channel& channel) {
  return channel.pipeline().append<Lines>();
}

asio::awaitable<void> echo(Bytes channel) {
  for (;;) {
    Chain data = co_await async_read(channel, use_awaitable);
    co_await async_write(channel, std::move(data), use_awaitable);
  }
}

asio::awaitable<void> echo_lines(Text channel) {
  for (;;) {
    std::string line = co_await async_read(channel, use_awaitable);
    if (line == "throw") throw std::runtime_error("asked to");
    co_await async_write(channel, "<" + line + ">", use_awaitable);
  }
}

template <class T>
struct Got {
  int completions = 0;
  std::error_code error;
  T value{};

  [[nodiscard]] auto record() {
    return [this](std::error_code result, T got) {
      ++completions;
      error = result;
      value = std::move(got);
    };
  }
};

struct Done {
  int completions = 0;
  std::error_code error;

  [[nodiscard]] auto record() {
    return [this](std::error_code result) {
      ++completions;
      error = result;
    };
  }
};

asio::awaitable<void> talk(EventLoop& loop, Endpoint to, int messages, int& answered) {
  const AsyncClient<std::string> client(loop, add_lines);
  const Text channel = co_await async_connect(client, to, use_awaitable);
  for (int i = 0; i < messages; ++i) {
    const std::string line = std::to_string(i);
    co_await async_write(channel, std::string(line), use_awaitable);
    const std::string answer = co_await async_read(channel, 60s, use_awaitable);
    if (answer != "<" + line + ">") throw std::runtime_error("answered " + answer);
  }
  ++answered;
  co_await async_close(channel, use_awaitable);
}

asio::awaitable<void> read_in_parts(Bytes& channel, std::vector<std::string>& parts) {
  parts.push_back((co_await async_read_exactly(channel, 4, use_awaitable)).to_string());
  parts.push_back((co_await async_read_until(channel, "\r\n", 100, use_awaitable)).to_string());
  parts.push_back((co_await async_read_exactly(channel, 200'000, use_awaitable)).to_string());
  auto [error, none] = co_await async_read_exactly(channel, 10, as_tuple(use_awaitable));
  parts.push_back(error.message());
  parts.push_back((co_await async_read(channel, use_awaitable)).to_string());
  auto [end, nothing] = co_await async_read(channel, as_tuple(use_awaitable));
  parts.push_back(end.message());
}

}  // namespace

TEST_CASE("a thousand connections talk to coroutines, each with one of its own") {
  on_every_loop([](TestLoop& test) {
    const int connections = test.is_sim() ? 100 : 1000;
    const Server server =
        Server::start(test.loop(), listening(serve_with<std::string>(echo_lines, add_lines)))
            .value_or_throw();
    int answered = 0;
    {
      TaskScope scope(test.loop());
      for (int i = 0; i < connections; ++i) {
        scope.spawn(talk(test.loop(), server.local_endpoint(), 3, answered));
      }
      bool joined = false;
      async_join(scope, [&](std::exception_ptr failure) {
        CHECK(failure == nullptr);
        joined = true;
      });
      CHECK(test.run_until([&] { return joined; }));
    }
    CHECK(answered == connections);
    CHECK(test.run_until([&] { return server.connections() == 0; }));
  });
}

TEST_CASE("bytes are read in exact numbers, up to a delimiter, and as they come") {
  on_every_loop([](TestLoop& test) {
    PairOf<Chain> pair(test);
    std::vector<std::string> parts;
    bool done = false;
    co_spawn(LoopExecutor(test.loop()), read_in_parts(pair.here, parts), [&](std::exception_ptr failure) {
      CHECK(failure == nullptr);
      done = true;
    });
    const std::string large(200'000, 'x');
    pair.there.write(chain_of("ab"));
    test.settle();
    pair.there.write(chain_of("cdline\r"));
    test.settle();
    pair.there.write(chain_of("\n" + large + "rest"));
    pair.there.shutdown_write();
    CHECK(test.run_until([&] { return done; }));
    CHECK(parts == std::vector<std::string>{"abcd", "line\r\n", large,
                                            make_error_code(errc::truncated).message(), "rest",
                                            make_error_code(errc::end_of_stream).message()});
  });
}

TEST_CASE("a delimiter that is not within the limit is an error, and the bytes stay") {
  TestLoop test("epoll");
  PairOf<Chain> pair(test);
  Got<Chain> got;
  pair.there.write(chain_of("0123456789"));
  async_read_until(pair.here, "\n", 10, got.record());
  CHECK(test.run_until([&] { return got.completions == 1; }));
  CHECK(got.error == errc::limit_exceeded);
  async_read(pair.here, got.record());
  CHECK(test.run_until([&] { return got.completions == 2; }));
  CHECK(got.value.to_string() == "0123456789");
}

TEST_CASE("a reader that does not read holds its peer back, and loses nothing") {
  on_every_loop([](TestLoop& test) {
    InboxLimits limits;
    limits.max_bytes = 10'000;
    PairOf<Chain> pair(test, nullptr, limits);
    constexpr std::size_t kSize = std::size_t{32} << 20;
    Done written;
    async_write(pair.there, chain_of(std::string(kSize, 'y')), written.record());
    test.settle();
    CHECK(written.completions == 0);
    std::size_t received = 0;
    while (received < kSize) {
      Got<Chain> got;
      async_read(pair.here, got.record());
      if (!test.run_until([&] { return got.completions == 1; })) break;
      REQUIRE_FALSE(got.error);
      CHECK(got.value.size() < kSize / 4);  // the limit, and what a transport had received by then
      received += got.value.size();
    }
    CHECK(received == kSize);
    CHECK(test.run_until([&] { return written.completions == 1; }));
    CHECK_FALSE(written.error);
  });
}

TEST_CASE("messages wait in order, up to the limit, and a decoder pauses") {
  on_every_loop([](TestLoop& test) {
    InboxLimits limits;
    limits.max_messages = 4;
    PairOf<std::string> pair(test, add_lines, limits);
    for (int i = 0; i < 100; ++i) pair.there.write(std::to_string(i));
    test.settle();
    for (int i = 0; i < 100; ++i) {
      Got<std::string> got;
      async_read(pair.here, got.record());
      CHECK(got.completions == 0);
      REQUIRE(test.run_until([&] { return got.completions == 1; }));
      CHECK(got.value == std::to_string(i));
    }
  });
}

TEST_CASE("a second read at a time is refused, and the first goes on") {
  TestLoop test("epoll");
  PairOf<std::string> pair(test, add_lines);
  Got<std::string> first;
  Got<std::string> second;
  async_read(pair.here, first.record());
  async_read(pair.here, second.record());
  CHECK(test.run_until([&] { return second.completions == 1; }));
  CHECK(second.error == errc::limit_exceeded);
  CHECK(first.completions == 0);
  pair.there.write(std::string("hello"));
  CHECK(test.run_until([&] { return first.completions == 1; }));
  CHECK(first.value == "hello");
}

TEST_CASE("a read that ends early takes nothing: by timeout, stop token and signal") {
  on_every_loop([](TestLoop& test) {
    PairOf<std::string> pair(test, add_lines);
    Got<std::string> got;
    async_read(pair.here, 1ms, got.record());
    CHECK(test.run_until([&] { return got.completions == 1; }));
    CHECK(got.error == errc::timed_out);

    std::stop_source source;
    async_read(pair.here, source.get_token(), got.record());
    test.settle();
    std::thread([&] { source.request_stop(); }).join();
    CHECK(test.run_until([&] { return got.completions == 2; }));
    CHECK(got.error == errc::cancelled);

    asio::cancellation_signal signal;
    async_read(pair.here, asio::bind_cancellation_slot(signal.slot(), got.record()));
    pair.there.write(std::string("late"));
    signal.emit(asio::cancellation_type::terminal);
    CHECK(test.run_until([&] { return got.completions == 3; }));
    CHECK(got.error == errc::cancelled);

    async_read(pair.here, got.record());
    CHECK(test.run_until([&] { return got.completions == 4; }));
    CHECK(got.value == "late");
  });
}

TEST_CASE("operations take futures and deferred, also on other threads") {
  TestLoop test("auto");
  PairOf<std::string> pair(test, add_lines);
  std::string received;
  std::thread other([&] {
    async_write(pair.there, std::string("from afar"), asio::use_future).get();
    async_flush(pair.there, asio::use_future).get();
    received = async_read(pair.here, asio::use_future).get();
    async_close(pair.here, asio::use_future).get();
  });
  std::atomic<bool> joined{false};
  std::thread joiner([&] {
    other.join();
    joined = true;
  });
  CHECK(test.run_until([&] { return joined.load(); }));
  joiner.join();
  CHECK(received == "from afar");
  Got<std::string> end;
  auto operation = async_read(pair.there, asio::experimental::deferred);
  std::move(operation)(end.record());
  CHECK(test.run_until([&] { return end.completions == 1; }));
  CHECK(end.error == errc::end_of_stream);
}

TEST_CASE("a channel that breaks in the middle completes what waits, once") {
  on_every_loop([](TestLoop& test) {
    PairOf<Chain> pair(test);
    Got<Chain> read;
    Done write;
    Done flush;
    async_read(pair.here, read.record());
    async_write(pair.here, chain_of(std::string(std::size_t{32} << 20, 'z')), write.record());
    async_flush(pair.here, flush.record());
    test.settle();
    SUBCASE("reset by the peer") {
      pair.there.abort();
    }
    SUBCASE("aborted here") {
      pair.here.abort();
    }
    SUBCASE("its handle destroyed, and the peer's") {
      pair.here = {};
      pair.there.abort();
    }
    CHECK(test.run_until([&] { return read.completions + write.completions + flush.completions == 3; }));
    CHECK(read.error);
    CHECK(write.error);
    CHECK(flush.error);
    if (pair.here) {
      Done late;
      async_write(pair.here, chain_of("late"), late.record());
      CHECK(late.completions == 0);
      CHECK(test.run_until([&] { return late.completions == 1; }));
      CHECK(late.error);
    }
    test.settle();
    CHECK(read.completions + write.completions + flush.completions == 3);
  });
}

TEST_CASE("a loop that stops in the middle completes what waits, once") {
  on_every_loop([](TestLoop& test) {
    std::optional<PairOf<Chain>> pair(std::in_place, test);
    Got<Chain> read;
    Done write;
    Done close;
    Got<Bytes> accept;
    async_read(pair->here, read.record());
    async_write(pair->here, chain_of(std::string(std::size_t{32} << 20, 'z')), write.record());
    async_close(pair->there, close.record());
    async_accept(*pair->acceptor, accept.record());
    test.settle();
    const int before = read.completions;
    test.stop();
    CHECK(before <= 1);
    CHECK(read.completions == 1);
    CHECK(read.error);
    CHECK(write.completions == 1);
    CHECK(close.completions == 1);
    CHECK(accept.completions == 1);
    CHECK(accept.error == errc::cancelled);
    pair.reset();
  });
}

TEST_CASE("coroutines of connections end with their loop, and leave nothing behind") {
  on_every_loop([](TestLoop& test) {
    std::optional<Server> server(
        Server::start(test.loop(), listening(serve_with<Chain>(echo))).value_or_throw());
    Got<Bytes> connected;
    const AsyncClient<Chain> client(test.loop());
    async_connect(client, server->local_endpoint(), connected.record());
    CHECK(test.run_until([&] { return connected.completions == 1 && server->connections() == 1; }));
    connected.value = {};
    SUBCASE("that stops") {
      test.stop();
    }
    SUBCASE("after the server") {}
    server.reset();
  });
}

TEST_CASE("a server that drains lets a coroutine answer what it has, and ends its reads") {
  on_every_loop([](TestLoop& test) {
    Server server = Server::start(test.loop(), listening(serve_with<std::string>(echo_lines, add_lines)))
                        .value_or_throw();
    Got<Text> connected;
    async_connect(AsyncClient<std::string>(test.loop(), add_lines), server.local_endpoint(),
                  connected.record());
    Got<std::string> got;
    CHECK(test.run_until([&] { return connected.completions == 1; }));
    connected.value.write(std::string("last"));
    async_read(connected.value, got.record());
    CHECK(test.run_until([&] { return got.completions == 1; }));
    bool stopped = false;
    server.stop(1h, [&] { stopped = true; });
    async_read(connected.value, got.record());
    CHECK(test.run_until([&] { return got.completions == 2; }));
    CHECK(got.error == errc::end_of_stream);
    connected.value = {};
    CHECK(test.run_until([&] { return stopped; }));
  });
}

TEST_CASE("a coroutine that throws closes its channel") {
  TestLoop test("epoll");
  const Server server =
      Server::start(test.loop(), listening(serve_with<std::string>(echo_lines, add_lines))).value_or_throw();
  Got<Text> connected;
  async_connect(AsyncClient<std::string>(test.loop(), add_lines), server.local_endpoint(),
                connected.record());
  CHECK(test.run_until([&] { return connected.completions == 1; }));
  connected.value.write(std::string("throw"));
  Got<std::string> got;
  async_read(connected.value, got.record());
  CHECK(test.run_until([&] { return got.completions == 1; }));
  CHECK(got.error);
}

TEST_CASE("connecting fails with the reason, and ends early when it is told to") {
  on_every_loop([](TestLoop& test) {
    const Endpoint nobody = [&] {
      const auto acceptor = AsyncAcceptor<Chain>::start(test.loop(), listening()).value_or_throw();
      return acceptor.local_endpoint();
    }();
    test.settle();
    const AsyncClient<Chain> client(test.loop());
    Got<Bytes> refused;
    async_connect(client, nobody, refused.record());
    CHECK(test.run_until([&] { return refused.completions == 1; }));
    CHECK(refused.error);
    CHECK_FALSE(refused.value);
    Got<Bytes> stopped;
    std::stop_source source;
    async_connect(client, nobody, source.get_token(), stopped.record());
    source.request_stop();
    CHECK(test.run_until([&] { return stopped.completions == 1; }));
    CHECK(stopped.error);
    Got<Bytes> named;
    async_connect(client, std::string("127.0.0.1:0nonsense"), named.record());
    CHECK(test.run_until([&] { return named.completions == 1; }));
    CHECK(named.error);
  });
}

TEST_CASE("connections wait for async_accept up to a number, and further ones are closed") {
  TestLoop test("epoll");
  auto acceptor = AsyncAcceptor<Chain>::start(test.loop(), listening(), {}, 1).value_or_throw();
  const AsyncClient<Chain> client(test.loop());
  Got<Bytes> first;
  Got<Bytes> second;
  async_connect(client, acceptor.local_endpoint(), first.record());
  CHECK(test.run_until([&] { return first.completions == 1 && acceptor.connections() == 1; }));
  async_connect(client, acceptor.local_endpoint(), second.record());
  CHECK(test.run_until([&] { return second.completions == 1; }));
  Got<Chain> closed;
  if (second.value) {
    async_read(second.value, closed.record());
    CHECK(test.run_until([&] { return closed.completions == 1; }));
    CHECK(closed.error);
  }
  Got<Bytes> accepted;
  async_accept(acceptor, accepted.record());
  CHECK(accepted.completions == 0);
  CHECK(test.run_until([&] { return accepted.completions == 1; }));
  CHECK_FALSE(accepted.error);
  async_accept(acceptor, accepted.record());
  test.settle();
  acceptor.stop(1s);
  CHECK(test.run_until([&] { return accepted.completions == 2; }));
  CHECK(accepted.error == errc::cancelled);
}

TEST_CASE("a channel drains through its handlers, and closes") {
  on_every_loop([](TestLoop& test) {
    PairOf<std::string> pair(test, add_lines);
    Done drained;
    async_drain(pair.here, 5s, drained.record());
    Got<std::string> got;
    async_read(pair.there, got.record());
    CHECK(test.run_until([&] { return got.completions == 1; }));
    CHECK(got.error == errc::end_of_stream);
    pair.there = {};
    CHECK(test.run_until([&] { return drained.completions == 1; }));
    CHECK_FALSE(drained.error);
  });
}
