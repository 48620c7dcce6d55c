// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SocketCore: what a transport knows of each socket that it owns: when to bring it up to date, and which of
// the transport's lists it is in. Streams and datagram sockets are such.
#pragma once

#include "linkspan/base/intrusive_list.hpp"

namespace linkspan {

class TransportCore;
struct OpenTag;
struct DirtyTag;
struct StarvedTag;

class SocketCore : public ListNode<OpenTag>, public ListNode<DirtyTag>, public ListNode<StarvedTag> {
 public:
  explicit SocketCore(TransportCore& transport) noexcept : transport_(transport) {}
  virtual ~SocketCore() = default;

  [[nodiscard]] TransportCore& transport() const noexcept { return transport_; }

  /// Brings the socket up to date with what its owner asked for.
  virtual void service() = 0;
  /// The loop stops.
  virtual void stop() noexcept = 0;

 private:
  TransportCore& transport_;
};

}  // namespace linkspan
