// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SocketOptions: what a program wants its sockets to be told, by name. What is not set stays as the system
// has it. What the system refuses is an error that names the option and its value; so is an option that the
// system does not know (errc::unavailable).
// Not for: what belongs to one kind of socket: see StreamOptions, ListenOptions.
// Cost: a system call for each option that is set, when the socket is made; nothing is kept afterwards.
// Threads: a value.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "linkspan/base/export.hpp"

namespace linkspan {

/// One set may serve sockets of all kinds: one that has no such thing leaves the option out. So a unix socket
/// takes the buffer sizes alone, and a datagram socket nothing of TCP.
///
/// Accepted sockets inherit what their listener was given, on Linux all but quick_ack; elsewhere less.
/// StreamOptions say it again, and win.
struct SocketOptions {
  // TCP
  std::optional<bool> no_delay;                         ///< TCP_NODELAY; streams have it unless this is false
  std::optional<bool> keep_alive;                       ///< SO_KEEPALIVE: probes a quiet connection
  std::optional<std::chrono::seconds> keep_alive_idle;  ///< TCP_KEEPIDLE: quiet for so long
  std::optional<std::chrono::seconds> keep_alive_interval;  ///< TCP_KEEPINTVL: between probes
  std::optional<int> keep_alive_count;                      ///< TCP_KEEPCNT: unanswered ones that end it
  /// SO_LINGER. 0: closing resets. More has no effect on streams: it would let the system's close() block
  /// the loop, so they take it off first, and linger by themselves (StreamOptions::linger).
  std::optional<std::chrono::seconds> linger;
  /// TCP_USER_TIMEOUT: bytes that are unacknowledged for so long break the connection.
  std::optional<std::chrono::milliseconds> user_timeout;
  /// TCP_QUICKACK, once the connection is there. The system goes back to its own judgement later.
  std::optional<bool> quick_ack;
  std::string congestion_control;  ///< TCP_CONGESTION: "cubic", "bbr", ...; empty: the system's

  // TCP and UDP
  std::string interface;  ///< SO_BINDTODEVICE: of all networks only this one's, "eth0"; empty: any
  /// SO_REUSEADDR; TCP listeners have it unless this is false. It and the next two have to be there before
  /// the socket has an address, so Transport::open leaves them out.
  std::optional<bool> reuse_address;
  std::optional<bool> reuse_port;  ///< SO_REUSEPORT: several sockets share an address
  std::optional<bool> ipv6_only;   ///< IPV6_V6ONLY: false takes IPv4 as well; IPv4 sockets leave it out

  // All
  /// SO_SNDBUF and SO_RCVBUF. To be given less than that is an error as well (Linux: net.core.wmem_max,
  /// net.core.rmem_max).
  std::optional<std::size_t> send_buffer_bytes;
  std::optional<std::size_t> receive_buffer_bytes;

  SocketOptions() = default;
};

}  // namespace linkspan
