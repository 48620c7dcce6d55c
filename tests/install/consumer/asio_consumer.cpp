// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// A program of somebody else that uses linkspan-asio: a server and a client that wait with Asio's tokens.
#include <linkspan/interop/asio.hpp>
#include <linkspan/transport/transport.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

using namespace linkspan;

#ifdef ASIO_HAS_CO_AWAIT
static asio::awaitable<void> echo(AsyncChannel<Chain> channel) {
  for (;;) {
    Chain data = co_await async_read(channel, asio::use_awaitable);
    co_await async_write(channel, std::move(data), asio::use_awaitable);
  }
}

static asio::awaitable<void> ask(EventLoop& loop, Endpoint to, std::string& answer) {
  const AsyncClient<Chain> client(loop);
  const AsyncChannel<Chain> channel = co_await async_connect(client, to, asio::use_awaitable);
  co_await async_write(channel, Chain(Slice::immortal("hello")), asio::use_awaitable);
  const Chain read = co_await async_read_exactly(channel, 5, std::chrono::seconds(10), asio::use_awaitable);
  answer = read.to_string();
}

static std::string answer_of_a_server(EventLoop& loop) {
  std::string answer;
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  options.initializer = serve_with<Chain>(echo);
  const Server server = Server::start(loop, options).value_or_throw();
  asio::co_spawn(LoopExecutor(loop), ask(loop, server.local_endpoint(), answer),
                 [&loop](std::exception_ptr) { loop.stop(); });
  loop.run();
  return answer;
}
#else
static std::string answer_of_a_server(EventLoop& loop) {  // there is no serve_with here
  std::string answer;
  async_sleep(loop, std::chrono::milliseconds(1), [&](std::error_code error) {
    answer = error ? error.message() : "hello";
    loop.stop();
  });
  loop.run();
  return answer;
}
#endif

int main() {
  const auto loop = EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
  const std::string answer = answer_of_a_server(*loop);
  std::printf("linkspan-asio: %s\n", answer.c_str());
  return answer == "hello" ? 0 : 1;
}
