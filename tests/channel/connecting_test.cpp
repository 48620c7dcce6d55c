// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Connecting again and again, connections that are used again, and what servers accept; each on every
// transport, with one loop on the test's own thread, and but for the last also on the simulated network.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linkspan/channel/connection_pool.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/own_loop.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

class EchoBytes final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

class Silent final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
};

Status silent(Channel& channel) {
  return channel.pipeline().append<Silent>();
}

ServerOptions echo_options(const Endpoint& endpoint = loopback()) {
  ServerOptions options;
  options.endpoint = endpoint;
  options.initializer = [](Channel& channel) { return channel.pipeline().append<EchoBytes>(); };
  return options;
}

// Where nobody listens.
Endpoint closed_port(EventLoop& loop) {
  return Server::start(loop, echo_options()).value_or_throw().local_endpoint();
}

RetryOptions quick_retries(std::size_t attempts) {
  RetryOptions options;
  options.backoff.attempts = attempts;
  options.backoff.first_delay = milliseconds(1);
  options.backoff.max_delay = milliseconds(5);
  return options;
}

}  // namespace

TEST_CASE("delays grow to their cap, chance shortens them, and the same seed gives the same delays") {
  BackoffOptions options;
  options.attempts = 6;
  options.first_delay = seconds(1);
  options.max_delay = seconds(5);
  options.jitter = 0;
  Backoff plain(options);
  std::vector<Duration> delays;
  while (const auto delay = plain.next()) delays.push_back(*delay);
  CHECK(delays == std::vector<Duration>{seconds(1), seconds(2), seconds(4), seconds(5), seconds(5)});

  options.jitter = 0.5;
  options.seed = 7;
  Backoff first(options);
  Backoff second(options);
  options.seed = 8;
  Backoff other(options);
  bool differs = false;
  for (const Duration delay : delays) {
    const Duration drawn = first.next().value();
    CHECK(drawn == second.next().value());
    CHECK(drawn <= delay);
    CHECK(drawn >= delay / 2);
    differs |= drawn != other.next().value();
  }
  CHECK(differs);
  CHECK_FALSE(first.next());
}

TEST_CASE("connecting is tried again until somebody listens") {
  on_every_own_loop([](EventLoop& loop) {
    const Endpoint endpoint = closed_port(loop);
    turn(loop);
    std::optional<std::error_code> end;
    ChannelRef channel;
    RetryingConnect connect(loop, silent, {}, std::vector{endpoint}, quick_retries(0),
                            [&](std::error_code error, ChannelRef opened) {
                              end = error;
                              channel = std::move(opened);
                            });
    CHECK_FALSE(end);
    run_until(loop, [&] { return connect.attempts() == 3; });
    const Server server = Server::start(loop, echo_options(endpoint)).value_or_throw();
    run_until(loop, [&] { return end.has_value(); });
    CHECK(*end == std::error_code());
    CHECK(channel.alive());
    channel.abort();
    run_until(loop, [&] { return server.connections() == 0 && !channel.alive(); });
  });
}

TEST_CASE("connecting ends after so many attempts, after its deadline, or when it is destroyed") {
  on_every_own_loop([](EventLoop& loop) {
    const Endpoint endpoint = closed_port(loop);
    turn(loop);
    std::vector<std::error_code> ends;
    const auto keep = [&](std::error_code error, const ChannelRef& channel) {
      ends.push_back(error);
      CHECK_FALSE(channel.alive());
    };
    {
      RetryingConnect connect(loop, silent, {}, std::vector{endpoint}, quick_retries(3), keep);
      run_until(loop, [&] { return !ends.empty(); });
      CHECK(connect.attempts() == 3);
      CHECK(ends.back() == std::errc::connection_refused);
    }
    {
      RetryOptions options = quick_retries(0);
      options.deadline = milliseconds(20);
      const RetryingConnect connect(loop, silent, {}, std::vector{endpoint}, options, keep);
      run_until(loop, [&] { return ends.size() == 2; });
      CHECK(ends.back() == errc::timed_out);
    }
    {
      const RetryingConnect connect(loop, silent, {}, std::vector{endpoint}, quick_retries(0), keep);
      turn(loop);
    }
    REQUIRE(ends.size() == 3);
    CHECK(ends.back() == errc::cancelled);
    for (int i = 0; i < 10; ++i) turn(loop, milliseconds(1));
    CHECK(ends.size() == 3);
  });
}

