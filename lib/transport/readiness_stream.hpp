// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Streams and listeners over readiness: the kernel says when a descriptor can be read or written, and the
// calls are made here. What epoll and Asio share; they only differ in how they wait.
#pragma once

#include <array>

#include "lib/transport/listener_core.hpp"
#include "lib/transport/receive_sizer.hpp"
#include "lib/transport/stream_core.hpp"
#include "lib/transport/transport_core.hpp"
#include "linkspan/buffer/block.hpp"

namespace linkspan {

class ReadinessTransport : public TransportCore {
 public:
  using TransportCore::TransportCore;

  struct ReceiveBlock {
    Block& block;
    ReceiveClass receive_class;
  };
  /// A block to receive into, of `wanted` or, while the pool is short, a smaller class; empty when it refuses
  /// these too. Streams share it: it stays here until a receive has used it up, so idle streams hold no
  /// memory.
  [[nodiscard]] ReceiveBlock receive_block(ReceiveClass wanted) noexcept;

 private:
  std::array<Block, kReceiveClasses> blocks_;
};

class ReadinessStream : public StreamCore {
 public:
  ReadinessStream(ReadinessTransport& transport, StreamSetup setup)
      : StreamCore(transport, std::move(setup)) {}

  // The backend's events. `writable` and `error` may be spurious.
  void on_readable();
  void on_writable_again();
  void on_error();

 protected:
  /// Makes the backend wait for exactly this, and for errors always. Called often without a change.
  virtual void wait_for(bool readable, bool writable) = 0;

  void start_connect(const Endpoint& peer) final;
  void update_receive(bool wanted) final;
  void start_send() final;

  [[nodiscard]] bool waits_to_write() const noexcept { return waits_to_write_; }

 private:
  [[nodiscard]] ReadinessTransport& readiness_transport() const noexcept;
  bool receive_once();

  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  bool connecting_ = false;
  ReceiveSizer sizer_;
};

class ReadinessListener : public ListenerCore {
 public:
  using ListenerCore::ListenerCore;

  /// Accepts what waits, a bounded batch.
  void on_acceptable();
};

}  // namespace linkspan
