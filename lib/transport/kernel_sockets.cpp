// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/sendfile.h>

#include <csignal>
#endif

#include <cerrno>

#include "lib/base/never_destroyed.hpp"
#include "lib/transport/descriptor_message.hpp"
#include "lib/transport/socket_ops.hpp"
#include "lib/transport/socket_options.hpp"
#include "lib/transport/socket_system.hpp"

namespace linkspan {
namespace {

#ifdef __linux__

// sendfile has no MSG_NOSIGNAL.
class NoSigpipe {
 public:
  NoSigpipe() noexcept {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~NoSigpipe() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

  /// A call has failed with EPIPE, so the signal is pending on this thread.
  void take() const noexcept {
    constexpr timespec kNow{};
    static_cast<void>(::sigtimedwait(&sigpipe_, nullptr, &kNow));
  }

 private:
  sigset_t sigpipe_;
  sigset_t before_;
};

// Like send: bytes, or -1 and errno; 0 at the end of the file.
ssize_t send_from_file(int socket, int file, std::uint64_t offset, std::size_t bytes) noexcept {
  const NoSigpipe no_sigpipe;
  auto at = static_cast<off_t>(offset);
  const ssize_t sent = ::sendfile(socket, file, &at, bytes);
  if (sent < 0 && errno == EPIPE) {
    no_sigpipe.take();
    errno = EPIPE;
  }
  return sent;
}

#else

ssize_t send_from_file(int, int, std::uint64_t, std::size_t) noexcept {
  errno = ENOSYS;
  return -1;
}

#endif

int accept_one(int listener) noexcept {
#ifdef __linux__
  return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
#else
  const int accepted = ::accept(listener, nullptr, nullptr);
  if (accepted >= 0) static_cast<void>(::fcntl(accepted, F_SETFD, FD_CLOEXEC));
  return accepted;
#endif
}

class KernelSockets final : public SocketSystem {
 public:
  Result<Socket> make_listening(const Endpoint& endpoint, const ListenOptions& options) override {
    return make_listening_socket(endpoint, options);
  }
  Status adopt_listening(const Socket& socket) override {
    if (socket.space() != nullptr) {
      return Error(errc::invalid_argument, "a simulated socket needs the transport of its network");
    }
    return adopt_listening_socket(socket.descriptor());
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
  bool can_pass(const Socket& socket) const noexcept override { return socket.space() == nullptr; }
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

  int connect(int descriptor, const Endpoint& peer) override {
    return ::connect(descriptor, peer.address(), static_cast<socklen_t>(peer.address_size()));
  }
  int take_error(int descriptor) noexcept override { return take_socket_error(descriptor); }
  Socket accept(int listener) override { return Socket(accept_one(listener)); }
  ssize_t receive(int descriptor, std::span<std::byte> memory) override {
    return ::recv(descriptor, memory.data(), memory.size(), 0);
  }
  ssize_t receive(int descriptor, std::span<std::byte> memory, std::size_t most,
                  Result<std::vector<Socket>, std::error_code>& descriptors) override {
    DescriptorMessage message;
    const ssize_t received =
        ::recvmsg(descriptor, &message.to_receive(memory, most), DescriptorMessage::kReceiveFlags);
    if (received >= 0) descriptors = message.take(most);
    return received;
  }
  ssize_t send(int descriptor, std::span<iovec> vectors, std::span<const Socket> descriptors) override {
    if (!descriptors.empty()) {
      DescriptorMessage message;
      return ::sendmsg(descriptor, &message.to_send(vectors, descriptors), kNoSignal);
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    return ::sendmsg(descriptor, &message, kNoSignal);
  }
  ssize_t send_file(int descriptor, int file, std::uint64_t offset, std::size_t bytes) override {
    return send_from_file(descriptor, file, offset, bytes);
  }

  Result<ReadyDatagramSocket> make_datagram(const Endpoint& local, const DatagramOptions& options) override {
    return make_datagram_socket(local, options);
  }
  Result<ReadyDatagramSocket> adopt_datagram(Socket socket, const DatagramOptions& options) override {
    if (socket.space() != nullptr) {
      return Error(errc::invalid_argument, "a simulated socket needs the transport of its network");
    }
    return adopt_datagram_socket(std::move(socket), options);
  }
  Socket make_room_probe(const Endpoint& to) noexcept override { return linkspan::make_room_probe(to); }
  bool has_send_room(int descriptor) noexcept override { return linkspan::has_send_room(descriptor); }
  int send_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept override {
    return linkspan::send_messages(descriptor, messages, batched);
  }
  int receive_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept override {
    return linkspan::receive_messages(descriptor, messages, batched);
  }
  std::optional<Refusal> take_refusal(int descriptor) noexcept override {
    return linkspan::take_refusal(descriptor);
  }
  void add_datagram_capabilities(std::vector<std::string>& names) override {
    linkspan::add_datagram_capabilities(names);
  }
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
