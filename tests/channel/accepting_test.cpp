// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a server accepts when descriptors are out, and of peers that are gone by then; on each transport.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/own_loop.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

// While it lives no descriptor can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
    ::close(next);
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit low{static_cast<rlim_t>(next), before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Echoes, and counts each 'x' that it has echoed.
class CountingEcho final : public Service<Chain> {
 public:
  explicit CountingEcho(std::size_t& echoed) : echoed_(echoed) {}
  void on_read(Chain&& data) override {
    const std::string text = data.to_string();
    echoed_ += static_cast<std::size_t>(std::count(text.begin(), text.end(), 'x'));
    write(std::move(data));
  }

 private:
  std::size_t& echoed_;
};

class Silent final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
};

std::size_t pauses(const LogCapture& log) {
  std::size_t found = 0;
  for (const std::string& line : log.lines()) found += line.find("accepting pauses") != line.npos ? 1 : 0;
  return found;
}

ServerOptions echo_options(const Endpoint& endpoint, std::size_t& echoed) {
  ServerOptions options;
  options.endpoint = endpoint;
  options.initializer = [&echoed](Channel& channel) {
    return channel.pipeline().append(std::make_unique<CountingEcho>(echoed));
  };
  return options;
}

std::vector<Endpoint> endpoints() {
  return {loopback(),
          Endpoint::parse("unix:@linkspan-accept-test-" + std::to_string(::getpid())).value_or_throw()};
}

}  // namespace

TEST_CASE("a server that is out of descriptors neither spins nor loses a connection, and serves all later") {
  on_every_kernel_loop([](EventLoop& loop) {
    for (const Endpoint& endpoint : endpoints()) {
      const LogCapture log;
      std::size_t echoed = 0;
      const Server server = Server::start(loop, echo_options(endpoint, echoed)).value_or_throw();
      std::vector<int> sockets;
      for (int i = 0; i < 3; ++i)
        sockets.push_back(::socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
      std::vector<std::unique_ptr<Peer>> peers;
      {
        const NoDescriptors none;
        const Endpoint& to = server.local_endpoint();
        for (const int socket : sockets) {
          REQUIRE(::connect(socket, to.address(), static_cast<socklen_t>(to.address_size())) == 0);
          peers.push_back(std::make_unique<Peer>(socket));
          peers.back()->send("x");
        }
        run_until(loop, [&] { return pauses(log) == 1; });
        const std::uint64_t before = loop.counters().system_calls.get();
        run_until(loop, [&] { return pauses(log) == 3; });
        CHECK(loop.counters().system_calls.get() - before < 1000);
        CHECK(server.counters().accepted == 0);
      }
      run_until(loop, [&] { return echoed == peers.size(); });
      settle(loop);
      for (const auto& peer : peers) CHECK(peer->receive(1) == "x");
      CHECK(server.counters().accepted == 3);
      peers.clear();
      run_until(loop, [&] { return server.connections() == 0; });
    }
  });
}

TEST_CASE("peers that have reset or closed before they are accepted do not keep a server from the others") {
  on_every_kernel_loop([](EventLoop& loop) {
    for (const Endpoint& endpoint : endpoints()) {
      const LogCapture log(LogLevel::error);
      std::size_t echoed = 0;
      const Server server = Server::start(loop, echo_options(endpoint, echoed)).value_or_throw();
      std::vector<std::unique_ptr<Peer>> peers;
      for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 20; ++i) Peer(server.local_endpoint()).reset();
        for (int i = 0; i < 20; ++i) Peer(server.local_endpoint()).close();
        Peer sender(server.local_endpoint());
        sender.send("lost");
        sender.reset();
        peers.push_back(std::make_unique<Peer>(server.local_endpoint()));
        REQUIRE(peers.back()->connected());
        peers.back()->send("x");
        run_until(loop, [&] { return echoed == peers.size() && server.connections() == peers.size(); });
        settle(loop);
        CHECK(peers.back()->receive(1) == "x");
      }
      CHECK(server.counters().failed == 0);
      CHECK(log.lines().empty());
    }
  });
}

TEST_CASE("connections that are aborted as soon as they are open leave a server that goes on") {
  on_every_own_loop([](EventLoop& loop) {
    std::size_t echoed = 0;
    const Server server =
        Server::start(loop, echo_options(Endpoint::parse("127.0.0.1:0").value_or_throw(), echoed))
            .value_or_throw();
    const Client client(loop, [](Channel& channel) { return channel.pipeline().append<Silent>(); });
    int completed = 0;
    std::vector<ChannelRef> refs(50);
    for (ChannelRef& ref : refs) {
      ref = client.connect(server.local_endpoint(), [&](std::error_code error) {
        CHECK_FALSE(error);
        ++completed;
        ref.abort();
      });
    }
    run_until(loop, [&] { return completed == 50 && server.connections() == 0; });
    settle(loop);
    const ChannelRef last = client.connect(server.local_endpoint());
    last.write(Chain(Slice::immortal("x")));
    run_until(loop, [&] { return echoed == 1; });
    CHECK(server.connections() == 1);
    last.abort();
    run_until(loop, [&] { return server.connections() == 0; });
  });
}
