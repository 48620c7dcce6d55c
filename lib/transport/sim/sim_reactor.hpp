// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SimReactor: readiness of simulated sockets, for one loop. Its wait lets time pass, unless the network runs
// the loop among others: then it only says how long it would have waited.
#pragma once

#include <atomic>
#include <deque>

#include "lib/transport/sim/sim_kernel.hpp"
#include "lib/transport/sim/sim_machine.hpp"
#include "linkspan/transport/reactor.hpp"

namespace linkspan {

class SimReactor final : public Reactor {
 public:
  SimReactor(SimMachine& machine, EventLoop& loop);
  ~SimReactor() override;

  std::string_view name() const noexcept override { return "sim"; }
  bool wait(Duration timeout) noexcept override;
  void wake() noexcept override { woken_.store(true, std::memory_order_release); }

  [[nodiscard]] const SimMachine& machine() const noexcept { return machine_; }
  /// When the loop has something to do; TimePoint::max(): not by itself.
  [[nodiscard]] TimePoint due() const noexcept;
  /// One tick of the loop, by the network.
  void tick();
  /// The loop runs no more.
  void end() noexcept { ended_ = true; }

  /// `socket` may have something to tell.
  void add_ready(int socket) { ready_.push_back(socket); }

 protected:
  int update(Watch& watch) override;
  void forget(Watch& watch) noexcept override;

 private:
  bool tell_ready();

  SimMachine& machine_;
  SimKernel& kernel_;
  EventLoop& loop_;
  std::deque<int> ready_;
  TimePoint due_{};  // at first: at once
  std::atomic<bool> woken_{false};
  bool ticking_ = false;  // by the network
  bool ended_ = false;
};

}  // namespace linkspan
