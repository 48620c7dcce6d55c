// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What Linkspan's echo servers have in common: everything on one loop, until a signal ends the process.
//
//     PROGRAM [--transport=io_uring|epoll|asio] [--busy-poll=MICROSECONDS] PORT|unix:PATH
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "linkspan/channel/server.hpp"
#include "linkspan/transport/transport.hpp"
#include "perf/support/server.h"

namespace linkspan::perf {

inline int serve_echo(int argc, char** argv, ChannelInitializer initializer) try {
  const std::string endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  server_allow_descriptors();
  EventLoopOptions loop_options;
  loop_options.busy_poll = std::chrono::microseconds(std::stoi(server_option(argc, argv, "busy-poll", "0")));
  const auto engine = transport_engine(server_option(argc, argv, "transport", "auto")).value_or_throw();
  const std::unique_ptr<EventLoop> loop = EventLoop::create(engine, loop_options).value_or_throw();

  const bool is_unix = endpoint.starts_with("unix:");
  ServerOptions options;
  options.endpoint = Endpoint::parse(is_unix ? endpoint : "127.0.0.1:" + endpoint).value_or_throw();
  options.initializer = std::move(initializer);
  const Server server = Server::start(*loop, options).value_or_throw();
  const Endpoint& local = server.local_endpoint();
  std::printf("listening on %s\n",
              is_unix ? local.to_string().c_str() : std::to_string(local.port()).c_str());
  std::fflush(stdout);
  loop->run();
  return 0;
} catch (const Exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}

}  // namespace linkspan::perf
