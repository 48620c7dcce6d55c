// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Listener: accepts connections on an endpoint and hands them out as Sockets, which may be opened on any
// loop.
// Not for: what happens on a connection; see Stream.
// Cost: a pointer here and one object in the transport; connections are accepted in bounded batches.
// Threads: the loop's thread only. No callback runs inside a call.
#pragma once

#include <chrono>
#include <optional>
#include <system_error>

#include "linkspan/base/export.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/socket_options.hpp"

namespace linkspan {

class ListenerCore;

struct ListenOptions {
  int backlog = 1024;    ///< connections that wait to be accepted; the system may cut it
  SocketOptions socket;  ///< of the listener; accepted sockets inherit, as said there
  /// TCP_FASTOPEN: connections that bring data before the handshake is over, at most so many at once.
  std::optional<int> fast_open_queue;
  /// TCP_DEFER_ACCEPT: a connection is accepted when its first bytes are there, or after about so long.
  std::optional<std::chrono::seconds> defer_accept;

  ListenOptions() = default;
};

/// Implementations must not throw. Every call of the listener is legal in them, and so is destroying it.
class LINKSPAN_API ListenerHandler {
 public:
  virtual ~ListenerHandler();
  virtual void on_accept(Socket socket) = 0;
  /// Accepting failed for a reason that may pass, such as the process being out of descriptors; the listener
  /// tries again by itself after a pause, and waiting connections are not lost.
  virtual void on_accept_error(std::error_code error);
};

/// A handle with one owner; destroying it stops listening.
class LINKSPAN_API Listener {
 public:
  Listener() noexcept = default;
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { close(); }

  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// With the real port where 0 was asked for. An empty Endpoint once closed.
  [[nodiscard]] Endpoint local_endpoint() const;
  /// After it returns there is no on_accept. Again: no effect.
  void close() noexcept;

 private:
  friend class ListenerCore;

  explicit Listener(ListenerCore* core) noexcept;

  ListenerCore* core_ = nullptr;  // owned by the transport
};

}  // namespace linkspan
