// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/sim/sim_reactor.hpp"

#include <cerrno>

#include "linkspan/base/assert.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kEventsPerPoll = 256;
TimePoint later(TimePoint now, Duration by) noexcept {
  return by > TimePoint::max() - now ? TimePoint::max() : now + by;
}

}  // namespace

SimReactor::SimReactor(SimMachine& machine, EventLoop& loop)
    : machine_(machine), kernel_(machine.kernel()), loop_(loop) {
  kernel_.add(*this);
}

SimReactor::~SimReactor() {
  kernel_.remove(*this);
}

TimePoint SimReactor::due() const noexcept {
  if (ended_) return TimePoint::max();
  if (woken_.load(std::memory_order_acquire) || !ready_.empty()) return TimePoint{};
  return due_;
}

void SimReactor::tick() {
  if (ended_) return;
  kernel_.note(SimEvent::tick, 0, static_cast<std::uint64_t>(machine_.index()));
  ticking_ = true;
  const bool goes_on = loop_.run_as_guest();
  ticking_ = false;
  if (!goes_on) ended_ = true;
}

bool SimReactor::wait(Duration timeout) noexcept {
  const bool woken = woken_.exchange(false, std::memory_order_acq_rel);
  if (ticking_) {
    const bool came = tell_ready();
    due_ = came || woken ? kernel_.now() : later(kernel_.now(), timeout);
    return came;
  }
  const TimePoint end = later(kernel_.now(), woken ? Duration::zero() : timeout);
  // A loop that always has something to do does not stop the time either.
  if (end == kernel_.now() || !ready_.empty()) kernel_.advance_to(kernel_.now() + SimKernel::kTickTime);
  while (ready_.empty() && !woken_.load(std::memory_order_acquire) && kernel_.now() < end) {
    const TimePoint next = kernel_.next_event();
    LINKSPAN_ASSERT(next != TimePoint::max() || end != TimePoint::max(),
                    "a simulated loop does not wait for what can never happen");
    kernel_.advance_to(std::min(next, end));
  }
  woken_.store(false, std::memory_order_relaxed);
  return tell_ready();
}

bool SimReactor::tell_ready() {
  bool told = false;
  for (std::size_t count = std::min(ready_.size(), kEventsPerPoll); count != 0; --count) {
    SimSocket* socket = kernel_.find(ready_.front());
    ready_.pop_front();
    if (socket != nullptr && socket->tell()) told = true;
  }
  return told;
}

int SimReactor::update(Watch& watch) {
  SimSocket* socket = machine_.socket_of(watch.descriptor());
  if (socket == nullptr) return EBADF;
  return socket->watch(watch, *this) ? 0 : EEXIST;
}

void SimReactor::forget(Watch& watch) noexcept {
  if (SimSocket* socket = machine_.socket_of(watch.descriptor())) socket->forget(watch);
}

}  // namespace linkspan
