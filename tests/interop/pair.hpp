// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Two AsyncChannels that are connected, on a loop of the test.
#pragma once

#include "tests/interop/loops.hpp"

#include <system_error>
#include <utility>

#include "linkspan/interop/async_server.hpp"

namespace linkspan::test {

inline ServerOptions listening() {
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  return options;
}

struct Pair {
  AsyncAcceptor<Chain> acceptor;
  AsyncChannel<Chain> here;
  AsyncChannel<Chain> there;

  explicit Pair(TestLoop& test)
      : acceptor(AsyncAcceptor<Chain>::start(test.loop(), listening()).value_or_throw()) {
    async_accept(acceptor,
                 [this](std::error_code, AsyncChannel<Chain> channel) { there = std::move(channel); });
    async_connect(AsyncClient<Chain>(test.loop()), acceptor.local_endpoint(),
                  [this](std::error_code, AsyncChannel<Chain> channel) { here = std::move(channel); });
    REQUIRE(test.run_until([this] { return here && there; }));
  }
};

}  // namespace linkspan::test
