// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Two AsyncChannels that are connected, on a loop of the test.
#pragma once

#include "tests/interop/loops.hpp"

#include <optional>
#include <system_error>
#include <utility>

#include "linkspan/interop/async_server.hpp"

namespace linkspan::test {

inline ServerOptions listening(ChannelInitializer initializer = nullptr) {
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  options.initializer = std::move(initializer);
  return options;
}

template <class Message>
struct PairOf {
  std::optional<AsyncAcceptor<Message>> acceptor;
  AsyncChannel<Message> here;
  AsyncChannel<Message> there;

  explicit PairOf(TestLoop& test, ChannelInitializer codecs = nullptr, InboxLimits limits = {}) {
    acceptor.emplace(AsyncAcceptor<Message>::start(test.loop(), listening(codecs), limits).value_or_throw());
    const AsyncClient<Message> client(test.loop(), codecs, {}, limits);
    async_accept(*acceptor,
                 [this](std::error_code, AsyncChannel<Message> channel) { there = std::move(channel); });
    async_connect(client, acceptor->local_endpoint(),
                  [this](std::error_code, AsyncChannel<Message> channel) { here = std::move(channel); });
    REQUIRE(test.run_until([this] { return here && there; }));
  }
};
using Pair = PairOf<Chain>;

}  // namespace linkspan::test
