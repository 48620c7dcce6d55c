// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimSocket: one end of a simulated connection, or a listener: what a kernel keeps of a socket. Its calls do
// what the system's do: buffers are bounded, nothing waits, an end comes after the data and a reset does not
// wait for anybody. What is on its way to the peer is in the sender's flight, in order.
//
// Owned by the SimKernel. It goes when its last descriptor is closed and what it had to send has arrived.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <system_error>
#include <vector>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/reactor.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/socket_options.hpp"

namespace linkspan {

class SimKernel;
class SimMachine;
class SimReactor;

class SimSocket {
 public:
  enum class State : std::uint8_t { fresh, listening, connecting, connected, broken };

  SimSocket(SimMachine& machine, int number, int family);

  [[nodiscard]] SimMachine& machine() const noexcept { return machine_; }
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] int family() const noexcept { return family_; }
  [[nodiscard]] bool is_unix() const noexcept;
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] const Endpoint& local() const noexcept { return local_; }
  [[nodiscard]] const Endpoint& remote() const noexcept { return remote_; }
  [[nodiscard]] bool has_port() const noexcept { return has_port_; }
  [[nodiscard]] std::size_t unread_bytes() const noexcept { return received_bytes_; }
  [[nodiscard]] std::size_t unread_descriptors() const noexcept;

  // Setting up.

  void set_options(const SocketOptions& options) noexcept;
  /// `has_port`: of its own, which is given back at its end.
  void set_local(const Endpoint& local, bool has_port) noexcept;
  void listen(int backlog) noexcept;

  // Calls: what the system's return, or a negative errno.

  [[nodiscard]] int connect(const Endpoint& peer);
  /// The number of the connection that waits; 0: none.
  [[nodiscard]] int accept() noexcept;
  [[nodiscard]] ssize_t send(std::span<const iovec> vectors, std::vector<Socket>&& descriptors);
  [[nodiscard]] ssize_t receive(std::span<std::byte> memory, std::vector<Socket>* descriptors);
  [[nodiscard]] int take_error() noexcept { return std::exchange(error_, 0); }
  void end_sending();
  void reset_on_close(bool reset) noexcept;
  void add_descriptor() noexcept { ++descriptors_; }
  /// This may be gone afterwards.
  void remove_descriptor();

  // Watching.

  /// False when another one watches.
  [[nodiscard]] bool watch(Watch& watch, SimReactor& reactor);
  void forget(const Watch& watch) noexcept;
  /// Tells the watch what it wants to know; false when that is nothing.
  bool tell();

  // The network.

  /// A connection was lost, or never came about.
  void lose(int error);
  /// A partition is over.
  void resume();
  /// Its host is gone.
  void vanish();

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
  struct Ready {
    bool readable = false;
    bool writable = false;
    bool error = false;
    bool hung_up = false;
  };

  [[nodiscard]] SimKernel& kernel() const noexcept;
  [[nodiscard]] SimSocket* peer() const noexcept;
  [[nodiscard]] bool orphan() const noexcept { return descriptors_ == 0; }
  [[nodiscard]] Ready ready() const noexcept;
  [[nodiscard]] bool interesting() const noexcept;
  [[nodiscard]] std::size_t send_room() const noexcept;
  [[nodiscard]] std::size_t window() const noexcept;
  [[nodiscard]] std::size_t shortened(std::size_t bytes, double chance) const noexcept;
  void touch();

  [[nodiscard]] int connect_unix(const Endpoint& peer);
  SimSocket& add_waiting(SimSocket& client);
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
  void close();
  void close_connected();
  void erase_if_done();

  SimMachine& machine_;
  SimMachine* other_ = nullptr;  // the peer's
  const int number_;
  const int family_;
  State state_ = State::fresh;
  int descriptors_ = 0;  // a connection that waits to be accepted counts as one
  Endpoint local_;
  Endpoint remote_;
  bool has_port_ = false;
  int peer_ = 0;
  int error_ = 0;
  bool resets_ = false;  // when it is closed

  std::deque<Segment> received_;
  std::size_t received_bytes_ = 0;
  std::size_t coming_bytes_ = 0;  // in the peer's flight
  std::size_t receive_capacity_;
  bool end_received_ = false;

  std::deque<Segment> unsent_;
  std::size_t unsent_bytes_ = 0;
  std::size_t flying_bytes_ = 0;
  std::size_t send_capacity_;
  bool end_wanted_ = false;
  bool end_sent_ = false;  // an end, or a reset

  std::deque<Packet> flight_;
  TimePoint last_arrival_{};
  std::uint64_t flights_ = 0;  // of events for the head of an earlier flight nothing is done
  bool stalled_ = false;

  int backlog_ = 0;
  std::deque<int> waiting_;  // to be accepted

  Watch* watch_ = nullptr;
  SimReactor* reactor_ = nullptr;
  bool queued_ = false;  // with the reactor
};

}  // namespace linkspan
