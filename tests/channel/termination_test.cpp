// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/termination.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <memory>
#include <optional>
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
