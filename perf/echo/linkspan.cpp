// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The echo server of the network benchmarks on Linkspan: a channel with one handler.
#include <utility>

#include "perf/echo/serve.hpp"

using namespace linkspan;

namespace {

class Echo final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }

  void on_writable_changed(bool writable) override {
    if (writable) {
      channel().resume_read();
    } else {
      channel().pause_read();
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return perf::serve_echo(argc, argv, [](Channel& channel) { return channel.pipeline().append<Echo>(); });
}
