// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The same with a coroutine for each connection, as examples/coroutine_echo has it.
#include <linkspan/interop/asio.hpp>
#include <utility>

#include "perf/echo/serve.hpp"

using namespace linkspan;

static asio::awaitable<void> echo(AsyncChannel<Chain> channel) {
  for (;;) {
    Chain data = co_await async_read(channel, asio::use_awaitable);
    co_await async_write(channel, std::move(data), asio::use_awaitable);
  }
}

int main(int argc, char** argv) {
  return perf::serve_echo(argc, argv, serve_with<Chain>(echo));
}
