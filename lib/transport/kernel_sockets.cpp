// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/never_destroyed.hpp"
#include "lib/transport/socket_ops.hpp"
#include "lib/transport/socket_options.hpp"
#include "lib/transport/socket_system.hpp"

namespace linkspan {
namespace {

class KernelSockets final : public SocketSystem {
 public:
  Result<Socket> make_listening(const Endpoint& endpoint, const ListenOptions& options) override {
    return make_listening_socket(endpoint, options);
  }
  Result<Socket> make_connecting(const Endpoint& peer, const StreamOptions& options) override {
    return make_connecting_socket(peer, options);
  }
  Status adopt_stream(const Socket& socket, const SocketOptions& options) override {
    if (socket.space() != nullptr) {
      return Error(errc::invalid_argument, "a simulated socket needs the transport of its network");
    }
    return adopt_stream_socket(socket.descriptor(), options);
  }
  Status set_connected_options(int descriptor, const SocketOptions& options) override {
    return set_quick_ack(descriptor, peer_endpoint_of(descriptor).family(), options);
  }
  Endpoint local_endpoint(int descriptor) noexcept override { return local_endpoint_of(descriptor); }
  Endpoint peer_endpoint(int descriptor) noexcept override { return peer_endpoint_of(descriptor); }
  std::size_t unread_bytes(int descriptor) noexcept override { return linkspan::unread_bytes(descriptor); }
  void end_sending(int descriptor) noexcept override { ::shutdown(descriptor, SHUT_WR); }
  void before_close(int descriptor, bool reset) noexcept override {
    if (reset) {
      reset_on_close(descriptor);
    } else {
      never_wait_on_close(descriptor);
    }
  }
  void close_socket(int descriptor) noexcept override { ::close(descriptor); }
  void remove_path(const std::string& path) noexcept override { ::unlink(path.c_str()); }
};

}  // namespace

SocketSystem& kernel_sockets() noexcept {
  static NeverDestroyed<KernelSockets> sockets;
  return sockets.get();
}

SocketSpace::~SocketSpace() = default;

void Socket::close() noexcept {
  if (descriptor_ < 0) return;
  const int descriptor = std::exchange(descriptor_, -1);
  if (space_ != nullptr) {
    space_->close_socket(descriptor);
  } else {
    ::close(descriptor);
  }
}

}  // namespace linkspan
