// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/loop/busy_poll.hpp"

#ifdef __linux__
#include <sched.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <thread>

namespace linkspan {
namespace {

// Of the whole process; a loop with a CPU of its own counts like any other.
std::atomic<int> polling_loops{0};

int usable_cpus() noexcept {
#ifdef __linux__
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // Of the process's first thread: a loop's own mask may be the one CPU that it is bound to.
  if (::sched_getaffinity(::getpid(), sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

bool BusyPoll::begin() noexcept {
  static const int most_loops = usable_cpus();
  if (confidence_ < kEnoughConfidence) return false;
  if (polling_loops.fetch_add(1, std::memory_order_relaxed) < most_loops) return true;
  finish();
  return false;
}

void BusyPoll::finish() noexcept {
  polling_loops.fetch_sub(1, std::memory_order_relaxed);
}

void BusyPoll::was_idle(Duration idle) noexcept {
  // A sleep ends later than its event came, by about as much as polling is to save.
  confidence_ =
      idle <= 2 * limit_ ? std::min(confidence_ + 1, kMostConfidence) : std::max(confidence_ - 1, 0);
}

}  // namespace linkspan
