// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/transport/sim_network.hpp"

#include <utility>

#include "lib/transport/readiness_transport.hpp"
#include "lib/transport/sim/sim_kernel.hpp"
#include "lib/transport/sim/sim_machine.hpp"
#include "lib/transport/sim/sim_reactor.hpp"

namespace linkspan {

SimHost::~SimHost() = default;

const std::string& SimHost::name() const noexcept {
  return machine_.name();
}

Result<std::unique_ptr<EventLoop>> SimHost::make_loop(EventLoopOptions options) {
  return EventLoop::create(engine(), loop_options(std::move(options)));
}

EngineFactory SimHost::engine() {
  return [&machine = machine_](EventLoop& loop) -> Result<std::unique_ptr<Engine>> {
    if (&loop.environment() != &machine.kernel().environment()) {
      return Error(errc::invalid_argument,
                   loop.name() + ": a loop of a simulated host takes its options from SimHost::loop_options");
    }
    return std::unique_ptr<Engine>(
        std::make_unique<ReadinessTransport>(loop, std::make_unique<SimReactor>(machine, loop), machine));
  };
}

EventLoopOptions SimHost::loop_options(EventLoopOptions options) const {
  if (options.name == EventLoopOptions().name) options.name = name();
  options.environment = &machine_.kernel().environment();
  if (options.helpers == &HelperThreads::system()) options.helpers = &machine_.kernel().helpers();
  return options;
}

SimNetwork::SimNetwork(const SimOptions& options) : kernel_(std::make_unique<SimKernel>(options)) {}
SimNetwork::~SimNetwork() = default;

SimHost& SimNetwork::add_host(const std::string& name, const std::vector<std::string>& addresses) {
  return kernel_->add_machine(name, addresses).host();
}

bool SimNetwork::run_until(const std::function<bool()>& done, Duration longest) {
  const TimePoint end = now() + longest;
  while (!done()) {
    if (now() >= end || !kernel_->step(end)) return done();
  }
  return true;
}

void SimNetwork::run_for(Duration time) {
  const TimePoint end = now() + time;
  while (now() < end && kernel_->step(end)) {
  }
}

bool SimNetwork::step() {
  return kernel_->step(TimePoint::max());
}

TimePoint SimNetwork::now() const noexcept {
  return kernel_->now();
}

const Environment& SimNetwork::environment() const noexcept {
  return kernel_->environment();
}

void SimNetwork::partition(const SimHost& one, const SimHost& other) {
  kernel_->set_partition(SimMachine::of(one), SimMachine::of(other), true);
}

void SimNetwork::heal(const SimHost& one, const SimHost& other) {
  kernel_->set_partition(SimMachine::of(one), SimMachine::of(other), false);
  kernel_->resume_all();
}

void SimNetwork::disturb_datagrams(const SimHost& one, const SimHost& other,
                                   const SimDatagramFaults& faults) {
  kernel_->set_datagram_faults(SimMachine::of(one), SimMachine::of(other), faults);
}

void SimNetwork::refuse(const SimHost& host, bool refuses) {
  SimMachine::of(host).set_refuses(refuses);
}

bool SimNetwork::reset(const Endpoint& one, const Endpoint& other) {
  std::vector<int> ends;
  for (const auto& [number, socket] : kernel_->sockets()) {
    const bool is_end = (socket->local() == one && socket->remote() == other) ||
                        (socket->local() == other && socket->remote() == one);
    const bool is_tcp = socket->type() == SimSocket::Type::stream && !socket->is_unix();
    if (is_end && is_tcp && socket->connected()) ends.push_back(number);
  }
  for (const int number : ends) {
    if (SimStream* socket = kernel_->find_stream(number)) socket->lose(ECONNRESET);
  }
  return !ends.empty();
}

void SimNetwork::kill(const SimHost& host) {
  SimMachine::of(host).kill();
}

void SimNetwork::revive(const SimHost& host) {
  SimMachine::of(host).revive();
  kernel_->resume_all();
}

std::uint64_t SimNetwork::event_hash() const noexcept {
  return kernel_->hash();
}

std::size_t SimNetwork::sockets() const noexcept {
  return kernel_->sockets().size();
}

}  // namespace linkspan
