// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What callbacks and other threads do at the worst moment: throw where nobody is above them, destroy what
// calls them, come when all is over.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/channel/channel_group.hpp"
#include "linkspan/channel/connection_pool.hpp"
#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/channel/retrying_connect.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/channel/timeouts.hpp"
#include "linkspan/channel/write_results.hpp"
#include "linkspan/loop/pending_budget.hpp"
#include "tests/channel/own_loop.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/log_capture.hpp"
#include "tests/support/sanitized.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

class Silent final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
};

class EchoBytes final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

Status silent(Channel& channel) {
  return channel.pipeline().append<Silent>();
}

ServerOptions options_with(ChannelInitializer initializer) {
  ServerOptions options;
  options.endpoint = loopback();
  options.initializer = std::move(initializer);
  return options;
}

Chain bytes(std::size_t size) {
  return Chain(Slice::adopt(std::string(size, 'x')));
}

WriteDone thrower(int& calls) {
  return [&calls](std::error_code) {
    ++calls;
    throw std::runtime_error("a completion's");
  };
}

}  // namespace

TEST_CASE("a ref that outlives its loop and the budgets of that is refused, and touches neither") {
  std::optional<PendingBudget> process(std::in_place, 1000);
  ChannelRef ref;
  {
    EventLoopOptions options;
    options.max_pending_bytes = 100;
    options.pending_budget = &*process;
    EmbeddedChannel channel({10, 5}, true, {}, std::move(options));
    channel.open();
    ref = channel.ref();
    ref.write(bytes(500));
    CHECK(process->used_bytes() == 500);
  }
  CHECK(process->used_bytes() == 0);
  process.reset();
  std::vector<std::error_code> ends;
  const auto write = [&] { ref.write(bytes(5000), [&](std::error_code error) { ends.push_back(error); }); };
  write();
  std::thread(write).join();
  REQUIRE(ends.size() == 2);
  CHECK(ends[0] == errc::cancelled);
  CHECK(ends[1] == errc::cancelled);
}

TEST_CASE("a completion that throws inside a ref's call, or when its write never arrives, is logged") {
  LogCapture log(LogLevel::error);
  int calls = 0;
  ChannelRef ref;
  {
    PendingLimits limits;
    limits.max_bytes = 100;
    EmbeddedChannel channel({10, 5}, true, limits);
    channel.open();
    ref = channel.ref();
    channel.write(bytes(90));
    std::thread([&] {
      ref.write(bytes(90), thrower(calls));  // refused
      ref.write(bytes(1), thrower(calls));   // comes too late
    }).join();
    CHECK(calls == 1);
    channel.abort();
    channel.tick();
    CHECK(calls == 2);
  }
  ref.write(bytes(1), thrower(calls));
  CHECK(calls == 3);
  CHECK(log.contains("a write's completion threw: a completion's"));
}

TEST_CASE("a group of writes whose completion throws where it is destroyed is logged") {
  LogCapture log(LogLevel::error);
  int calls = 0;
  { WriteGroup group(thrower(calls)); }
  CHECK(calls == 1);
  {
    WriteDone part;
    {
      WriteGroup group(thrower(calls));
      part = group.next();
    }
    CHECK(calls == 1);
  }
  CHECK(calls == 2);
  CHECK(log.contains("a completion's"));
}

TEST_CASE("a callback that throws while connecting again is given up is logged") {
  LogCapture log(LogLevel::error);
  on_every_own_loop([&](EventLoop& loop) {
    int calls = 0;
    {
      const RetryingConnect connect(loop, silent, {}, std::vector{loopback(9)}, {},
                                    [&](std::error_code error, const ChannelRef&) {
                                      ++calls;
                                      CHECK(error == errc::cancelled);
                                      throw std::runtime_error("a callback's");
                                    });
    }
    CHECK(calls == 1);
    CHECK(log.contains("a callback's"));
  });
}

