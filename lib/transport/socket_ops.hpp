// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The system calls on sockets that all transports share, and what their errors mean.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <system_error>

#include "linkspan/base/result.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/listener.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

/// The flag of every send.
#ifdef MSG_NOSIGNAL
inline constexpr int kNoSignal = MSG_NOSIGNAL;
#else
inline constexpr int kNoSignal = 0;  // SO_NOSIGPIPE is set on the socket
#endif

/// Non-blocking, closed on exec. Fails with the errno.
[[nodiscard]] Result<Socket, std::error_code> make_stream_socket(int family) noexcept;

/// A bound, listening socket. The path of a unix socket is `endpoint`'s to remove afterwards.
[[nodiscard]] Result<Socket> make_listening_socket(const Endpoint& endpoint, const ListenOptions& options);

/// Takes a socket from elsewhere: checks that it is a stream socket that listens, and makes it non-blocking
/// and closed on exec.
[[nodiscard]] Status adopt_listening_socket(int descriptor);

/// A socket that is ready to connect to `peer`.
[[nodiscard]] Result<Socket> make_connecting_socket(const Endpoint& peer, const StreamOptions& options);

/// Takes a socket from elsewhere: checks that it is a stream socket with a peer, or that has had one, makes
/// it non-blocking and sets options.
[[nodiscard]] Status adopt_stream_socket(int descriptor, const SocketOptions& options);

[[nodiscard]] Endpoint local_endpoint_of(int descriptor) noexcept;
[[nodiscard]] Endpoint peer_endpoint_of(int descriptor) noexcept;

/// SO_ERROR. Reading it clears it.
[[nodiscard]] int take_socket_error(int descriptor) noexcept;
/// Bytes that a receive would return at once.
[[nodiscard]] std::size_t unread_bytes(int descriptor) noexcept;
/// Keeps close() from waiting for the peer, even where the socket has SO_LINGER with a time.
void never_wait_on_close(int descriptor) noexcept;
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
