// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/socket_ops.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lib/transport/socket_options.hpp"

namespace linkspan {
namespace {

// For defaults: that a socket does not know them is no reason to refuse it.
void set_option(int descriptor, int level, int name, int value) noexcept {
  static_cast<void>(::setsockopt(descriptor, level, name, &value, sizeof(value)));
}

void make_non_blocking(int descriptor) noexcept {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) == 0)
    static_cast<void>(::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK));
}

// A path whose socket nobody listens on any more was left behind by a process that died. Any other file is
// not ours to remove; connecting to one is refused as well.
bool is_stale(const Endpoint& endpoint) noexcept {
  struct stat file {};
  if (::lstat(endpoint.unix_path().c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  const Result<Socket, std::error_code> probe = make_stream_socket(endpoint.family());
  if (!probe) return false;
  return ::connect(probe.value().descriptor(), endpoint.address(),
                   static_cast<socklen_t>(endpoint.address_size())) != 0 &&
         errno == ECONNREFUSED;
}

void set_stream_defaults(int descriptor, int family) noexcept {
#ifdef SO_NOSIGPIPE
  set_option(descriptor, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
  if (family != AF_UNIX) set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
}

bool is_listening(int descriptor) noexcept {
  int listening = 0;
  socklen_t size = sizeof(listening);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0;
}

// Of a stream socket without a peer: it had one, and a reset took it away. Takes no error out of it.
bool was_connected(int descriptor) noexcept {
  pollfd state{descriptor, POLLIN, 0};
  return !is_listening(descriptor) && ::poll(&state, 1, 0) == 1 && (state.revents & (POLLIN | POLLERR)) != 0;
}

using NameFunction = int (*)(int, sockaddr*, socklen_t*);

Endpoint endpoint_from(NameFunction function, int descriptor) noexcept {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (function(descriptor, address, &size) != 0) return {};
  return {address, size};
}

}  // namespace

Result<Socket, std::error_code> make_stream_socket(int family) noexcept {
#ifdef SOCK_NONBLOCK
  const int descriptor = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return system_error_code(errno);
  return Socket(descriptor);
#else
  const int descriptor = ::socket(family, SOCK_STREAM, 0);
  if (descriptor < 0) return system_error_code(errno);
  static_cast<void>(::fcntl(descriptor, F_SETFD, FD_CLOEXEC));
  make_non_blocking(descriptor);
  return Socket(descriptor);
#endif
}

Result<Socket> make_listening_socket(const Endpoint& endpoint, const ListenOptions& options) {
  Result<Socket, std::error_code> made = make_stream_socket(endpoint.family());
  if (!made) return Error(made.error(), "socket for " + endpoint.to_string());
  Socket socket = std::move(made).value();
  const int descriptor = socket.descriptor();
  if (!endpoint.is_unix()) set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
  const Status status = set_listening_options(descriptor, endpoint.family(), options);
  if (!status)
    return Error(status.error().code, "listening on " + endpoint.to_string() + ": " + status.error().detail);
  const auto bind_it = [&] {
    return ::bind(descriptor, endpoint.address(), static_cast<socklen_t>(endpoint.address_size())) == 0;
  };
  bool bound = bind_it();
  if (!bound && errno == EADDRINUSE && endpoint.is_unix()) {
    const bool stale = is_stale(endpoint);
    errno = EADDRINUSE;
    if (stale) {
      static_cast<void>(::unlink(endpoint.unix_path().c_str()));
      bound = bind_it();
    }
  }
  if (!bound) return Error(system_error_code(errno), "listening on " + endpoint.to_string());
  if (::listen(descriptor, options.backlog) != 0) {
    return Error(system_error_code(errno), "listening on " + endpoint.to_string());
  }
  return socket;
}

Status adopt_listening_socket(int descriptor) {
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    return Error(errc::invalid_argument, "a listener needs a socket");
  }
  if (type != SOCK_STREAM) return Error(errc::invalid_argument, "a listener needs a stream socket");
  if (!is_listening(descriptor)) {
    return Error(errc::invalid_argument,
                 "a listener needs a socket that listens: listen() was not called on it");
  }
  static_cast<void>(::fcntl(descriptor, F_SETFD, FD_CLOEXEC));
  make_non_blocking(descriptor);
  return std::monostate{};
}

Result<Socket> make_connecting_socket(const Endpoint& peer, const StreamOptions& options) {
  Result<Socket, std::error_code> made = make_stream_socket(peer.family());
  if (!made) return Error(made.error(), "socket for " + peer.to_string());
  const int descriptor = made.value().descriptor();
  set_stream_defaults(descriptor, peer.family());
  const Status status = set_connecting_options(descriptor, peer.family(), options);
  if (!status) {
    return Error(status.error().code, "connecting to " + peer.to_string() + ": " + status.error().detail);
  }
  return std::move(made).value();
}

Status adopt_stream_socket(int descriptor, const SocketOptions& options) {
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
    return Error(errc::invalid_argument, "a stream needs a socket");
  }
  if (type != SOCK_STREAM) return Error(errc::invalid_argument, "a stream needs a stream socket");
  int family = peer_endpoint_of(descriptor).family();
  if (family == AF_UNSPEC) {
    if (!was_connected(descriptor)) {
      return Error(errc::invalid_argument, "a stream needs a socket that is connected");
    }
    family = local_endpoint_of(descriptor).family();
  }
  make_non_blocking(descriptor);
  set_stream_defaults(descriptor, family);
  return set_socket_options(descriptor, family, SOCK_STREAM, SocketStage::connected, options);
}

Endpoint local_endpoint_of(int descriptor) noexcept {
  return endpoint_from(&::getsockname, descriptor);
}
Endpoint peer_endpoint_of(int descriptor) noexcept {
  return endpoint_from(&::getpeername, descriptor);
}

int take_socket_error(int descriptor) noexcept {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

std::size_t unread_bytes(int descriptor) noexcept {
  int bytes = 0;
  if (::ioctl(descriptor, FIONREAD, &bytes) != 0 || bytes < 0) return 0;
  return static_cast<std::size_t>(bytes);
}

void never_wait_on_close(int descriptor) noexcept {
  linger set{};
  socklen_t size = sizeof(set);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_LINGER, &set, &size) != 0) return;
  if (set.l_onoff == 0 || set.l_linger == 0) return;
  set.l_onoff = 0;
  static_cast<void>(::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &set, sizeof(set)));
}

void reset_on_close(int descriptor) noexcept {
  const linger now{1, 0};
  static_cast<void>(::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
}

std::error_code stream_error(int error) noexcept {
  switch (error) {
    case ECONNRESET:
    case EPIPE:
    case ECONNABORTED:
    case ENOTCONN:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
#ifdef EHOSTDOWN
    case EHOSTDOWN:
#endif
      return connection_lost(error);
    default: return system_error_code(error);
  }
}

AcceptError classify_accept_error(int error) noexcept {
  switch (error) {
    case EAGAIN: return AcceptError::nothing_waits;
    // Errors of the connection itself, which Linux hands through accept (accept(2), "Error handling").
    case ECONNABORTED:
    case EINTR:
    case EPROTO:
    case EPERM:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case ETIMEDOUT: return AcceptError::connection;
    default: return AcceptError::resources;
  }
}

}  // namespace linkspan
