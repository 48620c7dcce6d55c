// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The timers of one loop: a hierarchical wheel of 1 ms ticks with 7 levels of 64 slots, which reaches 139
// years. A timer sits on the level of the highest 6-bit group in which its tick differs from the current one
// (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987), and moves down when the wheel gets
// there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

class TimerWheel {
 public:
  explicit TimerWheel(TimePoint origin) noexcept : origin_(origin) {}
  ~TimerWheel() { cancel_all(); }

  /// `now` is not before the last expire's.
  void start(Timer& timer, TimePoint now, Duration delay) noexcept;
  /// Fires what is due at `now`, at most `limit` timers; those started meanwhile wait for the next call.
  void expire(TimePoint now, std::size_t limit, LoopCounters& counters) noexcept;
  /// When expire has to be called next; TimePoint::max() without timers. May be early, never late.
  [[nodiscard]] TimePoint next_expiry() noexcept;
  /// The same at no cost; earlier after a timer was cancelled.
  [[nodiscard]] TimePoint not_before() const noexcept { return not_before_; }
  void cancel_all() noexcept;

  /// Tells a running expire that the timer whose callback runs is gone.
  void forget(const Timer& timer) noexcept {
    if (firing_ == &timer) firing_ = nullptr;
  }

 private:
  using List = IntrusiveList<Timer, Timer>;
  struct Order;

  static constexpr unsigned kBits = 6;
  static constexpr unsigned kSlots = 1u << kBits;
  static constexpr unsigned kLevels = 7;
  static constexpr std::uint64_t kLastTick = (std::uint64_t{1} << (kBits * kLevels)) - 1;

  struct Level {
    std::uint64_t occupied = 0;  // a bit for each slot that may hold timers; cleared lazily
    std::array<List, kSlots> slots;
  };
  struct Position {
    unsigned level;
    unsigned slot;
    std::uint64_t tick;  // the first tick of the slot
  };

  void insert(Timer& timer) noexcept;
  bool find_next(Position& position) noexcept;
  void advance(std::uint64_t tick) noexcept;
  void collect_due(List& slot) noexcept;
  static void merge(List& into, List& other) noexcept;
  static Timer* pop_earliest(List& one, List& other) noexcept;

  TimePoint origin_;
  std::uint64_t tick_ = 0;                   // everything before it has been taken out
  TimePoint not_before_ = TimePoint::max();  // expire has nothing to do
  std::uint64_t sequence_ = 0;
  std::array<Level, kLevels> levels_;
  List due_;        // taken out of the wheel, in order
  List immediate_;  // started without a delay, in order
  const Timer* firing_ = nullptr;
};

}  // namespace linkspan
