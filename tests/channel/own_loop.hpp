// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A loop on the test's own thread, on each transport that this machine can set up, and on the simulated
// network.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/sim_network.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan::test {

/// For what needs real sockets on the other side.
inline void on_every_kernel_loop(const std::function<void(EventLoop&)>& body) {
  for (const std::string_view name : transport_names()) {
    CAPTURE(name);
    auto loop = EventLoop::create(transport_engine(name).value_or_throw());
    if (!loop) {
      MESSAGE("left out: " << loop.error().message());
      continue;
    }
    body(*loop.value());
  }
}

inline void on_every_own_loop(const std::function<void(EventLoop&)>& body) {
  on_every_kernel_loop(body);
  const std::string_view name = "sim";
  CAPTURE(name);
  SimNetwork network;
  const auto loop = network.add_host("here", {"10.0.0.1"}).make_loop().value_or_throw();
  body(*loop);
}

/// Fails the test instead of waiting for ever.
inline void run_until(EventLoop& loop, const std::function<bool()>& done) {
  for (int turns = 0; !done(); ++turns) {
    REQUIRE(turns < 50'000);
    loop.run_once(std::chrono::milliseconds(2));  // timers come before the wait of a tick
  }
}

/// Enough turns for all that is due.
inline void settle(EventLoop& loop) {
  for (int i = 0; i < 20; ++i) loop.run_once(Duration::zero());
}

/// Until the loop has ended.
inline void stop(EventLoop& loop) {
  loop.stop();
  loop.run();
}

}  // namespace linkspan::test
