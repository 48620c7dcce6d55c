// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Loops of every kind on the test's own thread, for what has to be the same on all of them: each transport of
// the build, a guest of an io_context, and a host of a simulated network.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <doctest/doctest.h>

#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/interop/asio_loop.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/sim_network.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan::test {

class TestLoop {
 public:
  /// A transport's name, "asio guest" or "sim".
  explicit TestLoop(std::string_view kind, EventLoopOptions options = {}) {
    if (kind == "asio guest") {
      guest_.emplace(AsioLoop::create(context_, std::move(options)).value_or_throw());
    } else if (kind == "sim") {
      network_ = std::make_unique<SimNetwork>();
      own_ = network_->add_host("here", {"127.0.0.1"}).make_loop(std::move(options)).value_or_throw();
    } else {
      own_ = EventLoop::create(transport_engine(kind).value_or_throw(), std::move(options)).value_or_throw();
    }
  }

  [[nodiscard]] EventLoop& loop() const { return own_ != nullptr ? *own_ : guest_->loop(); }
  [[nodiscard]] bool is_sim() const { return network_ != nullptr; }

  void turn() {
    constexpr auto kLongest = std::chrono::milliseconds(10);
    if (own_ == nullptr) {
      context_.run_one_for(kLongest);
    } else {
      own_->run_once(kLongest);
    }
  }
  bool run_until(const std::function<bool()>& done) {
    const TimePoint deadline = monotonic_clock().now() + std::chrono::seconds(60);
    while (!done() && monotonic_clock().now() < deadline) turn();
    return done();
  }
  /// Enough turns for everything that is due.
  void settle() {
    for (int i = 0; i < 20; ++i) {
      if (own_ == nullptr) {
        context_.poll();
      } else {
        own_->run_once(Duration::zero());
      }
    }
  }
  /// Until the loop has ended.
  void stop() {
    loop().stop();
    if (own_ == nullptr) {
      context_.run();
    } else {
      own_->run();
    }
  }
  void destroy() {
    own_.reset();
    guest_.reset();
  }

 private:
  asio::io_context context_;
  std::unique_ptr<SimNetwork> network_;
  std::optional<AsioLoop> guest_;
  std::unique_ptr<EventLoop> own_;
};

inline void on_every_loop(const std::function<void(TestLoop&)>& body, const EventLoopOptions& options = {}) {
  std::vector<std::string> kinds{"asio guest", "sim"};
  for (const std::string_view name : transport_names()) kinds.emplace_back(name);
  for (const std::string& kind : kinds) {
    CAPTURE(kind);
    TestLoop loop(kind, options);
    body(loop);
  }
}

}  // namespace linkspan::test
