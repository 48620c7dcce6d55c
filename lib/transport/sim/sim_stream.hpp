// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimStream: one end of a simulated connection, or a listener. Its calls do what the system's do: buffers are
// bounded, nothing waits, an end comes after the data and a reset does not wait for anybody. What is on its
// way to the peer is in the sender's flight, in order.
//
// It goes when its last descriptor is closed and what it had to send has arrived.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lib/transport/sim/sim_socket.hpp"
#include "linkspan/base/clock.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

class SimStream final : public SimSocket {
 public:
  enum class State : std::uint8_t { fresh, listening, connecting, connected, broken };

  SimStream(SimMachine& machine, int number, int family);

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool connected() const noexcept override { return state_ == State::connected; }
  [[nodiscard]] std::size_t unread_bytes() const noexcept { return received_bytes_; }
  [[nodiscard]] std::size_t unread_descriptors() const noexcept;

  // Setting up.

  void set_options(const SocketOptions& options) noexcept override;
  void listen(int backlog) noexcept;

  // Calls: what the system's return, or a negative errno.

  [[nodiscard]] int connect(const Endpoint& peer);
  /// The number of the connection that waits; 0: none.
  [[nodiscard]] int accept() noexcept;
  [[nodiscard]] ssize_t send(std::span<const iovec> vectors, std::vector<Socket>&& descriptors);
  [[nodiscard]] ssize_t receive(std::span<std::byte> memory, std::vector<Socket>* descriptors);
  void end_sending();
  void reset_on_close(bool reset) noexcept;

  // The network.

  /// A connection was lost, or never came about.
  void lose(int error);
  void resume() override;

 private:
  struct Segment {
    std::vector<std::byte> bytes;
    std::size_t begin = 0;            // of what is left
    std::vector<Socket> descriptors;  // with the first byte

    [[nodiscard]] std::size_t size() const noexcept { return bytes.size() - begin; }
  };
  enum class Kind : std::uint8_t { open, opened, data, end, reset };
  struct Packet {
    Kind kind;
    Segment segment;
    TimePoint arrives;
  };

  [[nodiscard]] Ready ready() const noexcept override;
  void close() override;
  [[nodiscard]] SimStream* peer() const noexcept;
  [[nodiscard]] std::size_t send_room() const noexcept;
  [[nodiscard]] std::size_t window() const noexcept;
  [[nodiscard]] std::size_t shortened(std::size_t bytes, double chance) const noexcept;

  [[nodiscard]] int connect_unix(const Endpoint& peer);
  SimStream& add_waiting(SimStream& client);
  void transmit();
  void put(Kind kind);
  void put(Kind kind, Segment&& segment);
  void expect_head();
  void head_arrives();
  void stall();
  void ground() noexcept;
  void deliver(Packet&& packet);
  void deliver_open();
  void deliver_data(Segment&& segment);
  void take_in(Segment&& segment);
  void close_connected();
  void erase_if_done();

  SimMachine* other_ = nullptr;  // the peer's
  State state_ = State::fresh;
  bool resets_ = false;  // when it is closed

  std::deque<Segment> received_;
  std::size_t received_bytes_ = 0;
  std::size_t coming_bytes_ = 0;  // in the peer's flight
  bool end_received_ = false;

  std::deque<Segment> unsent_;
  std::size_t unsent_bytes_ = 0;
  std::size_t flying_bytes_ = 0;
  bool end_wanted_ = false;
  bool end_sent_ = false;  // an end, or a reset

  std::deque<Packet> flight_;
  TimePoint last_arrival_{};
  std::uint64_t flights_ = 0;  // of events for the head of an earlier flight nothing is done
  bool stalled_ = false;

  int backlog_ = 0;
  std::deque<int> waiting_;  // to be accepted
};

}  // namespace linkspan
