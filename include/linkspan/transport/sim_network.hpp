// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimNetwork: hosts, the network between them and their time, in memory. Loops of its hosts carry the same
// streams, datagrams, listeners and channels as any other loop, all on one thread; every choice (delays, how
// much a send takes, who runs first, what breaks) is drawn from one seed, so the same program with the same
// seed runs the same way, event for event.
// Not for: measuring, other processes, multicast. Files are the system's. Of
// SocketOptions the buffer sizes, linger and reuse_port count; the others are taken, and change nothing.
// Cost: memory copies instead of system calls. Time passes only where nothing else can happen, so an hour of
// timeouts takes no time at all.
// Threads: one, for the network and all its loops. Files and names need no helper threads either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "linkspan/base/clock.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/endpoint.hpp"

namespace linkspan {

class SimKernel;
class SimMachine;

/// What a UDP message may meet on its way; each is a chance between 0 and 1.
struct SimDatagramFaults {
  double lost = 0;
  double repeated = 0;  ///< it arrives twice
  double late = 0;      ///< it takes up to five latencies, and those behind it overtake it

  SimDatagramFaults() = default;
};

/// Chances are between 0 and 1. What breaks connections or loses messages is off by default.
struct SimOptions {
  std::uint64_t seed = 1;
  /// From a host to any, itself included: drawn anew for each segment and UDP message, but those of one
  /// connection or datagram socket do not overtake each other. Unix sockets have none.
  Duration latency_min = std::chrono::microseconds(20);
  Duration latency_max = std::chrono::microseconds(500);
  std::uint64_t bytes_per_second = 0;     ///< of each direction of a connection, each UDP socket; 0: no limit
  std::size_t segment_bytes = 16 * 1024;  ///< what travels together; at least 1
  std::size_t send_buffer_bytes = 256 * 1024;  ///< of a socket whose SocketOptions do not say it; at least 1
  std::size_t receive_buffer_bytes = 256 * 1024;
  double short_sends = 0.1;     ///< the chance that a send takes less than there is room for
  double short_receives = 0.1;  ///< the chance that a receive brings less than is there
  double refused_connects = 0;  ///< the chance that a TCP connection is refused
  double resets = 0;  ///< the chance, with each TCP segment that arrives, that the connection is reset
  SimDatagramFaults datagrams;  ///< of UDP between any two hosts, and of each with itself
  /// A connection whose segments have not got through for so long is lost (ETIMEDOUT).
  Duration give_up = std::chrono::seconds(60);

  SimOptions() = default;
};

/// A machine in the network, with addresses, ports and unix paths of its own. The network owns it.
class LINKSPAN_API SimHost {
 public:
  SimHost(const SimHost&) = delete;
  SimHost& operator=(const SimHost&) = delete;
  ~SimHost();

  [[nodiscard]] const std::string& name() const noexcept;

  /// A loop on this host, which runs when the network does. Its environment is the network's, and so are its
  /// helpers unless it has others than the system's: the clock is virtual, random numbers come from the seed,
  /// names are those of the hosts, threads are refused. It is destroyed before the network.
  [[nodiscard]] Result<std::unique_ptr<EventLoop>> make_loop(EventLoopOptions options = {});
  /// The parts of make_loop, for whoever makes the loop: its options have to come from here as well.
  [[nodiscard]] EngineFactory engine();
  [[nodiscard]] EventLoopOptions loop_options(EventLoopOptions options = {}) const;

 private:
  friend class SimNetwork;
  friend class SimMachine;

  explicit SimHost(SimMachine& machine) noexcept : machine_(machine) {}

  SimMachine& machine_;
};

/// Outlives its loops, and all sockets of its hosts.
class LINKSPAN_API SimNetwork {
 public:
  explicit SimNetwork(const SimOptions& options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// A host with these numeric addresses ("10.0.0.1", "fd00::1"), besides 127.0.0.1 and ::1, which mean the
  /// host itself. Asserts that name and addresses are new. Lives as long as the network.
  SimHost& add_host(const std::string& name, const std::vector<std::string>& addresses);

  // Running. Loops of the network are run by these, or each by itself (EventLoop::run_once, as at its
  // destruction): then time passes as well, and only the other loops stand still. Not both ways for one loop.

  /// Runs until `done` holds, which is asked between events: true; or for `longest`: false.
  bool run_until(const std::function<bool()>& done, Duration longest = std::chrono::minutes(10));
  void run_for(Duration time);
  /// Runs the loops that have something to do, or else lets time pass until something happens. False when
  /// nothing ever will.
  bool step();

  [[nodiscard]] TimePoint now() const noexcept;
  [[nodiscard]] const Environment& environment() const noexcept;

  // Faults. Each takes effect at once; what travels is caught by it as well.

  /// Nothing gets through between the two until heal(); then it does, late, but for datagrams: they are lost.
  void partition(const SimHost& one, const SimHost& other);
  void heal(const SimHost& one, const SimHost& other);
  /// UDP messages that are sent from now on between the two, either way, meet these instead of
  /// SimOptions::datagrams.
  void disturb_datagrams(const SimHost& one, const SimHost& other, const SimDatagramFaults& faults);
  /// New TCP connections to the host are refused, or no longer.
  void refuse(const SimHost& host, bool refuses = true);
  /// Resets the TCP connection between these two addresses. False when there is none.
  bool reset(const Endpoint& one, const Endpoint& other);
  /// The host is gone without a word: its sockets are lost, and its loops run no more, but may be destroyed.
  void kill(const SimHost& host);
  /// The host is back, with nothing on it. What its peers still send is answered by resets and refusals.
  void revive(const SimHost& host);

  /// A hash over all that has happened: when, to which socket, and what. Equal for equal runs.
  [[nodiscard]] std::uint64_t event_hash() const noexcept;
  /// Sockets that are open, or closed and still sending.
  [[nodiscard]] std::size_t sockets() const noexcept;

 private:
  std::unique_ptr<SimKernel> kernel_;
};

}  // namespace linkspan
