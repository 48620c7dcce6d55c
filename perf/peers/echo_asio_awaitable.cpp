// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An echo server on Asio with a coroutine for each connection, as its own examples have it: async_read_some
// into a buffer of the coroutine, async_write of what came. One thread, and the context knows it.
#include <asio.hpp>
#include <cstddef>
#include <system_error>
#include <utility>

#include "perf/support/server.h"

using asio::awaitable;
using asio::ip::tcp;

static awaitable<void> echo(tcp::socket socket) {
  try {
    char data[64 * 1024];
    for (;;) {
      const std::size_t bytes = co_await socket.async_read_some(asio::buffer(data), asio::use_awaitable);
      co_await asio::async_write(socket, asio::buffer(data, bytes), asio::use_awaitable);
    }
  } catch (const std::system_error&) {  // the peer has ended
  }
}

static awaitable<void> accept(int listener) {
  const auto executor = co_await asio::this_coro::executor;
  tcp::acceptor acceptor(executor, tcp::v4(), listener);
  for (;;) {
    tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
    asio::co_spawn(executor, echo(std::move(socket)), asio::detached);
  }
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  server_allow_descriptors();
  const int listener = server_listen(endpoint, 0);
  asio::io_context context(1);
  asio::co_spawn(context, accept(listener), asio::detached);
  server_ready(listener);
  context.run();
}
