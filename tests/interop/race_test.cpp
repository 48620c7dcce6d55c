// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Operations that end early while their result comes, thousands of times on each kind of loop: asked by a
// stop token on another thread, or by a cancellation slot on the loop. Each completes exactly once, and what
// it says is what happened.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <doctest/doctest.h>

#include <asio.hpp>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/interop/asio.hpp"
#include "tests/interop/loops.hpp"
#include "tests/support/sanitized.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::literals::chrono_literals::operator""ms;

namespace {

constexpr int kRaces = kSanitized ? 1'000 : 10'000;
constexpr int kBatch = 500;

using Bytes = AsyncChannel<Chain>;

struct Early {
  AsyncOptions options;
  asio::cancellation_slot slot;
};

/// Starts an operation, and has `done` called once when it completes.
using Start = std::function<void(int number, const Early& early, std::function<void(std::error_code)> done)>;

// Begins operations in batches; a thread asks each to stop, or the loop does by its signal, while it runs.
// Returns how many were cancelled.
int race(TestLoop& test, bool by_token, const Start& start, int races = kRaces, int batch = kBatch) {
  std::mt19937 generator(7);
  int cancelled = 0;
  for (int first = 0; first < races; first += batch) {
    const auto size = static_cast<std::size_t>(batch);
    std::vector<std::stop_source> sources(size);
    std::vector<asio::cancellation_signal> signals(size);
    std::vector<int> completions(size);
    int completed = 0;
    for (int i = 0; i < batch; ++i) {
      Early early;
      if (by_token) {
        early.options.stop = sources[i].get_token();
      } else {
        early.slot = signals[i].slot();
      }
      start(first + i, early, [&, i](std::error_code error) {
        ++completions[i];
        ++completed;
        cancelled += error == errc::cancelled ? 1 : 0;
        CHECK((!error || error == errc::cancelled));
      });
    }
    std::thread rival;
    if (by_token) {
      rival = std::thread([&] {
        for (std::stop_source& source : sources) source.request_stop();
      });
    }
    for (int i = 0; i < batch && !by_token; ++i) {
      if (generator() % 64 == 0) test.turn();
      signals[i].emit(asio::cancellation_type::terminal);
    }
    CHECK(test.run_until([&] { return completed >= batch; }));
    if (rival.joinable()) rival.join();
    test.settle();
    bool each_once = completed == batch;
    for (const int count : completions) each_once &= count == 1;
    CHECK(each_once);
  }
  return cancelled;
}

// The simulated network has one thread.
void on_every_loop_twice(const std::function<void(TestLoop&, bool by_token)>& body) {
  on_every_loop([&](TestLoop& test) {
    for (const bool by_token : {false, true}) {
      CAPTURE(by_token);
      if (!by_token || !test.is_sim()) body(test, by_token);
    }
  });
}

template <class Done>
auto bound(const Early& early, Done done) {
  return asio::bind_cancellation_slot(early.slot, std::move(done));
}

ServerOptions listening() {
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  return options;
}

struct Pair {
  AsyncAcceptor<Chain> acceptor;
  Bytes here;
  Bytes there;

  explicit Pair(TestLoop& test)
      : acceptor(AsyncAcceptor<Chain>::start(test.loop(), listening()).value_or_throw()) {
    async_accept(acceptor, [this](std::error_code, Bytes channel) { there = std::move(channel); });
    async_connect(AsyncClient<Chain>(test.loop()), acceptor.local_endpoint(),
                  [this](std::error_code, Bytes channel) { here = std::move(channel); });
    REQUIRE(test.run_until([this] { return here && there; }));
  }
};

std::string numbered(int number) {
  const std::string text = std::to_string(number);
  return std::string(6 - text.size(), '0') + text;
}

}  // namespace

TEST_CASE("a sleep that is cancelled while it is due completes once") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    race(test, by_token, [&](int number, const Early& early, auto done) {
      async_sleep(test.loop(), number % 2 == 0 ? 0ms : 1ms, early.options, bound(early, std::move(done)));
    });
  });
}

TEST_CASE("a look-up that is cancelled while it is answered completes once") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    race(test, by_token, [&](int, const Early& early, auto done) {
      async_resolve(test.loop(), "127.0.0.1:80", early.options,
                    bound(early, [done](std::error_code error, const std::vector<Endpoint>& found) {
                      CHECK(found.empty() == static_cast<bool>(error));
                      done(error);
                    }));
    });
  });
}

