// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "linkspan/channel/server.hpp"
#include "linkspan/transport/transport.hpp"
#include "out_of_memory/connecting.hpp"
#include "out_of_memory/failing_allocations.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::connect_without_memory;
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
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<Greeting>(); };
  {
    Server server = Server::start(*loop, options).value_or_throw();
    CHECK(connect_without_memory(*loop, server, "served ").starts_with("closed closed "));
    server.stop(Duration::zero());
    loop->run_once(Duration::zero());
  }
  CHECK(log.contains("an accepted connection threw: std::bad_alloc"));
}
