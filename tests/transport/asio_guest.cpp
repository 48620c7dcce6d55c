// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "tests/transport/asio_guest.hpp"

#include <asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

#include "linkspan/interop/asio_loop.hpp"

namespace linkspan::conformance {
namespace {

class AsioHost final : public Host {
 public:
  explicit AsioHost(EventLoopOptions options)
      : loop_(AsioLoop::create(context_, std::move(options)).value_or_throw()) {}

  [[nodiscard]] EventLoop& loop() override { return loop_.loop(); }

  void turn(Duration max_wait) override {
    const auto deadline = std::chrono::steady_clock::now() + max_wait;
    const std::uint64_t before = loop().counters().ticks.get();
    while (loop().counters().ticks.get() == before) {
      if (context_.poll_one() == 0 && context_.run_one_until(deadline) == 0) return;
    }
  }

  void run() override { context_.run(); }

 private:
  asio::io_context context_{1};
  AsioLoop loop_;
};

}  // namespace

std::unique_ptr<Host> make_asio_guest(EventLoopOptions options) {
  return std::make_unique<AsioHost>(std::move(options));
}

}  // namespace linkspan::conformance