TEST_CASE("a read that is cancelled while bytes come takes all of them or none") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    Pair pair(test);
    std::string read;
    int written = 0;
    for (int i = 0; i < kRaces / 4; ++i) {
      std::stop_source source;
      asio::cancellation_signal signal;
      int completions = 0;
      AsyncOptions options;
      if (by_token) options.stop = source.get_token();
      auto done = [&](std::error_code error, const Chain& data) {
        ++completions;
        CHECK(data.empty() == static_cast<bool>(error));
        read += data.to_string();
      };
      async_read(pair.here, options, asio::bind_cancellation_slot(signal.slot(), done));
      pair.there.write(Chain(Slice::adopt(numbered(written++))));
      pair.there.channel()->flush();
      std::thread rival;
      if (by_token && i % 8 == 0) rival = std::thread([&] { source.request_stop(); });
      if (i % 2 == 0) test.turn();
      if (by_token && i % 8 != 0) source.request_stop();
      if (!by_token) signal.emit(asio::cancellation_type::terminal);
      CHECK(test.run_until([&] { return completions != 0; }));
      if (rival.joinable()) rival.join();
      CHECK(completions == 1);
    }
    pair.there.shutdown_write();
    bool ended = false;
    while (!ended) {
      bool completed = false;
      async_read(pair.here, [&](std::error_code error, const Chain& data) {
        completed = true;
        ended = static_cast<bool>(error);
        read += data.to_string();
      });
      REQUIRE(test.run_until([&] { return completed; }));
    }
    std::string expected;
    for (int i = 0; i < written; ++i) expected += numbered(i);
    CHECK((read == expected));
  });
}

TEST_CASE("a write that is cancelled while it is flushed is sent whole, in its place, or not at all") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    Pair pair(test);
    std::vector<char> failed(kRaces);
    std::string read;
    bool ended = false;
    std::function<void()> read_on = [&] {
      async_read(pair.there, [&](std::error_code error, const Chain& data) {
        read += data.to_string();
        ended = static_cast<bool>(error);
        if (!ended) read_on();
      });
    };
    read_on();
    race(test, by_token, [&](int number, const Early& early, auto done) {
      async_write(pair.here, Chain(Slice::adopt(numbered(number))), early.options,
                  bound(early, [&failed, number, done](std::error_code error) {
                    failed[number] = error ? 1 : 0;
                    done(error);
                  }));
    });
    pair.here.shutdown_write();
    REQUIRE(test.run_until([&] { return ended; }));
    REQUIRE(read.size() % 6 == 0);
    std::size_t at = 0;
    bool in_place = true;
    for (int i = 0; i < kRaces; ++i) {
      const bool sent = read.compare(at, 6, numbered(i)) == 0;
      if (sent) at += 6;
      in_place &= sent || failed[i] != 0;
    }
    CHECK(in_place);
    CHECK(at == read.size());
  });
}

TEST_CASE("an attempt to connect that is cancelled while it succeeds leaves no connection") {
  on_every_loop_twice([](TestLoop& test, bool by_token) {
    const auto collecting = [](Channel& channel) { return channel.pipeline().append<Collector<Chain>>(); };
    ServerOptions options = listening();
    options.initializer = collecting;
    const Server server = Server::start(test.loop(), options).value_or_throw();
    const AsyncClient<Chain> client(test.loop());
    const Client plain(test.loop(), collecting);
    race(
        test, by_token,
        [&](int number, const Early& early, auto done) {
          if (number % 2 == 0) {
            async_connect(client, server.local_endpoint(), early.options,
                          bound(early, [done](std::error_code error, Bytes channel) {
                            CHECK(static_cast<bool>(channel) == !error);
                            if (channel) channel.abort();
                            done(error);
                          }));
          } else {
            async_connect(test.loop(), plain, server.local_endpoint(), early.options,
                          bound(early, [done](std::error_code error, const ChannelRef& channel) {
                            CHECK(channel.alive() == !error);
                            channel.abort();
                            done(error);
                          }));
          }
        },
        kRaces / 10, 50);  // each takes a port
    CHECK(test.run_until([&] { return server.connections() == 0; }));
  });
}
