// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// proxy --listen HOST:PORT --to HOST:PORT: passes TCP connections on, without copying them in user space. At
// SIGINT or SIGTERM it accepts no more, lets connections end, and resets those that are left at the deadline.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <linkspan/channel/server.hpp>
#include <linkspan/channel/termination.hpp>
#include <linkspan/transport/transport.hpp>
#include <string>

#include "examples/proxy/proxy_handler.hpp"

using namespace linkspan;

int main(int argc, char** argv) try {
  std::string listen = "127.0.0.1:0";
  std::string to;
  std::string transport = "auto";
  std::size_t loops = 1;
  std::size_t max_connections = 10'000;
  unsigned drain_seconds = 30;
  CLI::App app("Passes TCP connections on.", "proxy");
  app.add_option("--listen", listen, "HOST:PORT; port 0 takes a free one")->capture_default_str();
  app.add_option("--to", to, "HOST:PORT")->required();
  app.add_option("--transport", transport, "io_uring, epoll, asio or auto")->capture_default_str();
  app.add_option("--loops", loops, "threads, 1 to 1024")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--max-connections", max_connections)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--drain-seconds", drain_seconds, "after a signal")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const Endpoint target = Endpoint::parse(to).value_or_throw();
  const EngineFactory engine = transport_engine(transport).value_or_throw();
  ServerOptions options;
  options.endpoint = Endpoint::parse(listen).value_or_throw();
  options.max_connections = max_connections;
  options.initializer = [&](Channel& channel) {
    return examples::ProxySide::accept(channel, target, ChannelOptions());
  };
  LoopGroupOptions group_options;
  group_options.size = loops;
  const auto group = LoopGroup::create(engine, group_options).value_or_throw();
  const auto main_loop = EventLoop::create(engine).value_or_throw();  // for the signals
  Server server = Server::start(*group, options).value_or_throw();
  const auto termination = Termination::watch(*main_loop, [&](int) {
                             server.stop(std::chrono::seconds(drain_seconds), [&] { main_loop->stop(); });
                           }).value_or_throw();
  std::printf("listening on %s\n", server.local_endpoint().to_string().c_str());
  std::fflush(stdout);
  main_loop->run();
} catch (const Exception& error) {
  std::fprintf(stderr, "proxy: %s\n", error.what());
  return 1;
}
