// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// How options get into sockets. Each function stops at the first one that the system refuses, and its error
// names the option and the value.
#pragma once

#include "linkspan/base/result.hpp"
#include "linkspan/transport/listener.hpp"
#include "linkspan/transport/socket_options.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

enum class SocketStage {
  unbound,    ///< fresh from socket(): everything but quick_ack
  connected,  ///< everything but what has to be there before the address is
};

/// `family` and `type` (SOCK_STREAM, SOCK_DGRAM) are the socket's, and say what it leaves out.
[[nodiscard]] Status set_socket_options(int descriptor, int family, int type, SocketStage stage,
                                        const SocketOptions& options);

/// Once connecting has succeeded: quick_ack.
[[nodiscard]] Status set_quick_ack(int descriptor, int family, const SocketOptions& options);

/// Of a fresh socket that is going to connect: all of set_socket_options, fast_open, local_address.
[[nodiscard]] Status set_connecting_options(int descriptor, int family, const StreamOptions& options);

/// Of a fresh socket that is going to listen: all of set_socket_options, fast_open_queue, defer_accept.
[[nodiscard]] Status set_listening_options(int descriptor, int family, const ListenOptions& options);

}  // namespace linkspan
