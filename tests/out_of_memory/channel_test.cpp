// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "linkspan/channel/server.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/transport.hpp"
#include "out_of_memory/failing_allocations.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::FailingAllocation;
using linkspan::test::LogCapture;

namespace {

class Greeting final : public Service<Chain> {
 public:
  void on_active() override { write(Chain(Slice::immortal("hello"))); }
  void on_read(Chain&&) override {}
};

}  // namespace

TEST_CASE("an accepted connection that there is no memory for is closed; the server goes on") {
  const LogCapture log;
  const auto loop = EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
  // Asio allocates for each of its own operations, and can tell nobody when it cannot.
  if (loop->engine().name() == "asio") return;
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<Greeting>(); };
  {
    Server server = Server::start(*loop, options).value_or_throw();
    const Endpoint address = server.local_endpoint();
    std::string outcomes;  // of connections that found room for 0, 1, 2, ... allocations
    for (std::size_t allowed = 0; !outcomes.ends_with("served"); ++allowed) {
      const Socket peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      REQUIRE(::connect(peer.descriptor(), address.address(),
                        static_cast<socklen_t>(address.address_size())) == 0);
      std::array<char, 16> buffer;
      ssize_t received = -1;
      bool failed = false;
      {
        const FailingAllocation failing(allowed);
        while (received < 0) {
          loop->run_once(std::chrono::milliseconds(1));
          received = ::recv(peer.descriptor(), buffer.data(), buffer.size(), MSG_DONTWAIT);
          if (received < 0 && errno != EAGAIN) received = 0;  // reset
        }
        failed = failing.failed();
      }
      outcomes += received == 5 ? "served" : "closed ";
      CHECK((failed || received == 5));
    }
    CHECK(outcomes.starts_with("closed closed "));
    for (int i = 0; server.connections() != 0 && i < 1000; ++i) loop->run_once(std::chrono::milliseconds(1));
    CHECK(server.connections() == 0);
    server.stop(Duration::zero());
    loop->run_once(Duration::zero());
  }
  CHECK(log.contains("an accepted connection threw: std::bad_alloc"));
}
