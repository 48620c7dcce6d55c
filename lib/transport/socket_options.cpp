// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/socket_options.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace linkspan {
namespace {

struct SystemOption {
  int level;
  int name;
};
[[maybe_unused]] constexpr SystemOption kNone{-1, -1};  // this system has no such option

#ifdef __linux__
constexpr SystemOption kKeepAliveIdle{IPPROTO_TCP, TCP_KEEPIDLE};
constexpr SystemOption kKeepAliveInterval{IPPROTO_TCP, TCP_KEEPINTVL};
constexpr SystemOption kKeepAliveCount{IPPROTO_TCP, TCP_KEEPCNT};
constexpr SystemOption kUserTimeout{IPPROTO_TCP, TCP_USER_TIMEOUT};
constexpr SystemOption kQuickAck{IPPROTO_TCP, TCP_QUICKACK};
constexpr SystemOption kCongestionControl{IPPROTO_TCP, TCP_CONGESTION};
constexpr SystemOption kInterface{SOL_SOCKET, SO_BINDTODEVICE};
constexpr SystemOption kFastOpen{IPPROTO_TCP, TCP_FASTOPEN_CONNECT};
constexpr SystemOption kFastOpenQueue{IPPROTO_TCP, TCP_FASTOPEN};
constexpr SystemOption kDeferAccept{IPPROTO_TCP, TCP_DEFER_ACCEPT};
constexpr int kBufferFactor = 2;  // Linux doubles what is asked for, for its own bookkeeping
#else
#ifdef TCP_KEEPIDLE
constexpr SystemOption kKeepAliveIdle{IPPROTO_TCP, TCP_KEEPIDLE};
#elif defined(TCP_KEEPALIVE)
constexpr SystemOption kKeepAliveIdle{IPPROTO_TCP, TCP_KEEPALIVE};
#else
constexpr SystemOption kKeepAliveIdle = kNone;
#endif
#ifdef TCP_KEEPINTVL
constexpr SystemOption kKeepAliveInterval{IPPROTO_TCP, TCP_KEEPINTVL};
constexpr SystemOption kKeepAliveCount{IPPROTO_TCP, TCP_KEEPCNT};
#else
constexpr SystemOption kKeepAliveInterval = kNone;
constexpr SystemOption kKeepAliveCount = kNone;
#endif
constexpr SystemOption kUserTimeout = kNone;
constexpr SystemOption kQuickAck = kNone;
constexpr SystemOption kCongestionControl = kNone;
constexpr SystemOption kInterface = kNone;
constexpr SystemOption kFastOpen = kNone;
constexpr SystemOption kFastOpenQueue = kNone;
constexpr SystemOption kDeferAccept = kNone;
constexpr int kBufferFactor = 1;
#endif

// Sets options until one is refused, and keeps why.
class Setter {
 public:
  explicit Setter(int descriptor) noexcept : descriptor_(descriptor) {}

  [[nodiscard]] Status result() && { return std::move(status_); }

  template <class T>
  void number(std::string_view name, SystemOption option, std::optional<T> value) {
    if (!value || !status_) return;
    const std::string text = std::to_string(*value);
    if (!std::in_range<int>(*value)) {
      status_ = Error(errc::invalid_argument, describe(name, text) + " is not a number that a socket takes");
      return;
    }
    const int raw = static_cast<int>(*value);
    set(name, option, text, &raw, sizeof(raw));
  }

  void flag(std::string_view name, SystemOption option, std::optional<bool> value) {
    if (!value || !status_) return;
    const int raw = *value ? 1 : 0;
    set(name, option, *value ? "true" : "false", &raw, sizeof(raw));
  }

  void text(std::string_view name, SystemOption option, const std::string& value) {
    if (value.empty() || !status_) return;
    set(name, option, value, value.c_str(), value.size());
  }

  template <class Duration>
  void duration(std::string_view name, SystemOption option, std::optional<Duration> value) {
    if (value) number(name, option, std::optional(value->count()));
  }

  void buffer(std::string_view name, int option, std::optional<std::size_t> bytes) {
    number(name, {SOL_SOCKET, option}, bytes);
    if (!bytes || !status_) return;
    int granted = 0;
    socklen_t size = sizeof(granted);
    static_cast<void>(::getsockopt(descriptor_, SOL_SOCKET, option, &granted, &size));
    const std::size_t usable = static_cast<std::size_t>(granted) / kBufferFactor;
    if (usable < *bytes) {
      status_ = Error(errc::unavailable, describe(name, std::to_string(*bytes)) + ": the system grants " +
                                             std::to_string(usable) + " at most");
    }
  }

