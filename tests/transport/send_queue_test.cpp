// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What one call of a send offers to the socket.
#include "lib/transport/send_queue.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <string>

#include "lib/transport/socket_system.hpp"
#include "linkspan/buffer/block.hpp"
#include "tests/support/slices.hpp"

namespace linkspan {
namespace {

TEST_CASE("after a call that the socket took in part, the next one offers the rest and nothing more") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  const Socket sender(ends[0]);
  const Socket receiver(ends[1]);
  const auto set_send_buffer = [&](int bytes) {
    REQUIRE(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0);
  };
  std::string received;
  const auto drain = [&] {
    std::array<char, 4096> part;
    ssize_t size = 0;
    while ((size = ::recv(ends[1], part.data(), part.size(), 0)) > 0) {
      received.append(part.data(), static_cast<std::size_t>(size));
    }
  };
  SendQueue queue;
  const auto send = [&] {
    const SendQueue::Sent sent = queue.send_next(kernel_sockets(), ends[0], heap_allocator());
    REQUIRE_FALSE(sent.error);
    static_cast<void>(queue.accepted(sent.bytes));
    return sent.bytes;
  };
  const std::string first(64 * 1024, 'a');
  const std::string second(64 * 1024, 'b');

  set_send_buffer(4096);
  queue.append(test::chain_of(first, 4096), 1);
  const std::size_t taken = send();
  REQUIRE(taken < first.size());
  drain();
  set_send_buffer(200'000);  // room for everything
  queue.append(test::chain_of(second, 4096), 1);
  CHECK(send() == first.size() - taken);
  CHECK(send() == second.size());
  drain();
  CHECK(received == first + second);
}

}  // namespace
}  // namespace linkspan
