// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An echo service inside a program that runs an asio::io_context.
#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <linkspan/channel/server.hpp>
#include <linkspan/interop/asio_loop.hpp>
#include <string>

using namespace linkspan;

namespace {

class Echo final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

void run(const std::string& port) {
  asio::io_context context(1);  // the program's: run by one thread
  asio::signal_set signals(context, SIGINT, SIGTERM);

  const AsioLoop linkspan_loop = AsioLoop::create(context).value_or_throw();
  EventLoop& loop = linkspan_loop.loop();
  ServerOptions options;
  options.endpoint = Endpoint::parse("127.0.0.1:" + port).value_or_throw();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<Echo>(); };
  Server server = Server::start(loop, options).value_or_throw();
  std::printf("listening on %s\n", server.local_endpoint().to_string().c_str());
  std::fflush(stdout);

  signals.async_wait(
      [&](std::error_code, int) { server.stop(std::chrono::seconds(5), [&loop] { loop.stop(); }); });
  context.run();  // until the signal, and then until the loop has stopped
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: asio PORT\n");
    return 2;
  }
  run(argv[1]);
} catch (const Exception& error) {
  std::fprintf(stderr, "asio: %s\n", error.what());
  return 1;
}
