// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A loop on the test's own thread, on each transport that this machine can set up, as a guest of an
// io_context, and on the simulated network.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/sim_network.hpp"
#include "linkspan/transport/transport.hpp"
#include "tests/transport/host.hpp"
#if LINKSPAN_HAVE_ASIO
#include "tests/transport/asio_guest.hpp"
#endif

namespace linkspan::test {

/// What runs the guest that a body has; nullptr: its loop runs by itself.
inline conformance::Host* guest_host = nullptr;

inline void on_asio_guest(const std::function<void(EventLoop&)>& body, const EventLoopOptions& options) {
#if LINKSPAN_HAVE_ASIO
  const std::string_view name = "asio guest";
  CAPTURE(name);
  const std::unique_ptr<conformance::Host> host = conformance::make_asio_guest(options);
  struct Hosting {
    explicit Hosting(conformance::Host& host) { guest_host = &host; }
    ~Hosting() { guest_host = nullptr; }
  };
  const Hosting hosting(*host);
  body(host->loop());
#else
  static_cast<void>(body);
  static_cast<void>(options);
#endif
}

/// For what needs real sockets on the other side.
inline void on_every_kernel_loop(const std::function<void(EventLoop&)>& body,
                                 const EventLoopOptions& options = {}) {
  for (const std::string_view name : transport_names()) {
    CAPTURE(name);
    auto loop = EventLoop::create(transport_engine(name).value_or_throw(), options);
    if (!loop) {
      MESSAGE("left out: " << loop.error().message());
      continue;
    }
    body(*loop.value());
  }
  on_asio_guest(body, options);
}

inline void on_every_own_loop(const std::function<void(EventLoop&)>& body) {
  on_every_kernel_loop(body);
  const std::string_view name = "sim";
  CAPTURE(name);
  SimNetwork network;
  const auto loop = network.add_host("here", {"10.0.0.1"}).make_loop().value_or_throw();
  body(*loop);
}

/// One tick.
inline void turn(EventLoop& loop, Duration max_wait = Duration::zero()) {
  if (guest_host != nullptr && &guest_host->loop() == &loop) {
    guest_host->turn(max_wait);
  } else {
    loop.run_once(max_wait);
  }
}

/// Fails the test instead of waiting for ever.
inline void run_until(EventLoop& loop, const std::function<bool()>& done) {
  for (int turns = 0; !done(); ++turns) {
    REQUIRE(turns < 50'000);
    turn(loop, std::chrono::milliseconds(2));  // timers come before the wait of a tick
  }
}

/// Enough turns for all that is due.
inline void settle(EventLoop& loop, int turns = 20) {
  while (turns-- > 0) turn(loop);
}

/// Until the loop has ended.
inline void stop(EventLoop& loop) {
  loop.stop();
  if (guest_host != nullptr && &guest_host->loop() == &loop) {
    guest_host->run();
  } else {
    loop.run();
  }
}

}  // namespace linkspan::test
