// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// coroutine_echo PORT: sends back what it receives, on 127.0.0.1, with a coroutine for each connection, until
// SIGINT or SIGTERM. Port 0 takes a free one.
#include <csignal>
#include <cstdio>
#include <linkspan/interop/asio.hpp>
#include <linkspan/transport/transport.hpp>
#include <string>

using namespace linkspan;

asio::awaitable<void> echo(AsyncChannel<Chain> channel) {
  for (;;) {  // until the peer ends, or the server drains: then the read throws, and the channel closes
    Chain data = co_await async_read(channel, asio::use_awaitable);
    co_await async_write(channel, std::move(data), asio::use_awaitable);
  }
}

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: coroutine_echo PORT\n");
    return 2;
  }
  sigset_t signals;  // blocked before the loops' threads start, so that only sigwait takes them
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  ServerOptions options;
  options.endpoint = Endpoint::parse(std::string("127.0.0.1:") + argv[1]).value_or_throw();
  options.initializer = serve_with<Chain>(echo);
  const auto loops = LoopGroup::create(transport_engine().value_or_throw()).value_or_throw();
  Server server = Server::start(*loops, options).value_or_throw();
  std::printf("listening on %s\n", server.local_endpoint().to_string().c_str());
  std::fflush(stdout);

  int signal = 0;
  sigwait(&signals, &signal);
  server.stop(std::chrono::seconds(5));  // its destructor waits for that
} catch (const Exception& error) {
  std::fprintf(stderr, "coroutine_echo: %s\n", error.what());
  return 1;
}
