// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/datagram_ops.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#ifdef __linux__
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#endif

#include "lib/transport/socket_ops.hpp"
#include "lib/transport/socket_options.hpp"

namespace linkspan {
namespace {

#ifdef __linux__
// Since Linux 4.18 and 5.0; older headers lack them.
constexpr int kUdpSegment = 103;
constexpr int kUdpGro = 104;
#endif

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
#else
constexpr int kSendFlags = MSG_DONTWAIT;  // a datagram socket raises no SIGPIPE there
#endif

bool set_option(int descriptor, int level, int name, int value) noexcept {
  return ::setsockopt(descriptor, level, name, &value, sizeof(value)) == 0;
}

int option_of(int descriptor, int level, int name) noexcept {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(descriptor, level, name, &value, &size) == 0 ? value : -1;
}

bool connect_to(int descriptor, const Endpoint& peer) noexcept {
  return ::connect(descriptor, peer.address(), static_cast<socklen_t>(peer.address_size())) == 0;
}

bool bind_to(int descriptor, const Endpoint& local) noexcept {
  return ::bind(descriptor, local.address(), static_cast<socklen_t>(local.address_size())) == 0;
}

Socket make_socket(int family) noexcept {
#ifdef SOCK_CLOEXEC
  return Socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
#else
  Socket socket(::socket(family, SOCK_DGRAM, 0));
  if (socket) static_cast<void>(::fcntl(socket.descriptor(), F_SETFD, FD_CLOEXEC));
  return socket;
#endif
}

// A path whose socket nobody has open any more. Any other file is not ours to remove.
bool is_stale(const Endpoint& endpoint) noexcept {
  struct stat file {};
  if (::lstat(endpoint.unix_path().c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  const Socket probe = make_socket(AF_UNIX);
  return probe && !connect_to(probe.descriptor(), endpoint) && errno == ECONNREFUSED;
}

bool bind_or_take_over(int descriptor, const Endpoint& local) noexcept {
  if (bind_to(descriptor, local)) return true;
  if (errno != EADDRINUSE || !local.is_unix()) return false;
  if (is_stale(local)) {
    static_cast<void>(::unlink(local.unix_path().c_str()));
    return bind_to(descriptor, local);
  }
  errno = EADDRINUSE;
  return false;
}

// What every socket gets once it has its options and its address.
Result<ReadyDatagramSocket> finish(Socket socket, int family, const DatagramOptions& options) {
  const int descriptor = socket.descriptor();
  ReadyDatagramSocket ready{std::move(socket), family, false, false, {}};
#ifdef __linux__
  if (family == AF_INET6) set_option(descriptor, IPPROTO_IPV6, IPV6_RECVERR, 1);
  if (family != AF_UNIX) {
    set_option(descriptor, IPPROTO_IP, IP_RECVERR, 1);  // an IPv6 socket may send to IPv4 too
    ready.segments = options.segment_sends && option_of(descriptor, IPPROTO_UDP, kUdpSegment) == 0;
    // Off as well: an adopted socket may have it on.
    ready.coalesces = set_option(descriptor, IPPROTO_UDP, kUdpGro, options.coalesce_receives ? 1 : 0) &&
                      options.coalesce_receives;
  }
#endif
  if (options.peer.family() != AF_UNSPEC && !connect_to(descriptor, options.peer)) {
    return Error(system_error_code(errno), "connecting a datagram socket to " + options.peer.to_string());
  }
  return ready;
}

}  // namespace

Status check_datagram_options(const DatagramOptions& options) {
  if (options.max_receive_bytes == 0 || options.max_receive_bytes > kMaxReceiveBytes) {
    return Error(errc::invalid_argument, "max_receive_bytes is " + std::to_string(options.max_receive_bytes) +
                                             " (expected 1 to " + std::to_string(kMaxReceiveBytes) + ")");
  }
  if (options.receive_batch == 0) {
    return Error(errc::invalid_argument, "receive_batch is 0 (expected at least 1)");
  }
  if (options.queue_messages == 0) {
    return Error(errc::invalid_argument, "queue_messages is 0 (expected at least 1)");
  }
  return std::monostate();
}

Result<int> datagram_family(const Endpoint& local, const DatagramOptions& options) {
  if (Status valid = check_datagram_options(options); !valid) return valid.error();
  const int family = local.family() != AF_UNSPEC ? local.family() : options.peer.family();
  if (family == AF_UNSPEC) {
    return Error(errc::invalid_argument, "a datagram socket has an address, a peer, or both");
  }
  return family;
}

Result<ReadyDatagramSocket> make_datagram_socket(const Endpoint& local, const DatagramOptions& options) {
  const Result<int> checked = datagram_family(local, options);
  if (!checked) return checked.error();
  const int family = checked.value();
  Socket socket = make_socket(family);
  if (!socket) return Error(system_error_code(errno), "datagram socket for " + local.to_string());
  const int descriptor = socket.descriptor();
  if (Status set = set_socket_options(descriptor, family, SOCK_DGRAM, SocketStage::unbound, options.socket);
      !set) {
    return set.error();
  }
  if (local.family() != AF_UNSPEC && !bind_or_take_over(descriptor, local)) {
    return Error(system_error_code(errno), "datagram socket on " + local.to_string());
  }
  const std::string path = local.unix_path();
  const bool has_file = !path.empty() && path.front() != '@';
  Result<ReadyDatagramSocket> ready = finish(std::move(socket), family, options);
  if (ready && has_file) ready.value().path = path;
  if (!ready && has_file) static_cast<void>(::unlink(path.c_str()));
  return ready;
}

Result<ReadyDatagramSocket> adopt_datagram_socket(Socket socket, const DatagramOptions& options) {
  if (Status valid = check_datagram_options(options); !valid) return valid.error();
  const int descriptor = socket.descriptor();
  const int family = local_endpoint_of(descriptor).family();
  if (option_of(descriptor, SOL_SOCKET, SO_TYPE) != SOCK_DGRAM ||
      (family != AF_INET && family != AF_INET6 && family != AF_UNIX)) {
    return Error(errc::invalid_argument, "the descriptor is no datagram socket (expected UDP or unix)");
  }
  if (Status set = set_socket_options(descriptor, family, SOCK_DGRAM, SocketStage::connected, options.socket);
      !set) {
    return set.error();
  }
  return finish(std::move(socket), family, options);
}

void stop_coalescing(ReadyDatagramSocket& ready) noexcept {
#ifdef __linux__
  if (ready.coalesces) set_option(ready.socket.descriptor(), IPPROTO_UDP, kUdpGro, 0);
#endif
  ready.coalesces = false;
}

Socket make_room_probe(const Endpoint& to) noexcept {
  if (!to.is_unix()) return {};
  Socket probe = make_socket(AF_UNIX);
  return probe && connect_to(probe.descriptor(), to) ? std::move(probe) : Socket();
}

bool has_send_room(int descriptor) noexcept {
#ifdef __linux__
  int unsent = 0;
  return ::ioctl(descriptor, SIOCOUTQ, &unsent) != 0 || unsent < option_of(descriptor, SOL_SOCKET, SO_SNDBUF);
#else
  static_cast<void>(descriptor);
  return true;
#endif
}

int send_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept {
#if LINKSPAN_HAS_MESSAGE_BATCHES
  if (batched) {
    return ::sendmmsg(descriptor, messages.data(), static_cast<unsigned>(messages.size()), kSendFlags);
  }
#endif
  static_cast<void>(batched);
  return ::sendmsg(descriptor, &messages.front().msg_hdr, kSendFlags) < 0 ? -1 : 1;
}

int receive_messages(int descriptor, std::span<MessageHeader> messages, bool batched) noexcept {
#if LINKSPAN_HAS_MESSAGE_BATCHES
  if (batched) {
    return ::recvmmsg(descriptor, messages.data(), static_cast<unsigned>(messages.size()), MSG_DONTWAIT,
                      nullptr);
  }
#endif
  static_cast<void>(batched);
  const ssize_t received = ::recvmsg(descriptor, &messages.front().msg_hdr, MSG_DONTWAIT);
  if (received < 0) return -1;
  messages.front().msg_len = static_cast<unsigned>(received);
  return 1;
}

void send_in_segments(msghdr& message, SegmentControl& control, std::size_t segment_bytes) noexcept {
#ifdef __linux__
  const auto value = static_cast<std::uint16_t>(segment_bytes);
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = IPPROTO_UDP;
  header->cmsg_type = kUdpSegment;
  header->cmsg_len = CMSG_LEN(sizeof(value));
  std::memcpy(CMSG_DATA(header), &value, sizeof(value));  // tidy: moves handles, not bytes
#else
  static_cast<void>(message);
  static_cast<void>(control);
  static_cast<void>(segment_bytes);
#endif
}

std::size_t segment_bytes_of(const msghdr& message) noexcept {
#ifdef __linux__
  msghdr& headers = const_cast<msghdr&>(message);
  for (cmsghdr* header = CMSG_FIRSTHDR(&headers); header != nullptr; header = CMSG_NXTHDR(&headers, header)) {
    if (header->cmsg_level != IPPROTO_UDP || header->cmsg_type != kUdpGro) continue;
    int bytes = 0;
    std::memcpy(&bytes, CMSG_DATA(header), sizeof(bytes));  // tidy: moves handles, not bytes
    return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
  }
#else
  static_cast<void>(message);
#endif
  return 0;
}

std::optional<Refusal> take_refusal(int descriptor) noexcept {
#ifdef __linux__
  alignas(cmsghdr) std::array<std::byte, 256> control;  // an extended error and the address of who sent it
  sockaddr_storage to{};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = sizeof(to);
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return std::nullopt;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    const bool extended = (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_RECVERR) ||
                          (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_RECVERR);
    if (!extended) continue;
    sock_extended_err error{};
    std::memcpy(&error, CMSG_DATA(header), sizeof(error));  // tidy: moves handles, not bytes
    // A local one is what a send of ours has returned.
    if (error.ee_origin != SO_EE_ORIGIN_ICMP && error.ee_origin != SO_EE_ORIGIN_ICMP6) break;
    return Refusal{static_cast<int>(error.ee_errno),
                   Endpoint(reinterpret_cast<const sockaddr*>(&to), message.msg_namelen)};
  }
  return Refusal{0, {}};
#else
  static_cast<void>(descriptor);
  return std::nullopt;
#endif
}

void add_datagram_capabilities(std::vector<std::string>& names) {
  if (LINKSPAN_HAS_MESSAGE_BATCHES) names.emplace_back("datagram_batches");
  if (kHasRefusalQueue) names.emplace_back("datagram_refusals");
#ifdef __linux__
  const Socket probe = make_socket(AF_INET);
  if (!probe) return;
  if (option_of(probe.descriptor(), IPPROTO_UDP, kUdpSegment) == 0) names.emplace_back("udp_segments");
  if (set_option(probe.descriptor(), IPPROTO_UDP, kUdpGro, 1)) names.emplace_back("udp_coalescing");
#endif
}

}  // namespace linkspan
