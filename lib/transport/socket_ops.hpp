// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The system calls on sockets that all transports share, and what their errors mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <system_error>

#include "linkspan/base/result.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/listener.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

/// Non-blocking, closed on exec. Fails with the errno.
[[nodiscard]] Result<Socket, std::error_code> make_stream_socket(int family) noexcept;

/// A bound, listening socket. The path of a unix socket is `endpoint`'s to remove afterwards.
[[nodiscard]] Result<Socket> make_listening_socket(const Endpoint& endpoint, const ListenOptions& options);

/// What every connected stream socket gets: non-blocking, no SIGPIPE, TCP_NODELAY.
void prepare_stream_socket(int descriptor, bool no_delay) noexcept;

[[nodiscard]] Endpoint local_endpoint_of(int descriptor) noexcept;
[[nodiscard]] Endpoint peer_endpoint_of(int descriptor) noexcept;

/// SO_ERROR. Reading it clears it.
[[nodiscard]] int take_socket_error(int descriptor) noexcept;
/// Bytes that a receive would return at once.
[[nodiscard]] std::size_t unread_bytes(int descriptor) noexcept;
/// Lets close() send a reset instead of an orderly end.
void reset_on_close(int descriptor) noexcept;

/// How an error of a send, a receive or SO_ERROR ends a stream: the connection is lost, or it is ours and
/// keeps its code.
[[nodiscard]] std::error_code stream_error(int error) noexcept;

enum class AcceptError {
  nothing_waits,  ///< no connection is there
  connection,     ///< that connection is gone; others may wait
  resources,      ///< descriptors or memory are out: try again later
};
[[nodiscard]] AcceptError classify_accept_error(int error) noexcept;

}  // namespace linkspan