  void linger(std::optional<std::chrono::seconds> value) {
    if (!value || !status_) return;
    const std::string text = std::to_string(value->count());
    if (value->count() < 0 || !std::in_range<int>(value->count())) {
      status_ = Error(errc::invalid_argument, describe("linger", text) + " is no time that a socket takes");
      return;
    }
    const struct linger raw { 1, static_cast<int>(value->count()) };
    set("linger", {SOL_SOCKET, SO_LINGER}, text, &raw, sizeof(raw));
  }

  void local_address(const Endpoint& address) {
    if (address.family() == AF_UNSPEC || !status_) return;
#ifdef IP_BIND_ADDRESS_NO_PORT
    // Lets connect() choose the port, which then may be that of another connection to elsewhere.
    if (!address.is_unix() && address.port() == 0) {
      flag("local_address", {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT}, true);
    }
#endif
    if (::bind(descriptor_, address.address(), static_cast<socklen_t>(address.address_size())) != 0) {
      status_ = Error(system_error_code(errno), describe("local_address", address.to_string()));
    }
  }

 private:
  static std::string describe(std::string_view name, const std::string& value) {
    return "socket option " + std::string(name) + " = " + value;
  }

  void set(std::string_view name, SystemOption option, const std::string& text, const void* value,
           std::size_t size) {
    if (option.level < 0) {
      status_ = Error(errc::unavailable, describe(name, text) + ": this system has no such option");
    } else if (::setsockopt(descriptor_, option.level, option.name, value, static_cast<socklen_t>(size)) !=
               0) {
      status_ = Error(system_error_code(errno), describe(name, text));
    }
  }

  int descriptor_;
  Status status_ = std::monostate{};
};

bool is_internet(int family) noexcept {
  return family == AF_INET || family == AF_INET6;
}

}  // namespace

Status set_socket_options(int descriptor, int family, int type, SocketStage stage,
                          const SocketOptions& options) {
  Setter setter(descriptor);
  setter.buffer("send_buffer_bytes", SO_SNDBUF, options.send_buffer_bytes);
  setter.buffer("receive_buffer_bytes", SO_RCVBUF, options.receive_buffer_bytes);
  if (!is_internet(family)) return std::move(setter).result();
  setter.text("interface", kInterface, options.interface);
  if (stage == SocketStage::unbound) {
    setter.flag("reuse_address", {SOL_SOCKET, SO_REUSEADDR}, options.reuse_address);
    setter.flag("reuse_port", {SOL_SOCKET, SO_REUSEPORT}, options.reuse_port);
    if (family == AF_INET6) setter.flag("ipv6_only", {IPPROTO_IPV6, IPV6_V6ONLY}, options.ipv6_only);
  }
  if (type != SOCK_STREAM) return std::move(setter).result();
  setter.flag("no_delay", {IPPROTO_TCP, TCP_NODELAY}, options.no_delay);
  setter.flag("keep_alive", {SOL_SOCKET, SO_KEEPALIVE}, options.keep_alive);
  setter.duration("keep_alive_idle", kKeepAliveIdle, options.keep_alive_idle);
  setter.duration("keep_alive_interval", kKeepAliveInterval, options.keep_alive_interval);
  setter.number("keep_alive_count", kKeepAliveCount, options.keep_alive_count);
  setter.linger(options.linger);
  setter.duration("user_timeout", kUserTimeout, options.user_timeout);
  setter.text("congestion_control", kCongestionControl, options.congestion_control);
  if (stage == SocketStage::connected) setter.flag("quick_ack", kQuickAck, options.quick_ack);
  return std::move(setter).result();
}

Status set_quick_ack(int descriptor, int family, const SocketOptions& options) {
  Setter setter(descriptor);
  if (is_internet(family)) setter.flag("quick_ack", kQuickAck, options.quick_ack);
  return std::move(setter).result();
}

Status set_connecting_options(int descriptor, int family, const StreamOptions& options) {
  Status status = set_socket_options(descriptor, family, SOCK_STREAM, SocketStage::unbound, options.socket);
  if (!status) return status;
  Setter setter(descriptor);
  if (is_internet(family)) setter.flag("fast_open", kFastOpen, options.fast_open);
  setter.local_address(options.local_address);
  return std::move(setter).result();
}

Status set_listening_options(int descriptor, int family, const ListenOptions& options) {
  Status status = set_socket_options(descriptor, family, SOCK_STREAM, SocketStage::unbound, options.socket);
  if (!status || !is_internet(family)) return status;
  Setter setter(descriptor);
  setter.number("fast_open_queue", kFastOpenQueue, options.fast_open_queue);
  setter.duration("defer_accept", kDeferAccept, options.defer_accept);
  return std::move(setter).result();
}

}  // namespace linkspan
