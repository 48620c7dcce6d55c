// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Servers in a process that may not use io_uring.
#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "linkspan/channel/server.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/log_capture.hpp"
#include "tests/support/refuse_io_uring.hpp"
#include "tests/transport/harness.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

class EchoBytes final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

void check_auto_serves(const std::string& reason) {
  const LogCapture log(LogLevel::info);
  REQUIRE(::unsetenv("LINKSPAN_TRANSPORT") == 0);
  LoopGroupOptions loop_options;
  loop_options.size = 2;
  const auto loops = LoopGroup::create(transport_engine().value_or_throw(), loop_options).value_or_throw();
  for (EventLoop* loop : loops->loops()) {
    REQUIRE(loop->engine().name() == transport_names()[1]);
    REQUIRE(log.contains(loop->name() + ": io_uring passed over: " + reason));
  }
  ServerOptions options;
  options.endpoint = loopback();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<EchoBytes>(); };
  const Server server = Server::start(*loops, options).value_or_throw();
  for (int connection = 0; connection < 4; ++connection) {  // two on each loop
    test::Peer peer(server.local_endpoint());
    peer.send("hello");
    REQUIRE(peer.receive(5) == "hello");
  }
}

// Asked for by the program or by the environment: nothing takes its place.
void check_choice_fails(unsigned error, const std::string& reason) {
  REQUIRE(::setenv("LINKSPAN_TRANSPORT", "io_uring", 1) == 0);
  for (const std::string_view name : {"io_uring", "auto"}) {
    const auto refused = LoopGroup::create(transport_engine(name).value_or_throw());
    REQUIRE_FALSE(refused.ok());
    REQUIRE(refused.error().code.value() == static_cast<int>(error));
    REQUIRE(refused.error().message().find("transport io_uring: " + reason) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("where io_uring is refused, auto serves over the next transport, and an explicit choice says why") {
  if (transport_names().size() < 2) {
    MESSAGE("only io_uring is in this build: left out");
    return;
  }
  struct Refusal {
    unsigned error;
    std::string reason;
  };
  for (const Refusal& refusal :
       {Refusal{EPERM, "io_uring is forbidden"}, Refusal{ENOSYS, "this kernel has no io_uring"},
        Refusal{ENOMEM, "too little memory may be locked"}}) {
    CAPTURE(refusal.reason);
    const auto result = conformance::in_child([&refusal] {
      refuse_io_uring(refusal.error);
      check_auto_serves(refusal.reason);
      check_choice_fails(refusal.error, refusal.reason);
    });
    CHECK(result.exit_code == 0);
    CHECK(result.errors.empty());
  }
}
