// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/sim/sim_kernel.hpp"

#include <algorithm>
#include <cerrno>

#include "lib/base/split_mix.hpp"
#include "lib/transport/sim/sim_machine.hpp"
#include "lib/transport/sim/sim_reactor.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/loop/files.hpp"

namespace linkspan {
namespace {

std::pair<int, int> pair_of(const SimMachine& one, const SimMachine& other) noexcept {
  return std::minmax(one.index(), other.index());
}

}  // namespace

std::uint64_t SimRandom::next() noexcept {
  return split_mix(state_);
}

SimKernel::SimKernel(const SimOptions& options)
    : options_(options),
      choices_(options.seed),
      random_(mix_bits(options.seed) + 1),
      environment_{clock_, random_, threads_, names_, system_files()} {
  LINKSPAN_ASSERT(
      options.latency_min >= Duration::zero() && options.latency_min <= options.latency_max,
      "latencies of a simulated network are from one that is not negative to one that is not less");
  LINKSPAN_ASSERT(
      options.segment_bytes != 0 && options.send_buffer_bytes != 0 && options.receive_buffer_bytes != 0,
      "segments and buffers of a simulated network have at least one byte");
}

SimKernel::~SimKernel() {
  LINKSPAN_ASSERT(reactors_.empty(), "a simulated network outlives its loops");
  for (auto& [number, job] : std::exchange(helpers_.waiting, {})) job(make_error_code(errc::cancelled));
  events_.clear();
  // What waits in a socket may be descriptors of others.
  for (const std::unique_ptr<SimMachine>& machine : machines_) machine->kill();
}

void SimKernel::after(Duration delay, unique_function<void()> action) {
  events_.emplace(std::pair(now() + delay, events_made_++), std::move(action));
}

TimePoint SimKernel::next_event() const noexcept {
  return events_.empty() ? TimePoint::max() : events_.begin()->first.first;
}

void SimKernel::advance_to(TimePoint time) {
  while (!events_.empty() && events_.begin()->first.first <= time) {
    auto event = events_.extract(events_.begin());
    clock_.time = std::max(now(), event.key().first);
    event.mapped()();
  }
  clock_.time = std::max(now(), time);
}

bool SimKernel::chance(double probability) noexcept {
  if (probability <= 0) return false;
  return static_cast<double>(choices_.next() >> 11) * 0x1p-53 < probability;
}

Duration SimKernel::latency() noexcept {
  const auto range = static_cast<std::uint64_t>((options_.latency_max - options_.latency_min).count());
  return options_.latency_min + Duration(below(range + 1));
}

void SimKernel::note(SimEvent event, int socket, std::uint64_t value) noexcept {
  hash_ = mix_bits(hash_ ^ static_cast<std::uint64_t>(now().time_since_epoch().count()));
  hash_ = mix_bits(hash_ ^ (static_cast<std::uint64_t>(event) << 32 | static_cast<std::uint32_t>(socket)));
  hash_ = mix_bits(hash_ ^ value);
}

// --- sockets

template <typename T>
T& SimKernel::add_socket(std::unique_ptr<T> made) {
  T& socket = *made;
  sockets_.emplace(socket.number(), std::move(made));
  return socket;
}

SimStream& SimKernel::make_stream(SimMachine& machine, int family) {
  return add_socket(std::make_unique<SimStream>(machine, next_socket_++, family));
}

SimDatagram& SimKernel::make_datagram(SimMachine& machine, int family) {
  return add_socket(std::make_unique<SimDatagram>(machine, next_socket_++, family));
}

SimSocket* SimKernel::find(int socket) noexcept {
  const auto found = sockets_.find(socket);
  return found == sockets_.end() ? nullptr : found->second.get();
}

void SimKernel::erase(SimSocket& socket) noexcept {
  socket.machine().socket_goes(socket);
  // Out of the table first: descriptors in what it has received may close others, and be its own.
  const auto node = sockets_.extract(socket.number());
}

void SimKernel::answer_reset(int socket, SimMachine& from, int error) {
  after(latency(), [this, socket, &from, error] {
    SimStream* lost = find_stream(socket);
    if (lost == nullptr) return;
    if (!separated(from, lost->machine())) {
      lost->lose(error);
      return;
    }
    after(options_.give_up, [this, socket] {
      if (SimStream* unanswered = find_stream(socket)) unanswered->lose(ETIMEDOUT);
    });
  });
}

// --- hosts

SimMachine& SimKernel::add_machine(const std::string& name, const std::vector<std::string>& addresses) {
  std::vector<std::string> hosts;
  for (const std::string& address : addresses) {
    const bool ipv6 = address.find(':') != std::string::npos;
    const Result<Endpoint> endpoint = Endpoint::parse(ipv6 ? "[" + address + "]:0" : address + ":0");
    LINKSPAN_ASSERT(endpoint, "an address of a simulated host is a numeric one");
    hosts.push_back(endpoint.value().host());
    LINKSPAN_ASSERT(machine_at(hosts.back()) == nullptr, "simulated hosts have addresses of their own");
  }
  for (const std::unique_ptr<SimMachine>& machine : machines_) {
    LINKSPAN_ASSERT(machine->name() != name, "simulated hosts have names of their own");
  }
  const int index = static_cast<int>(machines_.size());
  machines_.push_back(std::make_unique<SimMachine>(*this, index, name, std::move(hosts)));
  return *machines_.back();
}

SimMachine* SimKernel::machine_at(const std::string& host) const noexcept {
  for (const std::unique_ptr<SimMachine>& machine : machines_) {
    if (machine->has_address(host)) return machine.get();
  }
  return nullptr;
}

bool SimKernel::separated(const SimMachine& one, const SimMachine& other) const noexcept {
  return one.dead() || other.dead() || partitions_.contains(pair_of(one, other));
}

void SimKernel::set_partition(const SimMachine& one, const SimMachine& other, bool parted) {
  if (parted) {
    partitions_.insert(pair_of(one, other));
  } else {
    partitions_.erase(pair_of(one, other));
  }
}

const SimDatagramFaults& SimKernel::datagram_faults(const SimMachine& one,
                                                    const SimMachine& other) const noexcept {
  const auto found = datagram_faults_.find(pair_of(one, other));
  return found == datagram_faults_.end() ? options_.datagrams : found->second;
}

void SimKernel::set_datagram_faults(const SimMachine& one, const SimMachine& other,
                                    const SimDatagramFaults& faults) {
  datagram_faults_[pair_of(one, other)] = faults;
}

void SimKernel::resume_all() {
  for (auto& [number, socket] : sockets_) socket->resume();
}

// --- loops

void SimKernel::remove(SimReactor& reactor) noexcept {
  std::erase(reactors_, &reactor);
}

void SimKernel::end_loops_of(const SimMachine& machine) noexcept {
  for (SimReactor* reactor : reactors_) {
    if (&reactor->machine() == &machine) reactor->end();
  }
}

bool SimKernel::step(TimePoint latest) {
  std::vector<SimReactor*> due;
  TimePoint next = next_event();
  for (SimReactor* reactor : reactors_) {
    if (reactor->due() <= now()) due.push_back(reactor);
    next = std::min(next, reactor->due());
  }
  if (due.empty()) {
    if (next == TimePoint::max() || next > latest) {
      if (latest != TimePoint::max()) advance_to(latest);
      return false;
    }
    advance_to(next);
    return true;
  }
  while (!due.empty()) {
    const auto chosen = due.begin() + static_cast<std::ptrdiff_t>(below(due.size()));
    SimReactor* const reactor = *chosen;
    due.erase(chosen);
    // An earlier one may have ended it.
    if (std::ranges::find(reactors_, reactor) != reactors_.end()) reactor->tick();
  }
  advance_to(now() + kTickTime);
  return true;
}

// --- the environment

Result<std::unique_ptr<Thread>> SimKernel::NoThreads::start(const std::string& name, std::optional<int>,
                                                            unique_function<void()>) {
  return Error(errc::unavailable, name + ": a simulated network has no threads");
}

Result<std::vector<std::string>> SimKernel::HostNames::resolve(const std::string& host) {
  for (const std::unique_ptr<SimMachine>& machine : kernel.machines()) {
    if (machine->name() != host) continue;
    std::vector<std::string> addresses;
    for (const std::string& address : machine->addresses()) {
      const bool ipv6 = address.front() == '[';
      addresses.push_back(ipv6 ? address.substr(1, address.size() - 2) : address);
    }
    return addresses;
  }
  if (host == "localhost") return std::vector<std::string>{"127.0.0.1", "::1"};
  return Error(errc::unresolved, host + ": no simulated host has this name");
}

Status SimKernel::Jobs::submit(Job job, Pace) {
  const std::uint64_t number = next++;
  waiting.emplace(number, std::move(job));
  kernel.after(kernel.latency(), [this, number] {
    kernel.note(SimEvent::job, 0, number);
    auto node = waiting.extract(number);
    node.mapped()({});
  });
  return std::monostate();
}

}  // namespace linkspan
