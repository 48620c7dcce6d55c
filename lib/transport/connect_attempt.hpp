// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ConnectAttempt: one socket that connects to one address. A backend starts it, cancels it and reports what
// became of it; when there is one, and what follows from it, is the Connector's. Owned by the transport,
// which deletes it after its report.
#pragma once

#include <utility>

#include "lib/transport/socket_core.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

class Connector;
class StreamCore;
struct AttemptTag;

/// What an attempt starts from.
struct AttemptSetup {
  Socket socket;  // ready to connect to `peer`
  Endpoint peer;
  Connector& connector;
  StreamCore& stream;  // it counts as an operation of this
};

class ConnectAttempt : public SocketCore, public ListNode<AttemptTag> {
 public:
  ConnectAttempt(TransportCore& transport, AttemptSetup setup) noexcept;

  // The connector's calls.
  void begin();
  /// Nobody wants it any more: its socket is closed, even if it connects.
  void give_up();

  void service() final {}
  void stop() noexcept final {}  // its stream gives it up

 protected:
  // What a backend does.

  /// Starts connecting descriptor() to peer(). Ends in report(), inside this call or later.
  virtual void start() = 0;
  /// Called at most once, after start() and before report(), which still has to come, whatever it says:
  /// inside this call or, when the kernel has to give something back, later.
  virtual void cancel() = 0;

  /// Exactly once: nothing is in flight, and nothing more will be heard of the descriptor, which is closed or
  /// becomes a stream's. `error` is an errno.
  void report(int error);

  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] const Endpoint& peer() const noexcept { return peer_; }

 private:
  friend class Connector;

  Socket socket_;
  Endpoint peer_;
  Connector* connector_;  // nullptr when it was given up
  StreamCore& stream_;
};

}  // namespace linkspan
