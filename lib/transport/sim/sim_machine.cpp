// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/sim/sim_machine.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "lib/base/split_mix.hpp"
#include "lib/transport/sim/sim_kernel.hpp"
#include "lib/transport/stream_core.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

bool is_any(const std::string& host) noexcept {
  return host == "0.0.0.0" || host == "[::]";
}

bool is_loopback_host(const std::string& host) noexcept {
  return host.starts_with("127.") || host == "[::1]";
}

Endpoint endpoint_of(const std::string& host, std::uint16_t port) {
  return Endpoint::parse(host + ":" + std::to_string(port)).value();
}

// What a socket has before it is given an address.
Endpoint unnamed(int family) {
  if (family == AF_INET) return endpoint_of("0.0.0.0", 0);
  if (family == AF_INET6) return endpoint_of("[::]", 0);
  sockaddr address{};
  address.sa_family = AF_UNIX;
  return {&address, sizeof(address.sa_family)};
}

bool is_simulated(int family) noexcept {
  return family == AF_INET || family == AF_INET6 || family == AF_UNIX;
}

std::uint64_t flow_of(const Endpoint& to, const Endpoint& from, std::uint64_t seed) noexcept {
  std::uint64_t flow = mix_bits(seed);
  for (const Endpoint* endpoint : {&to, &from}) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(endpoint->address());
    for (const unsigned char byte : std::span(bytes, endpoint->address_size()))
      flow = mix_bits(flow ^ byte) + 1;
  }
  return flow;
}

Result<ReadyDatagramSocket> with_peer(ReadyDatagramSocket&& ready, SimDatagram& socket,
                                      const DatagramOptions& options) {
  if (options.peer.family() == AF_UNSPEC) return std::move(ready);
  const int result = socket.connect(options.peer);
  if (result == 0) return std::move(ready);
  return Error(system_error_code(-result), "connecting a datagram socket to " + options.peer.to_string());
}

