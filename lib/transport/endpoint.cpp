// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/transport/endpoint.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace linkspan {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

Error not_an_endpoint(std::string_view text, std::string_view why) {
  return Error(errc::invalid_argument, "\"" + std::string(text) +
                                           "\" is not an address: " + std::string(why) +
                                           " (expected HOST:PORT, [IPV6]:PORT or unix:PATH)");
}

Result<Endpoint> parse_unix(std::string_view text) {
  const std::string_view path = text.substr(kUnixPrefix.size());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty()) return not_an_endpoint(text, "the path is missing");
  if (path.size() >= sizeof(address.sun_path)) {
    return not_an_endpoint(
        text, "the path has more than " + std::to_string(sizeof(address.sun_path) - 1) + " characters");
  }
  std::ranges::copy(path, address.sun_path);  // tidy: moves handles, not bytes
  std::size_t size = offsetof(sockaddr_un, sun_path) + path.size();
  if (path.front() == '@') {
    address.sun_path[0] = '\0';
  } else {
    ++size;  // the path's end
  }
  return Endpoint(reinterpret_cast<const sockaddr*>(&address), size);
}

struct HostAndPort {
  std::string host;
  std::uint16_t port;
};

Result<HostAndPort> split(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return not_an_endpoint(text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    return not_an_endpoint(text, "the port is not a number from 0 to 65535");
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!host.empty() && host.find(':') == std::string_view::npos) {
      return not_an_endpoint(text, "only an IPv6 address stands in brackets");
    }
  } else if (host.find(':') != std::string_view::npos) {
    return not_an_endpoint(text, "an IPv6 address stands in brackets");
  }
  if (host.empty()) return not_an_endpoint(text, "the host is missing");
  return HostAndPort{std::string(host), port};
}

Result<Endpoint> numeric(const HostAndPort& parts, std::string_view text) {
  sockaddr_in ipv4{};
  if (::inet_pton(AF_INET, parts.host.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(parts.port);
    return Endpoint(reinterpret_cast<const sockaddr*>(&ipv4), sizeof(ipv4));
  }
  // getaddrinfo understands scopes ("fe80::1%eth0"), inet_pton does not.
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_family = AF_INET6;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(parts.host.c_str(), nullptr, &hints, &found) != 0) {
    return not_an_endpoint(text, "the host is not a numeric address");
  }
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, found->ai_addr, sizeof(ipv6));  // tidy: moves handles, not bytes
  ::freeaddrinfo(found);
  ipv6.sin6_port = htons(parts.port);
  return Endpoint(reinterpret_cast<const sockaddr*>(&ipv6), sizeof(ipv6));
}

}  // namespace

Endpoint::Endpoint(const sockaddr* address, std::size_t size) noexcept : size_(size) {
  LINKSPAN_ASSERT(size <= kMaxBytes, "a socket address has at most 128 bytes");
  std::memcpy(storage_, address, size);  // tidy: moves handles, not bytes
}

Result<Endpoint> Endpoint::parse(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return parse_unix(text);
  Result<HostAndPort> parts = split(text);
  if (!parts) return parts.error();
  return numeric(parts.value(), text);
}

Result<std::vector<Endpoint>> resolve_endpoints(std::string_view text, Resolver& resolver) {
  if (Result<Endpoint> endpoint = Endpoint::parse(text)) return std::vector{endpoint.value()};
  if (text.starts_with(kUnixPrefix)) return parse_unix(text).error();
  Result<HostAndPort> parts = split(text);
  if (!parts) return parts.error();
  Result<std::vector<std::string>> addresses = resolver.resolve(parts.value().host);
  if (!addresses) return addresses.error();
  std::vector<Endpoint> endpoints;
  for (std::string& address : addresses.value()) {
    Result<Endpoint> endpoint = numeric({std::move(address), parts.value().port}, text);
    if (!endpoint) return endpoint.error();
    endpoints.push_back(endpoint.value());
  }
  if (endpoints.empty()) return Error(errc::unresolved, parts.value().host + " has no addresses");
  return endpoints;
}

const sockaddr* Endpoint::address() const noexcept {
  return reinterpret_cast<const sockaddr*>(storage_);
}

int Endpoint::family() const noexcept {
  return size_ == 0 ? AF_UNSPEC : address()->sa_family;
}

bool Endpoint::is_unix() const noexcept {
  return family() == AF_UNIX;
}

std::uint16_t Endpoint::port() const noexcept {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(storage_)->sin6_port);
  return 0;
}

std::string Endpoint::unix_path() const {
  constexpr std::size_t kPathOffset = offsetof(sockaddr_un, sun_path);
  if (!is_unix() || size_ <= kPathOffset) return {};
  const char* path = reinterpret_cast<const sockaddr_un*>(storage_)->sun_path;
  std::string text(path, size_ - kPathOffset);
  if (text.front() == '\0') {
    text.front() = '@';
    return text;
  }
  return text.substr(0, text.find('\0'));
}

std::string Endpoint::host() const {
  if (size_ == 0 || is_unix()) return {};
  char host[NI_MAXHOST];
  if (::getnameinfo(address(), static_cast<socklen_t>(size_), host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return {};
  }
  return family() == AF_INET6 ? "[" + std::string(host) + "]" : host;
}

std::string Endpoint::to_string() const {
  if (size_ == 0) return "none";
  if (is_unix()) return std::string(kUnixPrefix) + unix_path();
  const std::string its_host = host();
  return its_host.empty() ? "unknown" : its_host + ":" + std::to_string(port());
}

bool operator==(const Endpoint& a, const Endpoint& b) noexcept {
  return a.size_ == b.size_ && std::memcmp(a.storage_, b.storage_, a.size_) == 0;
}

}  // namespace linkspan
