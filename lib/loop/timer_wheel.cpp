// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/loop/timer_wheel.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

#include "lib/loop/guarded_call.hpp"

namespace linkspan {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(1);

}  // namespace

// What timers are ordered by.
struct TimerWheel::Order {
  auto operator()(const Timer* timer) const noexcept {
    return std::tuple(timer->deadline_, timer->sequence_);
  }
};

void TimerWheel::start(Timer& timer, TimePoint now, Duration delay) noexcept {
  timer.unlink();
  timer.sequence_ = ++sequence_;
  if (delay <= Duration::zero()) {
    timer.deadline_ = now;
    immediate_.push_back(timer);
    not_before_ = origin_;
    return;
  }
  timer.deadline_ = delay > TimePoint::max() - now ? TimePoint::max() : now + delay;
  // What lies beyond the wheel's end fires at its end.
  const bool beyond = timer.deadline_ - origin_ >= kTick * static_cast<std::int64_t>(kLastTick);
  not_before_ = beyond ? origin_ : std::min(not_before_, timer.deadline_);
  insert(timer);
}

void TimerWheel::insert(Timer& timer) noexcept {
  const Duration from_origin = timer.deadline_ - origin_;
  const auto exact =
      static_cast<std::uint64_t>(from_origin / kTick) + (from_origin % kTick != Duration::zero());
  const std::uint64_t tick = std::clamp(exact, tick_, kLastTick);
  const unsigned highest_bit = 63u - static_cast<unsigned>(std::countl_zero((tick ^ tick_) | 1));
  const unsigned level = highest_bit / kBits;
  const unsigned slot = static_cast<unsigned>(tick >> (level * kBits)) % kSlots;
  levels_[level].slots[slot].push_back(timer);
  levels_[level].occupied |= std::uint64_t{1} << slot;
}

// The first slot that holds timers: the lowest occupied level, since lower levels lie inside the current slot
// of the levels above them.
bool TimerWheel::find_next(Position& position) noexcept {
  for (unsigned level = 0; level < kLevels; ++level) {
    Level& slots = levels_[level];
    while (slots.occupied != 0) {
      const auto slot = static_cast<unsigned>(std::countr_zero(slots.occupied));
      if (slots.slots[slot].empty()) {  // its timers were cancelled
        slots.occupied &= slots.occupied - 1;
        continue;
      }
      const unsigned shift = level * kBits;
      const std::uint64_t base = (tick_ >> shift >> kBits) << kBits << shift;
      position = {level, slot, base + (std::uint64_t{slot} << shift)};
      return true;
    }
  }
  return false;
}

// Takes out what is due up to `tick`, that one included.
void TimerWheel::advance(std::uint64_t tick) noexcept {
  const std::uint64_t last = std::min(tick, kLastTick);
  const std::uint64_t end = std::min(last + 1, kLastTick);
  Position next{};
  // A slot of an upper level that begins at `end` moves down now: afterwards nothing above the lowest level
  // may lie in the current slot of its level.
  while (find_next(next) && (next.tick <= last || (next.tick == end && next.level != 0))) {
    List& slot = levels_[next.level].slots[next.slot];
    levels_[next.level].occupied &= ~(std::uint64_t{1} << next.slot);
    tick_ = next.tick;
    if (next.level == 0) {
      collect_due(slot);
      continue;
    }
    List moving;
    moving.splice_back(slot);
    while (!moving.empty()) insert(moving.pop_front());
  }
  tick_ = std::max(tick_, end);
}

Timer* TimerWheel::pop_earliest(List& one, List& other) noexcept {
  if (one.empty() && other.empty()) return nullptr;
  const bool from_one = other.empty() || (!one.empty() && Order()(one.first()) < Order()(other.first()));
  return &(from_one ? one : other).pop_front();
}

void TimerWheel::merge(List& into, List& other) noexcept {
  List merged;
  while (Timer* earliest = pop_earliest(into, other)) merged.push_back(*earliest);
  into.splice_back(merged);
}

// A merge sort that allocates nothing: sorted[i] has 2^i timers or none.
void TimerWheel::collect_due(List& slot) noexcept {
  std::array<List, 32> sorted;
  while (!slot.empty()) {
    List carried;
    carried.push_back(slot.pop_front());
    std::size_t i = 0;
    for (; !sorted[i].empty(); ++i) merge(carried, sorted[i]);
    sorted[i].splice_back(carried);
  }
  List in_order;
  for (List& part : sorted) merge(in_order, part);
  due_.splice_back(in_order);
}

void TimerWheel::expire(TimePoint now, std::size_t limit, LoopCounters& counters) noexcept {
  if (now < not_before_) return;  // most ticks
  advance(static_cast<std::uint64_t>((now - origin_) / kTick));
  List immediate;  // those that callbacks start wait for the next call
  immediate.splice_back(immediate_);
  for (; limit != 0; --limit) {
    Timer* const next = pop_earliest(due_, immediate);
    if (next == nullptr) break;
    Timer& timer = *next;
    counters.timers.add(1);
    if (now > timer.deadline_) {  // a saturated deadline may lie ahead
      counters.worst_lateness_ns.raise_to(static_cast<std::uint64_t>((now - timer.deadline_).count()));
    }
    // The callback may destroy the timer, so it runs from here; it comes back if the timer is still there.
    unique_function<void()> callback = std::move(timer.callback_);
    firing_ = &timer;
    guarded_call(callback, "a timer", counters);
    if (firing_ == &timer) timer.callback_ = std::move(callback);
    firing_ = nullptr;
  }
  immediate.splice_back(immediate_);
  immediate_.splice_back(immediate);
  not_before_ = next_expiry();
}

TimePoint TimerWheel::next_expiry() noexcept {
  if (!due_.empty() || !immediate_.empty()) return origin_;
  Position next{};
  if (!find_next(next)) return TimePoint::max();
  if (next.tick >= static_cast<std::uint64_t>((TimePoint::max() - origin_) / kTick)) return TimePoint::max();
  return origin_ + kTick * static_cast<std::int64_t>(next.tick);
}

void TimerWheel::cancel_all() noexcept {
  due_.clear();
  immediate_.clear();
  for (Level& level : levels_) {
    for (List& slot : level.slots) slot.clear();
    level.occupied = 0;
  }
  not_before_ = TimePoint::max();
}

}  // namespace linkspan