namespace {

// A pool of connections to an echo server, and what it handed out.
struct Pooled {
  EventLoop& loop;
  Server server;
  std::vector<Result<PooledChannel>> results;
  ConnectionPool pool;

  Pooled(EventLoop& loop_in, const PoolOptions& options)
      : loop(loop_in),
        server(Server::start(loop, echo_options()).value_or_throw()),
        pool(loop, std::vector{server.local_endpoint()}, silent, {}, options) {}
  void acquire() {
    pool.acquire([this](Result<PooledChannel> result) { results.push_back(std::move(result)); });
  }
  void wait_for(std::size_t count) {
    run_until(loop, [&] { return results.size() >= count; });
  }
};

}  // namespace

TEST_CASE("a pool hands out connections, makes new ones up to its limit, and uses them again") {
  on_every_own_loop([](EventLoop& loop) {
    PoolOptions options;
    options.max_connections = 2;
    Pooled pooled(loop, options);
    for (int i = 0; i < 3; ++i) pooled.acquire();
    CHECK(pooled.results.empty());
    pooled.wait_for(2);
    settle(loop, 5);
    CHECK(pooled.results.size() == 2);
    CHECK(pooled.pool.in_use() == 2);
    CHECK(pooled.pool.waiting() == 1);
    const ChannelRef first = pooled.results[0].value().channel();
    CHECK(first.alive());
    pooled.results[0].value() = PooledChannel();
    pooled.wait_for(3);
    CHECK(pooled.results[2].value().channel() == first);
    pooled.results.clear();
    CHECK(pooled.pool.idle() == 2);
    CHECK(pooled.pool.in_use() == 0);
    CHECK(pooled.server.counters().accepted == 2);
  });
}

TEST_CASE("a pool's waiters fail with the name of the limit") {
  on_every_own_loop([](EventLoop& loop) {
    PoolOptions options;
    options.max_connections = 1;
    options.max_waiting = 2;
    options.acquire_deadline = milliseconds(50);
    Pooled pooled(loop, options);
    pooled.acquire();
    pooled.wait_for(1);
    pooled.acquire();
    pooled.acquire();
    pooled.acquire();
    pooled.wait_for(2);
    CHECK(pooled.results[1].error().code == errc::limit_exceeded);
    CHECK(pooled.results[1].error().message().find("max_waiting is 2") != std::string::npos);
    pooled.wait_for(4);
    CHECK(pooled.results[2].error().code == errc::timed_out);
    CHECK(pooled.results[2].error().message().find("max_connections is 1") != std::string::npos);
  });
}

TEST_CASE("a pool drops connections that are broken, unhealthy, discarded, too many or idle too long") {
  on_every_own_loop([](EventLoop& loop) {
    PoolOptions options;
    options.max_idle = 1;
    options.idle_time = milliseconds(30);
    bool well = true;
    options.healthy = [&](Channel&) { return well; };
    Pooled pooled(loop, options);
    pooled.acquire();
    pooled.acquire();
    pooled.wait_for(2);
    pooled.results.clear();
    CHECK(pooled.pool.idle() == 1);
    run_until(loop, [&] { return pooled.pool.idle() == 0; });  // idle too long

    pooled.acquire();
    pooled.wait_for(1);
    const ChannelRef discarded = pooled.results[0].value().channel();
    pooled.results[0].value().discard();
    CHECK(pooled.pool.idle() == 0);
    run_until(loop, [&] { return !discarded.alive(); });

    pooled.acquire();
    pooled.wait_for(2);
    const ChannelRef broken = pooled.results[1].value().channel();
    broken.abort();
    run_until(loop, [&] { return !broken.alive(); });
    pooled.results.clear();
    pooled.acquire();
    pooled.wait_for(1);
    CHECK(pooled.results[0].value().channel() != broken);

    const ChannelRef unwell = pooled.results[0].value().channel();
    well = false;
    pooled.results.clear();
    pooled.acquire();
    pooled.acquire();  // both find nothing idle that is well
    run_until(loop, [&] { return !unwell.alive() || pooled.results.size() == 2; });
    well = true;
    pooled.wait_for(2);
    for (const auto& result : pooled.results) CHECK(result.value().channel() != unwell);
  });
}

