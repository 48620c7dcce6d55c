// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// echo PORT: sends back what it receives, on 127.0.0.1, until SIGINT or SIGTERM. Port 0 takes a free one.
#include <csignal>
#include <cstdio>
#include <linkspan/channel/server.hpp>
#include <linkspan/transport/transport.hpp>

using namespace linkspan;

class Echo final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }

  // A peer that does not read what it gets back is not read from either.
  void on_writable_changed(bool writable) override {
    if (writable) {
      channel().resume_read();
    } else {
      channel().pause_read();
    }
  }
};

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: echo PORT\n");
    return 2;
  }
  sigset_t signals;  // blocked before the loops' threads start, so that only sigwait takes them
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  ServerOptions options;
  options.endpoint = Endpoint::parse(std::string("127.0.0.1:") + argv[1]).value_or_throw();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<Echo>(); };
  const auto loops = LoopGroup::create(transport_engine().value_or_throw()).value_or_throw();
  Server server = Server::start(*loops, options).value_or_throw();
  std::printf("listening on %s\n", server.local_endpoint().to_string().c_str());
  std::fflush(stdout);

  int signal = 0;
  sigwait(&signals, &signal);
  server.stop(std::chrono::seconds(5));  // its destructor waits for that
} catch (const Exception& error) {
  std::fprintf(stderr, "echo: %s\n", error.what());
  return 1;
}
