// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SocketSystem: what the cores of streams and listeners do to sockets, apart from the operations of a
// backend: the kernel's, or those of a simulated network. Loop's thread.
#pragma once

#include <cstddef>
#include <string>

#include "linkspan/base/result.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/listener.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

class SocketSystem : public SocketSpace {
 public:
  /// A bound, listening socket. The path of a unix socket is `endpoint`'s to remove afterwards.
  [[nodiscard]] virtual Result<Socket> make_listening(const Endpoint& endpoint,
                                                      const ListenOptions& options) = 0;
  /// A socket that is ready to connect to `peer`.
  [[nodiscard]] virtual Result<Socket> make_connecting(const Endpoint& peer,
                                                       const StreamOptions& options) = 0;
  /// Takes a socket from elsewhere: checks that it is a stream socket with a peer, or that has had one, and
  /// sets options.
  [[nodiscard]] virtual Status adopt_stream(const Socket& socket, const SocketOptions& options) = 0;
  /// Sets what can only be set when `descriptor` has connected.
  [[nodiscard]] virtual Status set_connected_options(int descriptor, const SocketOptions& options) = 0;

  /// No address when there is none.
  [[nodiscard]] virtual Endpoint local_endpoint(int descriptor) noexcept = 0;
  [[nodiscard]] virtual Endpoint peer_endpoint(int descriptor) noexcept = 0;
  /// Bytes that a receive would return at once.
  [[nodiscard]] virtual std::size_t unread_bytes(int descriptor) noexcept = 0;
  /// After the bytes that were sent the peer reads an end.
  virtual void end_sending(int descriptor) noexcept = 0;
  /// What closing will do: reset the connection, or end it without waiting for the peer.
  virtual void before_close(int descriptor, bool reset) noexcept = 0;
  /// Removes the path of a listener that closes.
  virtual void remove_path(const std::string& path) noexcept = 0;
};

/// Lives for ever.
[[nodiscard]] SocketSystem& kernel_sockets() noexcept;

}  // namespace linkspan
