// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimKernel: what the hosts of a simulated network share: time, the events to come, choices, the sockets by
// number, and the loops. One thread, but for SimReactor::wake.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/transport/sim/sim_datagram.hpp"
#include "lib/transport/sim/sim_stream.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/environment.hpp"
#include "linkspan/loop/helper_threads.hpp"
#include "linkspan/transport/sim_network.hpp"

namespace linkspan {

class SimReactor;

/// What goes into the hash.
enum class SimEvent : std::uint8_t {
  tick,
  job,
  connect,
  accept,
  send,
  receive,
  arrive_open,
  arrive_opened,
  arrive_data,
  arrive_end,
  arrive_reset,
  stall,
  lost,
  close,
  datagram_send,
  datagram_receive,
  datagram_arrive,
  datagram_lost,
  datagram_refused,
};

/// splitmix64.
class SimRandom final : public Random {
 public:
  explicit SimRandom(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept override;

 private:
  std::uint64_t state_;
};

class SimKernel {
 public:
  /// What a round of ticks takes, or the tick of a loop that runs by itself, so that a loop which always has
  /// something to do does not stop the time.
  static constexpr Duration kTickTime = std::chrono::microseconds(1);

  explicit SimKernel(const SimOptions& options);
  ~SimKernel();
  SimKernel(const SimKernel&) = delete;
  SimKernel& operator=(const SimKernel&) = delete;

  [[nodiscard]] const SimOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Environment& environment() const noexcept { return environment_; }
  [[nodiscard]] Helpers& helpers() noexcept { return helpers_; }

  // Time.

  [[nodiscard]] TimePoint now() const noexcept { return clock_.time; }
  void after(Duration delay, unique_function<void()> action);
  /// TimePoint::max(): none.
  [[nodiscard]] TimePoint next_event() const noexcept;
  /// Runs what happens until then, that included.
  void advance_to(TimePoint time);

  // Choices.

  [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept { return choices_.next() % bound; }
  [[nodiscard]] bool chance(double probability) noexcept;
  [[nodiscard]] Duration latency() noexcept;

  void note(SimEvent event, int socket, std::uint64_t value) noexcept;
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  // Sockets. Numbers are never used again.

  SimStream& make_stream(SimMachine& machine, int family);
  SimDatagram& make_datagram(SimMachine& machine, int family);
  /// nullptr once it is gone.
  [[nodiscard]] SimSocket* find(int socket) noexcept;
  /// The same for one that is of this type, if it is still there.
  [[nodiscard]] SimStream* find_stream(int socket) noexcept { return static_cast<SimStream*>(find(socket)); }
  [[nodiscard]] SimDatagram* find_datagram(int socket) noexcept {
    return static_cast<SimDatagram*>(find(socket));
  }
  void erase(SimSocket& socket) noexcept;
  [[nodiscard]] int next_descriptor() noexcept { return next_descriptor_++; }
  [[nodiscard]] std::map<int, std::unique_ptr<SimSocket>>& sockets() noexcept { return sockets_; }
  /// `from` answers, in a while, that the connection of `socket` is no more.
  void answer_reset(int socket, SimMachine& from, int error);

  // Hosts.

  SimMachine& add_machine(const std::string& name, const std::vector<std::string>& addresses);
  [[nodiscard]] const std::vector<std::unique_ptr<SimMachine>>& machines() const noexcept {
    return machines_;
  }
  /// nullptr: none has it. `host` as in Endpoint::to_string.
  [[nodiscard]] SimMachine* machine_at(const std::string& host) const noexcept;
  [[nodiscard]] bool separated(const SimMachine& one, const SimMachine& other) const noexcept;
  void set_partition(const SimMachine& one, const SimMachine& other, bool parted);
  [[nodiscard]] const SimDatagramFaults& datagram_faults(const SimMachine& one,
                                                         const SimMachine& other) const noexcept;
  void set_datagram_faults(const SimMachine& one, const SimMachine& other, const SimDatagramFaults& faults);
  /// What could not get through is on its way again where it can.
  void resume_all();

  // Loops.

  void add(SimReactor& reactor) { reactors_.push_back(&reactor); }
  void remove(SimReactor& reactor) noexcept;
  void end_loops_of(const SimMachine& machine) noexcept;
  /// As SimNetwork::step, not beyond `latest`.
  bool step(TimePoint latest);

 private:
  template <typename T>
  T& add_socket(std::unique_ptr<T> made);

  struct VirtualClock final : Clock {
    // Not 0, which TimePoints that were never set have.
    TimePoint time{std::chrono::hours(1)};
    [[nodiscard]] TimePoint now() const noexcept override { return time; }
  };
  struct NoThreads final : Threads {
    Result<std::unique_ptr<Thread>> start(const std::string& name, std::optional<int> cpu,
                                          unique_function<void()> body) override;
  };
  struct HostNames final : Resolver {
    explicit HostNames(const SimKernel& owner) noexcept : kernel(owner) {}
    Result<std::vector<std::string>> resolve(const std::string& host) override;
    const SimKernel& kernel;
  };
  // Jobs run as events, a while later.
  struct Jobs final : Helpers {
    explicit Jobs(SimKernel& owner) noexcept : kernel(owner) {}
    Status submit(Job job, Pace pace) override;
    SimKernel& kernel;
    std::map<std::uint64_t, Job> waiting;
    std::uint64_t next = 0;
  };

  SimOptions options_;
  VirtualClock clock_;
  SimRandom choices_;
  SimRandom random_;  // that of the environment
  NoThreads threads_;
  HostNames names_{*this};
  Jobs helpers_{*this};
  Environment environment_;
  std::uint64_t hash_ = 0;

  std::map<std::pair<TimePoint, std::uint64_t>, unique_function<void()>> events_;
  std::uint64_t events_made_ = 0;
  std::vector<std::unique_ptr<SimMachine>> machines_;
  std::map<int, std::unique_ptr<SimSocket>> sockets_;
  std::set<std::pair<int, int>> partitions_;
  std::map<std::pair<int, int>, SimDatagramFaults> datagram_faults_;  // others than those of the options
  std::vector<SimReactor*> reactors_;
  int next_socket_ = 1;
  // The kernel's own never get so high: a mix-up is EBADF.
  int next_descriptor_ = 1 << 30;
};

}  // namespace linkspan
