// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// discard PORT: drops what it receives, on 127.0.0.1, until SIGINT or SIGTERM, and says how much it was.
#include <csignal>
#include <cstdio>
#include <linkspan/channel/server.hpp>
#include <linkspan/transport/transport.hpp>

using namespace linkspan;

class Discard final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { bytes_ += data.size(); }
  void on_inactive(std::error_code) override { std::printf("dropped %zu bytes\n", bytes_); }

 private:
  std::size_t bytes_ = 0;
};

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: discard PORT\n");
    return 2;
  }
  sigset_t signals;  // blocked before the loops' threads start, so that only sigwait takes them
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  ServerOptions options;
  options.endpoint = Endpoint::parse(std::string("127.0.0.1:") + argv[1]).value_or_throw();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<Discard>(); };
  const auto loops = LoopGroup::create(transport_engine().value_or_throw()).value_or_throw();
  Server server = Server::start(*loops, options).value_or_throw();
  std::printf("listening on %s\n", server.local_endpoint().to_string().c_str());
  std::fflush(stdout);

  int signal = 0;
  sigwait(&signals, &signal);
  server.stop(std::chrono::seconds(5));  // its destructor waits for that
} catch (const Exception& error) {
  std::fprintf(stderr, "discard: %s\n", error.what());
  return 1;
}
