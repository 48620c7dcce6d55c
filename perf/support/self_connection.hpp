// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A connection of a case to itself: what it sends is received, and discarded, by the same thread, which stops
// the clock meanwhile, whenever the socket is full. With a receiver on another core, wake-ups would be most
// of what one sees.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "perf/support/rounds.hpp"

namespace linkspan::perf {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::exit(1);
}

using Ends = std::array<int, 2>;

inline Ends unix_pair() {
  Ends ends;
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "socketpair");
  return ends;
}

// With Reno: a default that paces, such as BBR, waits for its own clock.
inline Ends tcp_pair() {
  constexpr std::string_view kReno = "reno";
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int sender = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(::bind(listener, name, size) == 0 && ::listen(listener, 1) == 0, "listen");
  require(::getsockname(listener, name, &size) == 0, "getsockname");
  require(::setsockopt(sender, IPPROTO_TCP, TCP_CONGESTION, kReno.data(), kReno.size()) == 0, "reno");
  const int on = 1;
  require(::setsockopt(sender, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
  require(::connect(sender, name, size) == 0, "connect");
  const int receiver = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  require(receiver >= 0, "accept");
  ::close(listener);
  return {sender, receiver};
}

class SelfConnection {
 public:
  SelfConnection(benchmark::State& state, const Ends& ends)
      : state_(state), sender_(ends[0]), receiver_(ends[1]) {}
  SelfConnection(const SelfConnection&) = delete;
  SelfConnection& operator=(const SelfConnection&) = delete;
  ~SelfConnection() {
    ::close(sender_);
    ::close(receiver_);
  }

  // Both return how many bytes the socket has taken.
  std::size_t send_gathered(std::span<iovec> vectors) {
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    return repeat([&] { return ::sendmsg(sender_, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
  }
  std::size_t send(std::span<const std::byte> bytes) {
    return repeat([&] { return ::send(sender_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); });
  }

  // Empties the socket; returns how many bytes have come in all. TCP discards them (MSG_TRUNC).
  std::size_t discard() {
    static std::array<std::byte, 65536> room;
    for (;;) {
      const ssize_t size = ::recv(receiver_, room.data(), room.size(), MSG_DONTWAIT | MSG_TRUNC);
      if (size < 0 && errno == EAGAIN) return received_;
      require(size > 0, "recv");
      received_ += static_cast<std::size_t>(size);
    }
  }

 private:
  template <class Send>
  std::size_t repeat(Send send) {
    for (;;) {
      const ssize_t sent = send();
      if (sent > 0) return static_cast<std::size_t>(sent);
      require(errno == EAGAIN, "send");
      state_.PauseTiming();
      discard();
      state_.ResumeTiming();
    }
  }

  benchmark::State& state_;
  int sender_;
  int receiver_;
  std::size_t received_ = 0;
};

}  // namespace linkspan::perf
