// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Connections to a server while one allocation after the other fails.
#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "linkspan/channel/server.hpp"
#include "linkspan/transport/socket.hpp"
#include "out_of_memory/failing_allocations.hpp"

namespace linkspan::test {

/// What becomes of connections that find room for 0, 1, 2, ... allocations, "closed " or "served ", until
/// that ends with `enough`. A server that serves says "hello". Each one whose allocations have not failed has
/// to be served, and none may be left over.
inline std::string connect_without_memory(EventLoop& loop, Server& server, std::string_view enough) {
  const Endpoint address = server.local_endpoint();
  std::string outcomes;
  for (std::size_t allowed = 0; !outcomes.ends_with(enough); ++allowed) {
    const Socket peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(peer.descriptor(), address.address(), static_cast<socklen_t>(address.address_size())) ==
            0);
    std::array<char, 16> buffer;
    ssize_t received = -1;
    bool failed = false;
    {
      const FailingAllocation failing(allowed);
      while (received < 0) {
        loop.run_once(std::chrono::milliseconds(1));
        received = ::recv(peer.descriptor(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (received < 0 && errno != EAGAIN) received = 0;  // reset
      }
      failed = failing.failed();
    }
    outcomes += received == 5 ? "served " : "closed ";
    CHECK((failed || received == 5));
  }
  for (int i = 0; server.connections() != 0 && i < 1000; ++i) loop.run_once(std::chrono::milliseconds(1));
  CHECK(server.connections() == 0);
  return outcomes;
}

}  // namespace linkspan::test