TEST_CASE("a pool's health check may use the pool, and destroy it") {
  on_every_own_loop([](EventLoop& loop) {
    const Server server = Server::start(loop, options_with(silent)).value_or_throw();
    std::unique_ptr<ConnectionPool> pool;
    std::vector<Result<PooledChannel>> results;
    const auto keep = [&](Result<PooledChannel> result) { results.push_back(std::move(result)); };
    std::function<bool()> check;
    PoolOptions options;
    options.healthy = [&](Channel&) { return !check || check(); };
    pool = std::make_unique<ConnectionPool>(loop, std::vector{server.local_endpoint()}, silent,
                                            ChannelOptions(), options);
    const auto fill = [&] {
      for (int i = 0; i < 2; ++i) pool->acquire(keep);
      run_until(loop, [&] { return results.size() == 2; });
      results.clear();
      CHECK(pool->idle() == 2);
    };
    fill();
    // Acquires another one, closes the one that is looked at, throws.
    int checks = 0;
    check = [&] {
      if (++checks == 1) pool->acquire(keep);
      if (checks == 2) throw std::runtime_error("a check's");
      return true;
    };
    const LogCapture log(LogLevel::off);
    pool->acquire(keep);
    run_until(loop, [&] { return results.size() == 2; });
    for (const auto& result : results) {
      REQUIRE(result);
      CHECK(result.value().channel().alive());
    }
    check = nullptr;
    results.clear();
    // Destroys the pool in the middle of a hand-out.
    check = [&] {
      pool.reset();
      return true;
    };
    pool->acquire(keep);
    pool->acquire(keep);
    run_until(loop, [&] { return results.size() == 2; });
    for (const auto& result : results) CHECK(result.error().code == errc::cancelled);
    run_until(loop, [&] { return server.connections() == 0; });
  });
}

TEST_CASE("whoever gets a pool's connection may destroy the pool, discard, and acquire again") {
  on_every_own_loop([](EventLoop& loop) {
    const Server server = Server::start(loop, options_with(silent)).value_or_throw();
    PoolOptions options;
    options.max_connections = 2;
    auto pool = std::make_unique<ConnectionPool>(loop, std::vector{server.local_endpoint()}, silent,
                                                 ChannelOptions(), options);
    int got = 0;
    int cancelled = 0;
    std::function<void(Result<PooledChannel>)> again = [&](Result<PooledChannel> result) {
      if (!result) {
        CHECK(result.error().code == errc::cancelled);
        ++cancelled;
        return;
      }
      if (++got % 2 == 0) result.value().discard();
      if (got % 3 == 0) result.value().channel().abort();
      if (got == 20) {
        pool.reset();
      } else if (got < 20) {
        pool->acquire(again);
      }
    };
    for (int i = 0; i < 4; ++i) pool->acquire(again);
    run_until(loop, [&] { return got >= 20; });
    settle(loop);
    CHECK(got == 20);
    CHECK(cancelled == 3);
    run_until(loop, [&] { return server.connections() == 0; });
  });
}

TEST_CASE("a server may be destroyed by its own completion, on any thread") {
  on_every_transport(2, [](LoopGroup& loops) {
    bool told = false;
    auto server = std::make_unique<Server>(Server::start(loops, options_with(silent)).value_or_throw());
    loops.stop();
    loops.wait();
    server->stop(seconds(5), [&] {  // inside this call: the loops take nothing any more
      told = true;
      server.reset();
    });
    CHECK(told);
    CHECK(server == nullptr);
  });
}

TEST_CASE("connections that come while a server stops are served or refused, and none stays") {
  on_every_transport(2, [](LoopGroup& loops) {
    for (int round = 0; round < 20; ++round) {
      ServerOptions options =
          options_with([](Channel& channel) { return channel.pipeline().append<EchoBytes>(); });
      options.listen_on_every_loop = round % 2 == 1;
      options.max_connections_per_address = 64;
      Server server = Server::start(loops, options).value_or_throw();
      const Endpoint endpoint = server.local_endpoint();
      std::atomic<bool> over{false};
      std::atomic<int> served{0};
      std::vector<std::thread> clients;
      for (int i = 0; i < 3; ++i) {
        clients.emplace_back([&] {
          while (!over) {
            test::Peer peer(endpoint);
            if (!peer.connected()) continue;
            peer.send("x");
            if (peer.receive(1) == "x") ++served;
          }
        });
      }
      while (served < 3) std::this_thread::yield();
      std::atomic<int> told{0};
      server.stop(round % 4 < 2 ? seconds(5) : seconds(0), [&] { ++told; });
      server.stop(seconds(5), [&] { ++told; });
      while (told < 2) std::this_thread::yield();
      CHECK(server.connections() == 0);
      over = true;
      for (std::thread& client : clients) client.join();
      const ServerCounters counters = server.counters();
      CHECK(counters.accepted == counters.closed);
      CHECK(server.connections() == 0);
      CHECK(told == 2);
    }
  });
}

