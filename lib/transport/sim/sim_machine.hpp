// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimMachine: a simulated host: its descriptors, addresses, ports and unix paths, and the calls on its
// sockets. Owned by the SimKernel.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lib/transport/sim/sim_datagram.hpp"
#include "lib/transport/sim/sim_stream.hpp"
#include "lib/transport/socket_system.hpp"
#include "linkspan/transport/sim_network.hpp"

namespace linkspan {

class SimMachine final : public SocketSystem {
 public:
  SimMachine(SimKernel& kernel, int index, std::string name, std::vector<std::string> hosts);

  [[nodiscard]] static SimMachine& of(const SimHost& host) noexcept { return host.machine_; }

  [[nodiscard]] SimKernel& kernel() const noexcept { return kernel_; }
  [[nodiscard]] SimHost& host() noexcept { return host_; }
  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// As in Endpoint::to_string: IPv6 in brackets.
  [[nodiscard]] const std::vector<std::string>& addresses() const noexcept { return addresses_; }
  [[nodiscard]] bool has_address(const std::string& address) const noexcept;
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  [[nodiscard]] bool refuses() const noexcept { return refuses_; }
  void set_refuses(bool refuses) noexcept { refuses_ = refuses; }
  void kill();
  void revive() noexcept { dead_ = false; }

  /// nullptr: not open here.
  [[nodiscard]] SimSocket* socket_of(int descriptor) const noexcept;
  /// nullptr as well when it is of another type.
  [[nodiscard]] SimStream* stream_of(int descriptor) const noexcept;
  [[nodiscard]] SimDatagram* datagram_of(int descriptor) const noexcept;
  /// A socket, perhaps one that is gone.
  [[nodiscard]] bool has_path(const std::string& path) const noexcept { return paths_.contains(path); }
  /// A descriptor more for `socket`.
  [[nodiscard]] Socket descriptor_for(SimSocket& socket);

  [[nodiscard]] static bool is_loopback(const Endpoint& endpoint) noexcept;
  /// `peer`, or the host itself when that names none.
  [[nodiscard]] static Endpoint destination(const Endpoint& peer);
  /// Where what `socket` sends to `peer` comes from, with a port that it has or that becomes its own; no
  /// Endpoint: there is no way.
  [[nodiscard]] Endpoint source_for(const SimSocket& socket, const Endpoint& peer);
  /// nullptr: no host has that address.
  [[nodiscard]] SimMachine* route(const Endpoint& peer) noexcept;
  [[nodiscard]] SimStream* tcp_listener(const Endpoint& endpoint) const noexcept;
  /// The unix socket at `path`; nullptr: `error` is what connect would say.
  [[nodiscard]] SimSocket* socket_at(const std::string& path, SimSocket::Type type,
                                     int& error) const noexcept;
  /// Whoever takes a message of UDP; nullptr: nobody.
  [[nodiscard]] SimDatagram* udp_socket(const Endpoint& to, const Endpoint& from) const noexcept;
  /// The unix socket has room, or is gone: those that are connected to it may be writable.
  void touch_senders_to(int socket);
  /// What the machine knows of a socket that goes.
  void socket_goes(SimSocket& socket) noexcept;

  // SocketSystem.

  Result<Socket> make_listening(const Endpoint& endpoint, const ListenOptions& options) override;
  Status adopt_listening(const Socket& socket) override;
  Result<Socket> make_connecting(const Endpoint& peer, const StreamOptions& options) override;
  Status adopt_stream(const Socket& socket, const SocketOptions& options) override;
  Status set_connected_options(int descriptor, const SocketOptions& options) override;
  bool can_pass(const Socket& socket) const noexcept override;
  Endpoint local_endpoint(int descriptor) noexcept override;
  Endpoint peer_endpoint(int descriptor) noexcept override;
  std::size_t unread_bytes(int descriptor) noexcept override;
  void end_sending(int descriptor) noexcept override;
  void before_close(int descriptor, bool reset) noexcept override;
  void close_socket(int descriptor) noexcept override;
  void remove_path(const std::string& path) noexcept override;

  int connect(int descriptor, const Endpoint& peer) override;
  int take_error(int descriptor) noexcept override;
  Socket accept(int listener) override;
  ssize_t receive(int descriptor, std::span<std::byte> memory) override;
  ssize_t receive(int descriptor, std::span<std::byte> memory, std::size_t most,
                  Result<std::vector<Socket>, std::error_code>& descriptors) override;
  ssize_t send(int descriptor, std::span<iovec> vectors, std::span<const Socket> descriptors) override;
  ssize_t send_file(int descriptor, int file, std::uint64_t offset, std::size_t bytes) override;

  Result<ReadyDatagramSocket> make_datagram(const Endpoint& local, const DatagramOptions& options) override;
  Result<ReadyDatagramSocket> adopt_datagram(Socket socket, const DatagramOptions& options) override;
  Socket make_room_probe(const Endpoint& to) noexcept override;
  bool has_send_room(int descriptor) noexcept override;
  int send_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept override;
  int receive_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept override;
  std::optional<Refusal> take_refusal(int descriptor) noexcept override;
  void add_datagram_capabilities(std::vector<std::string>& names) override;

 private:
  [[nodiscard]] bool is_local(const Endpoint& endpoint) const noexcept;
  [[nodiscard]] std::error_code bind(SimSocket& socket, const Endpoint& endpoint, bool shared);
  [[nodiscard]] std::string source_host(const Endpoint& peer) const;
  SimDatagram& add_datagram(int family);
  /// 0: none is free, or not this one.
  [[nodiscard]] std::uint16_t take_port(const SimSocket& socket, std::uint16_t wanted, bool shared);

  SimKernel& kernel_;
  const int index_;
  const std::string name_;
  const std::vector<std::string> addresses_;
  SimHost host_;
  bool dead_ = false;
  bool refuses_ = false;
  std::map<int, SimSocket*> descriptors_;
  std::vector<SimStream*> listeners_;
  std::vector<SimDatagram*> datagrams_;
  std::map<std::string, int> paths_;  // sockets, which may be gone
  struct Port {
    int users = 0;
    bool shared = false;  // reuse_port
  };
  using PortKey = std::tuple<SimSocket::Type, int, std::uint16_t>;  // the second is the family
  std::map<PortKey, Port> ports_;
  std::uint16_t next_port_ = kFirstPort;

  static constexpr std::uint16_t kFirstPort = 32768;
};

}  // namespace linkspan
