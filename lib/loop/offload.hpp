// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Offload: work on a helper thread whose end is reported on the loop's thread. Neither keeps the other: a
// loop that forgets its work may end, and what the work holds lives until that has ended, on whatever thread.
#pragma once

#include <memory>
#include <system_error>

#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/helper_threads.hpp"

namespace linkspan {

class Offload {
 public:
  /// On the loop's thread: without an error when the work was done, else errc::cancelled when it never began,
  /// errc::handler_failed when it threw.
  using Done = unique_function<void(std::error_code)>;

  Offload() = default;
  ~Offload() { forget(); }
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  /// Hands `work` to the loop's helpers. Loop's thread, as all that follows; nothing else may be running.
  [[nodiscard]] Status start(EventLoop& loop, Helpers::Pace pace, unique_function<void()> work, Done done);
  /// `done` will not be called, nor the loop be touched, from now on.
  void forget() noexcept;

 private:
  struct Link;

  std::shared_ptr<Link> link_;  // with the job
};

}  // namespace linkspan