// Like a system call.
ssize_t result_of(ssize_t result) noexcept {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace

SimMachine::SimMachine(SimKernel& kernel, int index, std::string name, std::vector<std::string> hosts)
    : kernel_(kernel), index_(index), name_(std::move(name)), addresses_(std::move(hosts)), host_(*this) {}

bool SimMachine::has_address(const std::string& address) const noexcept {
  return std::ranges::find(addresses_, address) != addresses_.end();
}

bool SimMachine::is_local(const Endpoint& endpoint) const noexcept {
  const std::string host = endpoint.host();
  return is_any(host) || is_loopback_host(host) || has_address(host);
}

void SimMachine::kill() {
  dead_ = true;
  kernel_.end_loops_of(*this);
  descriptors_.clear();
  std::vector<int> numbers;
  for (const auto& [number, socket] : kernel_.sockets()) {
    if (&socket->machine() == this) numbers.push_back(number);
  }
  for (const int number : numbers) {
    if (SimSocket* socket = kernel_.find(number)) socket->vanish();
  }
  paths_.clear();
}

SimSocket* SimMachine::socket_of(int descriptor) const noexcept {
  const auto found = descriptors_.find(descriptor);
  return found == descriptors_.end() ? nullptr : found->second;
}

SimStream* SimMachine::stream_of(int descriptor) const noexcept {
  SimSocket* socket = socket_of(descriptor);
  const bool is_stream = socket != nullptr && socket->type() == SimSocket::Type::stream;
  return is_stream ? static_cast<SimStream*>(socket) : nullptr;
}

SimDatagram* SimMachine::datagram_of(int descriptor) const noexcept {
  SimSocket* socket = socket_of(descriptor);
  const bool is_datagram = socket != nullptr && socket->type() == SimSocket::Type::datagram;
  return is_datagram ? static_cast<SimDatagram*>(socket) : nullptr;
}

Socket SimMachine::descriptor_for(SimSocket& socket) {
  const int descriptor = kernel_.next_descriptor();
  descriptors_.emplace(descriptor, &socket);
  socket.add_descriptor();
  return Socket(descriptor, this);
}

SimMachine* SimMachine::route(const Endpoint& peer) noexcept {
  const std::string host = peer.host();
  return is_any(host) || is_loopback_host(host) ? this : kernel_.machine_at(host);
}

std::string SimMachine::source_host(const Endpoint& peer) const {
  const std::string host = peer.host();
  const bool ipv6 = peer.family() == AF_INET6;
  if (has_address(host)) return host;
  if (is_any(host) || is_loopback_host(host)) return ipv6 ? "[::1]" : "127.0.0.1";
  const auto is_of_family = [&](const std::string& address) { return (address.front() == '[') == ipv6; };
  const auto found = std::ranges::find_if(addresses_, is_of_family);
  return found == addresses_.end() ? std::string() : *found;
}

bool SimMachine::is_loopback(const Endpoint& endpoint) noexcept {
  return is_loopback_host(endpoint.host());
}

Endpoint SimMachine::destination(const Endpoint& peer) {
  if (!is_any(peer.host())) return peer;
  return endpoint_of(peer.family() == AF_INET6 ? "[::1]" : "127.0.0.1", peer.port());
}

Endpoint SimMachine::source_for(const SimSocket& socket, const Endpoint& peer) {
  if (socket.has_port() && !is_any(socket.local().host())) return socket.local();
  const std::string from = source_host(peer);
  if (from.empty()) return {};
  const std::uint16_t port = socket.has_port() ? socket.local().port() : take_port(socket, 0, false);
  return port == 0 ? Endpoint() : endpoint_of(from, port);
}

std::uint16_t SimMachine::take_port(const SimSocket& socket, std::uint16_t wanted, bool shared) {
  if (wanted != 0) {
    Port& port = ports_[{socket.type(), socket.family(), wanted}];
    if (port.users != 0 && !(port.shared && shared)) return 0;
    ++port.users;
    port.shared = shared;
    return wanted;
  }
  for (int tries = 0; tries < 65536 - kFirstPort; ++tries) {
    const std::uint16_t port = next_port_;
    next_port_ = next_port_ == 65535 ? kFirstPort : static_cast<std::uint16_t>(next_port_ + 1);
    if (!ports_.contains({socket.type(), socket.family(), port})) return take_port(socket, port, shared);
  }
  return 0;
}

std::error_code SimMachine::bind(SimSocket& socket, const Endpoint& endpoint, bool shared) {
  if (endpoint.family() != socket.family()) return system_error_code(EINVAL);
  if (endpoint.is_unix()) {
    const std::string path = endpoint.unix_path();
    const auto found = paths_.find(path);
    if (found != paths_.end() && kernel_.find(found->second) != nullptr) return system_error_code(EADDRINUSE);
    paths_[path] = socket.number();
    socket.set_local(endpoint, false);
    return {};
  }
  if (!is_local(endpoint)) return system_error_code(EADDRNOTAVAIL);
  const std::uint16_t port = take_port(socket, endpoint.port(), shared);
  if (port == 0) return system_error_code(EADDRINUSE);
  socket.set_local(endpoint_of(endpoint.host(), port), true);
  return {};
}

SimStream* SimMachine::tcp_listener(const Endpoint& endpoint) const noexcept {
  std::vector<SimStream*> found;
  const std::string host = endpoint.host();
  for (SimStream* listener : listeners_) {
    const Endpoint& local = listener->local();
    if (local.family() != endpoint.family() || local.port() != endpoint.port()) continue;
    const std::string at = local.host();
    if (at == host || is_any(at) || is_any(host)) found.push_back(listener);
  }
  return found.empty() ? nullptr : found[kernel_.below(found.size())];
}

SimSocket* SimMachine::socket_at(const std::string& path, SimSocket::Type type, int& error) const noexcept {
  const auto found = paths_.find(path);
  if (found == paths_.end()) {
    error = path.starts_with('@') ? ECONNREFUSED : ENOENT;
    return nullptr;
  }
  SimSocket* socket = kernel_.find(found->second);
  if (socket != nullptr && socket->type() == type) return socket;
  error = socket == nullptr ? ECONNREFUSED : EPROTOTYPE;
  return nullptr;
}

// One that is connected to the sender comes first, then one that has just this address. Among equals, which
// share a port, a flow always has the same one.
SimDatagram* SimMachine::udp_socket(const Endpoint& to, const Endpoint& from) const noexcept {
  std::vector<SimDatagram*> found;
  int best = 0;
  const std::string host = to.host();
  for (SimDatagram* socket : datagrams_) {
    const Endpoint& local = socket->local();
    if (local.family() != to.family() || local.port() != to.port()) continue;
    if (socket->connected() && !(socket->remote() == from)) continue;
    const std::string at = local.host();
    if (at != host && !is_any(at)) continue;
    const int rank = (socket->connected() ? 2 : 0) + (at == host ? 1 : 0);
    if (rank > best) found.clear();
    if (rank < best) continue;
    best = rank;
    found.push_back(socket);
  }
  if (found.size() < 2) return found.empty() ? nullptr : found.front();
  return found[flow_of(to, from, kernel_.options().seed) % found.size()];
}

void SimMachine::touch_senders_to(int socket) {
  for (SimDatagram* datagram : datagrams_) {
    if (datagram->peer_number() == socket) datagram->touch();
  }
}

void SimMachine::socket_goes(SimSocket& socket) noexcept {
  std::erase(listeners_, &socket);
  std::erase(datagrams_, &socket);
  if (socket.is_unix()) {
    // A name that is no path goes with its socket.
    const std::string path = socket.local().unix_path();
    const auto found = paths_.find(path);
    if (path.starts_with('@') && found != paths_.end() && found->second == socket.number())
      paths_.erase(found);
  } else if (socket.has_port()) {
    const auto port = ports_.find({socket.type(), socket.family(), socket.local().port()});
    if (port != ports_.end() && --port->second.users == 0) ports_.erase(port);
  }
}

// --- setting up

Result<Socket> SimMachine::make_listening(const Endpoint& endpoint, const ListenOptions& options) {
  const std::string what = "listening on " + endpoint.to_string();
  if (dead_) return Error(system_error_code(ENETDOWN), what);
  if (!is_simulated(endpoint.family())) return Error(system_error_code(EAFNOSUPPORT), what);
  SimStream& socket = kernel_.make_stream(*this, endpoint.family());
  socket.set_local(unnamed(endpoint.family()), false);
  Socket made = descriptor_for(socket);
  socket.set_options(options.socket);
  const std::error_code error = bind(socket, endpoint, options.socket.reuse_port.value_or(false));
  if (error) return Error(error, what);
  socket.listen(options.backlog);
  listeners_.push_back(&socket);
  return made;
}

Status SimMachine::adopt_listening(const Socket& socket) {
  const SimStream* found = socket.space() == this ? stream_of(socket.descriptor()) : nullptr;
  if (found == nullptr || found->state() != SimStream::State::listening) {
    return Error(errc::invalid_argument,
                 "a listener of a simulated host needs a listening socket of that host");
  }
  return std::monostate();
}

Result<Socket> SimMachine::make_connecting(const Endpoint& peer, const StreamOptions& options) {
  const std::string what = "connecting to " + peer.to_string();
  if (dead_) return Error(system_error_code(ENETDOWN), what);
  if (!is_simulated(peer.family())) return Error(system_error_code(EAFNOSUPPORT), what);
  SimStream& socket = kernel_.make_stream(*this, peer.family());
  socket.set_local(unnamed(peer.family()), false);
  Socket made = descriptor_for(socket);
  socket.set_options(options.socket);
  if (options.local_address.family() != AF_UNSPEC) {
    const std::error_code error = bind(socket, options.local_address, false);
    if (error) {
      return Error(error, what + ": socket option local_address = " + options.local_address.to_string());
    }
  }
  return made;
}

Status SimMachine::adopt_stream(const Socket& socket, const SocketOptions& options) {
  if (socket.space() != this) {
    return Error(errc::invalid_argument, "a stream of a simulated host needs a socket of that host");
  }
  SimStream* found = stream_of(socket.descriptor());
  if (found == nullptr) return Error(errc::invalid_argument, "a stream needs a socket");
  if (found->state() != SimStream::State::connected && found->state() != SimStream::State::broken) {
    return Error(errc::invalid_argument, "a stream needs a socket that is connected");
  }
  found->set_options(options);
  return std::monostate();
}

Status SimMachine::set_connected_options(int, const SocketOptions&) {
  return std::monostate();
}

bool SimMachine::can_pass(const Socket& socket) const noexcept {
  return socket.space() == nullptr || socket.space() == this;
}

Endpoint SimMachine::local_endpoint(int descriptor) noexcept {
  const SimSocket* socket = socket_of(descriptor);
  return socket == nullptr ? Endpoint() : socket->local();
}

Endpoint SimMachine::peer_endpoint(int descriptor) noexcept {
  const SimSocket* socket = socket_of(descriptor);
  return socket == nullptr || !socket->connected() ? Endpoint() : socket->remote();
}

std::size_t SimMachine::unread_bytes(int descriptor) noexcept {
  const SimStream* socket = stream_of(descriptor);
  return socket == nullptr ? 0 : socket->unread_bytes();
}

// --- calls

void SimMachine::end_sending(int descriptor) noexcept {
  if (SimStream* socket = stream_of(descriptor)) socket->end_sending();
}

void SimMachine::before_close(int descriptor, bool reset) noexcept {
  SimStream* socket = stream_of(descriptor);
  if (socket != nullptr && reset) socket->reset_on_close(true);
}

void SimMachine::close_socket(int descriptor) noexcept {
  const auto node = descriptors_.extract(descriptor);
  if (!node.empty()) node.mapped()->remove_descriptor();
}

void SimMachine::remove_path(const std::string& path) noexcept {
  paths_.erase(path);
}

int SimMachine::connect(int descriptor, const Endpoint& peer) {
  SimStream* socket = stream_of(descriptor);
  return static_cast<int>(result_of(socket == nullptr ? -EBADF : socket->connect(peer)));
}

int SimMachine::take_error(int descriptor) noexcept {
  SimSocket* socket = socket_of(descriptor);
  return socket == nullptr ? EBADF : socket->take_error();
}

Socket SimMachine::accept(int listener) {
  SimStream* socket = stream_of(listener);
  SimStream* accepted = socket == nullptr ? nullptr : kernel_.find_stream(socket->accept());
  if (accepted == nullptr) {
    errno = socket == nullptr ? EBADF : EAGAIN;
    return {};
  }
  kernel_.note(SimEvent::accept, accepted->number(), 0);
  const int descriptor = kernel_.next_descriptor();
  descriptors_.emplace(descriptor, accepted);  // which was counted when it came
  return Socket(descriptor, this);
}

ssize_t SimMachine::receive(int descriptor, std::span<std::byte> memory) {
  SimStream* socket = stream_of(descriptor);
  return result_of(socket == nullptr ? -EBADF : socket->receive(memory, nullptr));
}

ssize_t SimMachine::receive(int descriptor, std::span<std::byte> memory, std::size_t most,
                            Result<std::vector<Socket>, std::error_code>& descriptors) {
  SimStream* socket = stream_of(descriptor);
  if (socket == nullptr) return result_of(-EBADF);
  std::vector<Socket> all;
  const ssize_t received = socket->receive(memory, &all);
  if (all.size() > most) {
    descriptors = make_error_code(errc::limit_exceeded);
  } else {
    descriptors = std::move(all);
  }
  return result_of(received);
}

ssize_t SimMachine::send(int descriptor, std::span<iovec> vectors, std::span<const Socket> descriptors) {
  SimStream* socket = stream_of(descriptor);
  if (socket == nullptr) return result_of(-EBADF);
  std::vector<Socket> copies;
  for (const Socket& passed : descriptors) {
    if (passed.space() == nullptr) {
      copies.emplace_back(::fcntl(passed.descriptor(), F_DUPFD_CLOEXEC, 0));
      if (!copies.back()) return -1;
    } else if (SimSocket* simulated = socket_of(passed.descriptor())) {
      copies.push_back(descriptor_for(*simulated));
    } else {
      return result_of(-EBADF);
    }
  }
  return result_of(socket->send(vectors, std::move(copies)));
}

// Files are the system's, and the network is not: whoever sends from them reads them.
ssize_t SimMachine::send_file(int, int, std::uint64_t, std::size_t) {
  return result_of(-ENOSYS);
}

// --- datagrams

SimDatagram& SimMachine::add_datagram(int family) {
  SimDatagram& socket = kernel_.make_datagram(*this, family);
  socket.set_local(unnamed(family), false);
  datagrams_.push_back(&socket);
  return socket;
}

Result<ReadyDatagramSocket> SimMachine::make_datagram(const Endpoint& local, const DatagramOptions& options) {
  const Result<int> family = datagram_family(local, options);
  if (!family) return family.error();
  const std::string what = "datagram socket on " + local.to_string();
  if (dead_) return Error(system_error_code(ENETDOWN), what);
  if (!is_simulated(family.value())) return Error(system_error_code(EAFNOSUPPORT), what);
  SimDatagram& socket = add_datagram(family.value());
  ReadyDatagramSocket ready{descriptor_for(socket), family.value(), false, false, {}};
  socket.set_options(options.socket);
  std::string path;
  if (local.family() != AF_UNSPEC) {
    const std::error_code error = bind(socket, local, options.socket.reuse_port.value_or(false));
    if (error) return Error(error, what);
    if (!local.unix_path().starts_with('@')) path = local.unix_path();
  }
  Result<ReadyDatagramSocket> result = with_peer(std::move(ready), socket, options);
  if (result) {
    result.value().path = std::move(path);
  } else {
    remove_path(path);
  }
  return result;
}

Result<ReadyDatagramSocket> SimMachine::adopt_datagram(Socket socket, const DatagramOptions& options) {
  if (Status valid = check_datagram_options(options); !valid) return valid.error();
  SimDatagram* const found = socket.space() == this ? datagram_of(socket.descriptor()) : nullptr;
  if (found == nullptr) {
    return Error(errc::invalid_argument,
                 "the descriptor is no datagram socket of this simulated host (expected UDP or unix)");
  }
  found->set_options(options.socket);
  return with_peer({std::move(socket), found->family(), false, false, {}}, *found, options);
}

Socket SimMachine::make_room_probe(const Endpoint& to) noexcept {
  if (!to.is_unix()) return {};
  SimDatagram& probe = add_datagram(AF_UNIX);
  Socket made = descriptor_for(probe);
  return probe.connect(to) == 0 ? std::move(made) : Socket();
}

bool SimMachine::has_send_room(int descriptor) noexcept {
  const SimDatagram* socket = datagram_of(descriptor);
  return socket != nullptr && socket->has_send_room();
}

int SimMachine::send_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept {
  SimDatagram* socket = datagram_of(descriptor);
  if (!batched) messages = messages.first(1);
  return static_cast<int>(result_of(socket == nullptr ? -EBADF : socket->send(messages)));
}

int SimMachine::receive_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept {
  SimDatagram* socket = datagram_of(descriptor);
  if (!batched) messages = messages.first(1);
  return static_cast<int>(result_of(socket == nullptr ? -EBADF : socket->receive(messages)));
}

std::optional<Refusal> SimMachine::take_refusal(int descriptor) noexcept {
  SimDatagram* socket = datagram_of(descriptor);
  return socket == nullptr ? std::nullopt : socket->take_refusal();
}

void SimMachine::add_datagram_capabilities(std::vector<std::string>& names) {
  names.emplace_back("datagram_batches");
  names.emplace_back("datagram_refusals");
}

}  // namespace linkspan