TEST_CASE("a pool that goes cancels its waiters and closes what comes back") {
  on_every_own_loop([](EventLoop& loop) {
    const Server server = Server::start(loop, echo_options()).value_or_throw();
    PoolOptions options;
    options.max_connections = 1;
    std::vector<Result<PooledChannel>> results;
    const auto keep = [&](Result<PooledChannel> result) { results.push_back(std::move(result)); };
    {
      ConnectionPool pool(loop, std::vector{server.local_endpoint()}, silent, {}, options);
      pool.acquire(keep);
      run_until(loop, [&] { return !results.empty(); });
      pool.acquire(keep);
    }
    REQUIRE(results.size() == 2);
    CHECK(results[1].error().code == errc::cancelled);
    const ChannelRef channel = results[0].value().channel();
    CHECK(channel.alive());
    results.clear();
    run_until(loop, [&] { return !channel.alive(); });
  });
}

TEST_CASE("a pool tells a waiter why it could not connect") {
  on_every_own_loop([](EventLoop& loop) {
    const Endpoint endpoint = closed_port(loop);
    turn(loop);
    PoolOptions options;
    options.connect = quick_retries(2);
    ConnectionPool pool(loop, std::vector{endpoint}, silent, {}, options);
    std::optional<std::error_code> error;
    pool.acquire([&](Result<PooledChannel> result) { error = result.error().code; });
    run_until(loop, [&] { return error.has_value(); });
    CHECK(*error == std::errc::connection_refused);
    CHECK(pool.in_use() + pool.idle() + pool.waiting() == 0);
  });
}

TEST_CASE("one address has no more connections than allowed, and gets one back when one ends") {
  on_every_transport(2, [](LoopGroup& loops) {
    ServerOptions options = echo_options();
    options.max_connections_per_address = 2;
    const Server server = Server::start(loops, options).value_or_throw();
    const auto answers = [](test::Peer& peer) {
      peer.send("x");
      return peer.receive(1) == "x";
    };
    test::Peer first(server.local_endpoint());
    test::Peer second(server.local_endpoint());
    CHECK(answers(first));
    CHECK(answers(second));
    test::Peer third(server.local_endpoint());
    CHECK_FALSE(answers(third));
    CHECK(server.counters().refused_max_connections_per_address == 1);
    first.end();
    CHECK(first.receive_all().empty());
    bool again = false;
    while (!again) {  // the server notices in its own time
      test::Peer fourth(server.local_endpoint());
      again = answers(fourth);
    }
    CHECK(server.counters().accepted == 3);
  });
}

TEST_CASE("connections that come faster than allowed are closed, and counted") {
  on_every_kernel_loop([](EventLoop& loop) {
    ServerOptions options = echo_options();
    options.max_accepts_per_second = 1;
    options.accept_burst = 3;
    const Server server = Server::start(loop, options).value_or_throw();
    std::vector<std::unique_ptr<test::Peer>> peers;
    for (int i = 0; i < 5; ++i) peers.push_back(std::make_unique<test::Peer>(server.local_endpoint()));
    const auto seen = [&] {
      const ServerCounters counters = server.counters();
      return counters.accepted + counters.refused_max_accepts_per_second;
    };
    run_until(loop, [&] { return seen() == 5; });
    CHECK(server.counters().accepted >= 3);  // and one for each second that it took
    CHECK(server.connections() == server.counters().accepted);
  });
}
