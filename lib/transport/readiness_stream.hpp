// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Streams, their attempts to connect, and listeners over readiness: a Watch says when the descriptor can be
// read or written, and the calls are made here, whatever the reactor.
#pragma once

#include <cerrno>

#include "lib/transport/connect_attempt.hpp"
#include "lib/transport/listener_core.hpp"
#include "lib/transport/receive_sizer.hpp"
#include "lib/transport/stream_core.hpp"
#include "linkspan/transport/reactor.hpp"

namespace linkspan {

class ReadinessTransport;

class ReadinessStream final : public StreamCore, private ReadyTarget {
 public:
  ReadinessStream(ReadinessTransport& transport, StreamSetup setup);

 protected:
  void update_receive(bool wanted) override;
  void start_send(SendCall call) override;
  void cancel_operations() override { watch_.stop(); }

 private:
  void on_ready(Readiness ready) override;
  void on_readable();
  void on_writable_again();
  void on_error();
  bool receive_once();
  bool receive_into_memory(std::span<std::byte> memory);
  [[nodiscard]] std::size_t receive(std::span<std::byte> memory);
  [[nodiscard]] std::size_t receive_message(std::span<std::byte> memory, std::vector<Socket>& descriptors);
  std::size_t report_receive_result(ssize_t received);
  void update_watch();
  [[nodiscard]] ReadinessTransport& readiness_transport() const noexcept;

  Watch watch_;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  ReceiveSizer sizer_;
};

class ReadinessAttempt final : public ConnectAttempt, private ReadyTarget {
 public:
  ReadinessAttempt(ReadinessTransport& transport, AttemptSetup setup);

 protected:
  void start() override;
  void cancel() override { finish(ECANCELED); }

 private:
  void on_ready(Readiness ready) override;
  void finish(int error);

  Watch watch_;
};

class ReadinessListener final : public ListenerCore, private ReadyTarget {
 public:
  ReadinessListener(ReadinessTransport& transport, Socket socket, ListenerHandler& handler);

 protected:
  void start_accepting() override;
  void stop_accepting() override { watch_.stop(); }

 private:
  /// Accepts what waits, a bounded batch.
  void on_ready(Readiness ready) override;

  Watch watch_;
};

}  // namespace linkspan
