// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SocketSystem: what streams, listeners and datagram sockets do to sockets: to those of the kernel, or of a
// simulated network. A virtual call for each system call, of which one carries many datagrams. Loop's thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "lib/transport/datagram_ops.hpp"
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
  /// Takes a socket from elsewhere: checks that it is a stream socket that listens.
  [[nodiscard]] virtual Status adopt_listening(const Socket& socket) = 0;
  /// A socket that is ready to connect to `peer`.
  [[nodiscard]] virtual Result<Socket> make_connecting(const Endpoint& peer,
                                                       const StreamOptions& options) = 0;
  /// Takes a socket from elsewhere: checks that it is a stream socket with a peer, or that has had one, and
  /// sets options.
  [[nodiscard]] virtual Status adopt_stream(const Socket& socket, const SocketOptions& options) = 0;
  /// Sets what can only be set when `descriptor` has connected.
  [[nodiscard]] virtual Status set_connected_options(int descriptor, const SocketOptions& options) = 0;

  /// Whether messages over unix sockets can bring `socket` to the peer.
  [[nodiscard]] virtual bool can_pass(const Socket& socket) const noexcept = 0;

  /// No address when there is none.
  [[nodiscard]] virtual Endpoint local_endpoint(int descriptor) noexcept = 0;
  [[nodiscard]] virtual Endpoint peer_endpoint(int descriptor) noexcept = 0;
  /// Bytes that a receive would return at once.
  [[nodiscard]] virtual std::size_t unread_bytes(int descriptor) noexcept = 0;
  /// After the bytes that were sent the peer reads an end.
  virtual void end_sending(int descriptor) noexcept = 0;
  /// What closing will do: reset the connection, or end it without waiting for the peer.
  virtual void before_close(int descriptor, bool reset) noexcept = 0;
  /// Removes the path of a listener or datagram socket that closes.
  virtual void remove_path(const std::string& path) noexcept = 0;

  // The calls of transports over readiness. None waits for the peer; each says what the system's call says,
  // -1 and errno included.

  [[nodiscard]] virtual int connect(int descriptor, const Endpoint& peer) = 0;
  /// The error that waits in the socket, which this takes out.
  [[nodiscard]] virtual int take_error(int descriptor) noexcept = 0;
  /// A connection that has come; without one, errno.
  [[nodiscard]] virtual Socket accept(int listener) = 0;
  [[nodiscard]] virtual ssize_t receive(int descriptor, std::span<std::byte> memory) = 0;
  /// The same with the descriptors of the message, at most `most`; or why there cannot be any.
  [[nodiscard]] virtual ssize_t receive(int descriptor, std::span<std::byte> memory, std::size_t most,
                                        Result<std::vector<Socket>, std::error_code>& descriptors) = 0;
  /// `descriptors` go with the first byte, and stay the caller's.
  [[nodiscard]] virtual ssize_t send(int descriptor, std::span<iovec> vectors,
                                     std::span<const Socket> descriptors) = 0;
  /// 0 at the end of the file; ENOSYS, EINVAL or EOPNOTSUPP: it has to be read instead.
  [[nodiscard]] virtual ssize_t send_file(int descriptor, int file, std::uint64_t offset,
                                          std::size_t bytes) = 0;

  // Datagram sockets: see the functions of the same names in datagram_ops.hpp.

  [[nodiscard]] virtual Result<ReadyDatagramSocket> make_datagram(const Endpoint& local,
                                                                  const DatagramOptions& options) = 0;
  [[nodiscard]] virtual Result<ReadyDatagramSocket> adopt_datagram(Socket socket,
                                                                   const DatagramOptions& options) = 0;
  [[nodiscard]] virtual Socket make_room_probe(const Endpoint& to) noexcept = 0;
  [[nodiscard]] virtual bool has_send_room(int descriptor) noexcept = 0;
  [[nodiscard]] virtual int send_messages(int descriptor, std::span<MessageHeader> messages,
                                          bool batched) noexcept = 0;
  [[nodiscard]] virtual int receive_messages(int descriptor, std::span<MessageHeader> messages,
                                             bool batched) noexcept = 0;
  [[nodiscard]] virtual std::optional<Refusal> take_refusal(int descriptor) noexcept = 0;
  virtual void add_datagram_capabilities(std::vector<std::string>& names) = 0;
};

/// Lives for ever.
[[nodiscard]] SocketSystem& kernel_sockets() noexcept;

/// What `socket` is one of.
[[nodiscard]] inline SocketSystem& system_of(const Socket& socket) noexcept {
  return socket.space() == nullptr ? kernel_sockets() : static_cast<SocketSystem&>(*socket.space());
}

}  // namespace linkspan
