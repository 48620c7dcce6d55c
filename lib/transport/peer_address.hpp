// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// PeerAddress: a TCP peer's address, kept small because every stream has one: the system forgets it as soon
// as the connection breaks, which is when logs want it. Unix sockets keep theirs, which may be long.
#pragma once

#include <netinet/in.h>

#include "linkspan/transport/endpoint.hpp"

namespace linkspan {

class PeerAddress {
 public:
  /// Without effect for what is no internet address.
  void remember(const Endpoint& peer) noexcept {
    if (peer.family() == AF_INET) {
      address_.v4 = *reinterpret_cast<const sockaddr_in*>(peer.address());
    } else if (peer.family() == AF_INET6) {
      address_.v6 = *reinterpret_cast<const sockaddr_in6*>(peer.address());
    }
  }
  /// No address when none is remembered.
  [[nodiscard]] Endpoint endpoint() const noexcept {
    switch (address_.any.sa_family) {
      case AF_INET: return {&address_.any, sizeof(address_.v4)};
      case AF_INET6: return {&address_.any, sizeof(address_.v6)};
      default: return {};
    }
  }

 private:
  union Address {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  Address address_{};
};

}  // namespace linkspan
