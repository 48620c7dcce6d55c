// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimSocket: what all simulated sockets have: a host, descriptors, an address, an error that waits, bounded
// buffers, and a watch that is told what they are ready for.
//
// Owned by the SimKernel. Its number is never used again, so whoever may outlive it keeps that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/reactor.hpp"
#include "linkspan/transport/socket_options.hpp"

namespace linkspan {

class SimKernel;
class SimMachine;
class SimReactor;

class SimSocket {
 public:
  enum class Type : std::uint8_t { stream, datagram };

  SimSocket(SimMachine& machine, Type type, int number, int family);
  SimSocket(const SimSocket&) = delete;
  SimSocket& operator=(const SimSocket&) = delete;
  virtual ~SimSocket();

  [[nodiscard]] SimMachine& machine() const noexcept { return machine_; }
  [[nodiscard]] Type type() const noexcept { return type_; }
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] int family() const noexcept { return family_; }
  [[nodiscard]] bool is_unix() const noexcept;
  [[nodiscard]] const Endpoint& local() const noexcept { return local_; }
  [[nodiscard]] const Endpoint& remote() const noexcept { return remote_; }
  [[nodiscard]] virtual bool connected() const noexcept = 0;
  /// Of the socket that this is connected to; 0: none that it knows.
  [[nodiscard]] int peer_number() const noexcept { return peer_; }
  [[nodiscard]] bool has_port() const noexcept { return has_port_; }

  virtual void set_options(const SocketOptions& options) noexcept;
  /// `has_port`: of its own, which is given back at its end.
  void set_local(const Endpoint& local, bool has_port) noexcept;
  [[nodiscard]] int take_error() noexcept { return std::exchange(error_, 0); }
  void add_descriptor() noexcept { ++descriptors_; }
  /// This may be gone afterwards.
  void remove_descriptor();

  // Watching.

  /// False when another one watches.
  [[nodiscard]] bool watch(Watch& watch, SimReactor& reactor);
  void forget(const Watch& watch) noexcept;
  /// Tells the watch what it wants to know; false when that is nothing.
  bool tell();
  /// Something has changed.
  void touch();

  // The network.

  /// A partition is over.
  virtual void resume() {}
  /// Its host is gone.
  void vanish();

 protected:
  struct Ready {
    bool readable = false;
    bool writable = false;
    bool error = false;
    bool hung_up = false;
  };

  [[nodiscard]] virtual Ready ready() const noexcept = 0;
  /// The last descriptor is gone. This may be, afterwards.
  virtual void close() = 0;

  [[nodiscard]] SimKernel& kernel() const noexcept;
  [[nodiscard]] bool orphan() const noexcept { return descriptors_ == 0; }

  Endpoint local_;
  Endpoint remote_;
  int peer_ = 0;
  int error_ = 0;
  std::size_t receive_capacity_;
  std::size_t send_capacity_;

 private:
  [[nodiscard]] bool interesting() const noexcept;

  SimMachine& machine_;
  const Type type_;
  const int number_;
  const int family_;
  int descriptors_ = 0;  // a connection that waits to be accepted counts as one
  bool has_port_ = false;

  Watch* watch_ = nullptr;
  SimReactor* reactor_ = nullptr;
  bool queued_ = false;  // with the reactor
};

}  // namespace linkspan
