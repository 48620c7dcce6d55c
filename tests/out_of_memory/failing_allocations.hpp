// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The test program's operator new, which can be told to fail, and its malloc, for what C libraries allocate.
#pragma once

#include <atomic>
#include <cstddef>

#include "support/sanitized.hpp"

#if defined(__GLIBC__)
#define LINKSPAN_OWN_MALLOC (!LINKSPAN_SANITIZED)
#else
#define LINKSPAN_OWN_MALLOC 0
#endif

namespace linkspan::test {

/// While it lives, one allocation by operator new, or by aligned_alloc, which Asio uses, fails: the one that
/// comes after `allowed` others, counted on the thread that made this.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::size_t allowed) noexcept;
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Whether it has come to that.
  [[nodiscard]] bool failed() const noexcept;
};

/// The same for malloc and calloc, which operator new does not count as here. Without effect where a
/// sanitizer has a malloc of its own.
class FailingMalloc {
 public:
  static constexpr bool kThere = LINKSPAN_OWN_MALLOC;

  explicit FailingMalloc(std::size_t allowed) noexcept;
  ~FailingMalloc();
  FailingMalloc(const FailingMalloc&) = delete;
  FailingMalloc& operator=(const FailingMalloc&) = delete;

  [[nodiscard]] bool failed() const noexcept;
  /// So far.
  [[nodiscard]] std::size_t calls() const noexcept;
};

/// Calls `attempt` with the first allocation failing, then with the second one, and so on, until none fails.
/// `attempt` gets nothing, may throw std::bad_alloc, and is followed by `check(failed)`. Returns how many
/// allocations `attempt` makes.
template <class Attempt, class Check>
std::size_t fail_each_allocation(Attempt&& attempt, Check&& check) {
  for (std::size_t allowed = 0;; ++allowed) {
    bool failed = false;
    {
      const FailingAllocation failing(allowed);
      try {
        attempt();
      } catch (const std::bad_alloc&) {
      }
      failed = failing.failed();
    }
    check(failed);
    if (!failed) return allowed;
  }
}

}  // namespace linkspan::test
