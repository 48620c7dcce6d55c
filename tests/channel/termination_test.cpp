// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/termination.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "linkspan/channel/server.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/transport.hpp"
#include "tests/channel/peer.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

volatile std::sig_atomic_t old_handler_calls = 0;
void count_call(int) {
  old_handler_calls = old_handler_calls + 1;
}

void on_each_transport(const std::function<void(EventLoop&)>& body) {
  for (const std::string_view name : transport_names()) {
    CAPTURE(name);
    auto loop = EventLoop::create(transport_engine(name).value_or_throw());
    if (loop) body(*loop.value());
  }
}

}  // namespace

TEST_CASE("a signal is told on the loop, and does again what it did before when nobody watches") {
  struct sigaction before {};
  struct sigaction counting {};
  counting.sa_handler = count_call;
  REQUIRE(::sigaction(SIGTERM, &counting, &before) == 0);
  on_each_transport([](EventLoop& loop) {
    old_handler_calls = 0;
    std::vector<int> told;
    {
      const auto watch = Termination::watch(loop, [&](int signal) { told.push_back(signal); });
      REQUIRE(watch);
      const auto second = Termination::watch(loop, [](int) {});
      CHECK(second.error().code == errc::invalid_argument);
      std::raise(SIGTERM);
      CHECK(told.empty());
      while (told.empty()) loop.run_once(std::chrono::seconds(10));
      CHECK(told == std::vector<int>{SIGTERM});
      std::raise(SIGINT);
      while (told.size() < 2) loop.run_once(std::chrono::seconds(10));
      CHECK(told.back() == SIGINT);
    }
    CHECK(old_handler_calls == 0);
    std::raise(SIGTERM);
    CHECK(old_handler_calls == 1);
    const auto refused = Termination::watch(loop, [](int) {}, {SIGTERM, SIGKILL});
    CHECK(refused.error().code == errc::invalid_argument);
    std::raise(SIGTERM);
    CHECK(old_handler_calls == 2);  // restored, though only one of them failed
  });
  ::sigaction(SIGTERM, &before, nullptr);
}

#ifdef __linux__
TEST_CASE("the descriptor that signal handlers write to is never closed: one may be about to write") {
  const auto descriptors = [] {
    std::set<std::string> open;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      open.insert(entry.path().filename());
    }
    return open;
  };
  struct sigaction before {};
  REQUIRE(::sigaction(SIGUSR1, nullptr, &before) == 0);
  on_each_transport([&](EventLoop& loop) {
    struct sigaction watching {};
    std::set<std::string> meanwhile;
    {
      const auto watch = Termination::watch(loop, [](int) {}, {SIGUSR1});
      REQUIRE(watch);
      loop.run_once(Duration::zero());
      REQUIRE(::sigaction(SIGUSR1, nullptr, &watching) == 0);
      meanwhile = descriptors();
    }
    while (!loop.engine().idle()) loop.run_once(std::chrono::seconds(10));
    const std::set<std::string> afterwards = descriptors();
    std::vector<std::string> closed;
    std::ranges::set_difference(meanwhile, afterwards, std::back_inserter(closed));
    CHECK(closed.size() == 1);  // the loop's end
    watching.sa_handler(SIGUSR1);
    std::vector<int> told;
    const auto next = Termination::watch(loop, [&](int signal) { told.push_back(signal); }, {SIGUSR1});
    REQUIRE(next);
    std::raise(SIGUSR1);
    while (told.empty()) loop.run_once(std::chrono::seconds(10));
    CHECK(told == std::vector<int>{SIGUSR1});
  });
  ::sigaction(SIGUSR1, &before, nullptr);
}
#endif

TEST_CASE("a signal drains a server: what runs ends, and then the loop does") {
  on_each_transport([](EventLoop& loop) {
    class EchoOnce final : public Service<Chain> {
     public:
      void on_read(Chain&& data) override { write(std::move(data)); }
    };
    ServerOptions options;
    options.endpoint = loopback();
    options.initializer = [](Channel& channel) { return channel.pipeline().append<EchoOnce>(); };
    Server server = Server::start(loop, options).value_or_throw();
    bool stopped = false;
    const auto watch = Termination::watch(loop, [&](int) {
                         server.stop(std::chrono::seconds(20), [&] {
                           stopped = true;
                           loop.stop();
                         });
                       }).value_or_throw();
    test::Peer peer(server.local_endpoint());
    while (server.connections() == 0) loop.run_once(std::chrono::seconds(10));
    peer.send("x");
    std::raise(SIGTERM);
    peer.end();
    loop.run();
    CHECK(stopped);
  });
}