TEST_CASE("a channel that joins a group while that closes is refused, or closed with it") {
  constexpr int kRaces = kSanitized ? 2'000 : 10'000;
  std::vector<std::unique_ptr<ChannelGroup>> groups;
  for (int i = 0; i < kRaces; ++i) groups.push_back(std::make_unique<ChannelGroup>());
  std::atomic<int> begun{-1};
  std::atomic<int> closed{-1};
  std::thread rival([&] {
    for (int i = 0; i < kRaces; ++i) {
      while (begun < i) std::this_thread::yield();
      groups[static_cast<std::size_t>(i)]->close(seconds(5));
      closed = i;
    }
  });
  int wrong = 0;
  for (int i = 0; i < kRaces; ++i) {
    EmbeddedChannel channel;
    channel.open();
    begun = i;
    const bool joined = static_cast<bool>(groups[static_cast<std::size_t>(i)]->add(channel));
    while (closed < i) std::this_thread::yield();
    channel.tick();
    wrong += joined != channel.ended() ? 1 : 0;
  }
  rival.join();
  CHECK(wrong == 0);
}

TEST_CASE("a write may wait, and a peer be silent, for ever") {
  FakeWorld world;
  EventLoopOptions options;
  options.environment = &world.environment;
  PendingLimits limits;
  limits.max_bytes = 10;
  limits.when_full = WhenFull::wait;
  limits.max_wait = Duration::max();
  EmbeddedChannel channel({10, 5}, true, limits, std::move(options));
  REQUIRE(channel.pipeline().append(
      std::make_unique<ReadTimeout>(Duration::max()), std::make_unique<WriteTimeout>(Duration::max()),
      std::make_unique<IdleTimeout>(Duration::max()), std::make_unique<Silent>()));
  channel.open();
  channel.write(bytes(11));
  std::optional<std::error_code> end;
  channel.write(bytes(1), [&](std::error_code error) { end = error; });
  for (int i = 0; i < 10; ++i) {
    world.clock.advance(std::chrono::hours(1));
    channel.tick();
  }
  CHECK_FALSE(end);
  CHECK_FALSE(channel.close_error());
  CHECK(channel.take_sent().size() == 11);
  CHECK(channel.take_sent().size() == 1);
  CHECK(end == std::error_code());
}

TEST_CASE("the budgets of a process and its loops are square when channels have ended, however they did") {
  on_every_transport(1, [](LoopGroup& guests) {
    PendingBudget process(std::size_t{4} << 20);
    LoopGroupOptions group_options;
    group_options.size = 2;
    group_options.loop.max_pending_bytes = std::size_t{3} << 20;
    group_options.loop.pending_budget = &process;
    const std::string_view transport = guests.next().engine().name();
    {
      const auto loops =
          LoopGroup::create(transport_engine(transport).value_or_throw(), group_options).value_or_throw();
      ServerOptions options = options_with(silent);
      options.channel.auto_read = false;  // so that much waits
      Server server = Server::start(*loops, options).value_or_throw();
      ChannelOptions client_options;
      client_options.pending.max_bytes = std::size_t{1} << 20;
      const Client client(*loops, silent, client_options);
      std::vector<ChannelRef> refs;
      for (int i = 0; i < 8; ++i) refs.push_back(client.connect(server.local_endpoint()));
      std::atomic<int> begun{0};
      std::atomic<int> completed{0};
      std::vector<std::thread> writers;
      for (int thread = 0; thread < 2; ++thread) {
        writers.emplace_back([&, thread] {
          for (int i = 0; i < 400; ++i) {
            const ChannelRef& ref = refs[static_cast<std::size_t>(i * 3 + thread) % refs.size()];
            ++begun;
            ref.write(bytes(std::size_t{64} << 10), [&](std::error_code) { ++completed; });
            if (i % 100 == 99) ref.abort();
            if (i % 150 == 149) ref.close(milliseconds(1));
          }
        });
      }
      for (std::thread& writer : writers) writer.join();
      CHECK(process.high_water_bytes() != 0);
      for (const ChannelRef& ref : refs) ref.abort();
      for (const ChannelRef& ref : refs) {
        while (ref.alive()) std::this_thread::yield();
        ref.write(bytes(1), [&](std::error_code) { --completed; });
        ++completed;
      }
      server.stop(Duration::zero());
      loops->stop();
      loops->wait();
      CHECK(completed == begun);
      for (EventLoop* loop : loops->loops()) CHECK(loop->pending_budget()->used_bytes() == 0);
    }
    CHECK(process.used_bytes() == 0);
  });
}
