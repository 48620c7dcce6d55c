// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimDatagram: a simulated datagram socket. A message of UDP is an event of the network, which may lose it,
// repeat it or let others overtake it; where it arrives, a socket with room takes it, or none does and the
// sender is told. Unix messages are in the receiver's queue at once, of which there are few, and none is
// lost.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "lib/transport/datagram_ops.hpp"
#include "lib/transport/sim/sim_socket.hpp"
#include "linkspan/base/clock.hpp"

namespace linkspan {

/// A message on its way, and in the queue of its receiver.
struct SimMessage {
  std::vector<std::byte> bytes;
  Endpoint from;  // none: an unnamed unix socket
  Endpoint to;
  int sender = 0;
};

class SimDatagram final : public SimSocket {
 public:
  SimDatagram(SimMachine& machine, int number, int family);

  [[nodiscard]] bool connected() const noexcept override { return remote_.address_size() != 0; }

  // Calls: what the system's return, or a negative errno.

  [[nodiscard]] int connect(const Endpoint& peer);
  /// How many.
  [[nodiscard]] int send(std::span<MessageHeader> messages);
  [[nodiscard]] int receive(std::span<MessageHeader> messages);
  [[nodiscard]] std::optional<Refusal> take_refusal();
  [[nodiscard]] bool has_send_room() const noexcept { return unsent_bytes_ < send_capacity_; }

 private:
  [[nodiscard]] Ready ready() const noexcept override;
  void close() override;

  [[nodiscard]] int connect_unix(const Endpoint& peer);
  [[nodiscard]] int send_one(const msghdr& header);
  [[nodiscard]] int send_udp(SimMessage&& message);
  [[nodiscard]] int send_unix(SimMessage&& message, bool addressed);
  /// Of the one that receives: whether `other` may send to it, and has to wait.
  [[nodiscard]] bool takes_from(const SimDatagram& other) const noexcept;
  [[nodiscard]] bool is_full_for(const SimDatagram& other) const noexcept;
  void disconnect() noexcept;

  void launch(SimMachine& target, SimMessage&& message);
  static void arrive(SimMachine& from, SimMachine& at, SimMessage&& message);
  void answer_refusal(SimMachine& from, const Endpoint& to);
  void take_refusal_in(const Endpoint& to);
  void take_in(SimMessage&& message);
  void charge(std::size_t bytes) noexcept { unsent_bytes_ += bytes; }
  void release(std::size_t bytes);
  static void release(SimKernel& kernel, const SimMessage& message);

  std::deque<SimMessage> received_;
  std::deque<Endpoint> refusals_;   // where the messages went that nobody took
  std::size_t received_bytes_ = 0;  // of both, as they count against the capacity
  std::size_t unsent_bytes_ = 0;    // UDP: not on their way yet; unix: not read yet
  TimePoint link_free_{};           // when what was sent before has left, at the network's rate
  TimePoint last_arrival_{};
  TimePoint last_refusal_{};
};

}  // namespace linkspan
