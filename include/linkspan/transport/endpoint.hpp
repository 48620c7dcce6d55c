// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Endpoint: the address of a socket: IPv4, IPv6 or a unix path.
// Not for: names; resolve_endpoints turns them into endpoints.
// Cost: 136 bytes; no allocation.
// Threads: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/loop/environment.hpp"

struct sockaddr;

namespace linkspan {

class LINKSPAN_API Endpoint {
 public:
  /// No address.
  Endpoint() noexcept = default;
  /// Copies a sockaddr of `size` bytes, at most 128.
  Endpoint(const sockaddr* address, std::size_t size) noexcept;

  /// "1.2.3.4:80", "[::1]:80" or "unix:/path"; in "unix:@name" the name is an abstract one (Linux). Port 0
  /// asks the system for a free port when listening. Fails with errc::invalid_argument and what was expected.
  [[nodiscard]] static Result<Endpoint> parse(std::string_view text);

  [[nodiscard]] const sockaddr* address() const noexcept;
  [[nodiscard]] std::size_t address_size() const noexcept { return size_; }
  [[nodiscard]] int family() const noexcept;
  [[nodiscard]] bool is_unix() const noexcept;
  /// 0 for unix sockets.
  [[nodiscard]] std::uint16_t port() const noexcept;
  /// The numeric host as parse reads it, IPv6 in brackets; empty for unix sockets and without an address.
  [[nodiscard]] std::string host() const;
  /// The path of a unix socket; empty when it has none.
  [[nodiscard]] std::string unix_path() const;

  /// What parse reads; "unix:" for an unnamed unix socket, "none" without an address.
  [[nodiscard]] std::string to_string() const;

  friend LINKSPAN_API bool operator==(const Endpoint& a, const Endpoint& b) noexcept;

 private:
  static constexpr std::size_t kMaxBytes = 128;

  alignas(8) std::byte storage_[kMaxBytes] = {};
  std::size_t size_ = 0;
};

/// Like Endpoint::parse, but the host may be a name: one endpoint for each of its addresses, best first.
/// Fails with errc::unresolved when there is none. Blocks.
[[nodiscard]] LINKSPAN_API Result<std::vector<Endpoint>> resolve_endpoints(std::string_view text,
                                                                           Resolver& resolver);

}  // namespace linkspan
