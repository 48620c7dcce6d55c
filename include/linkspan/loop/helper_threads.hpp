// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// HelperThreads: a bounded number of threads for what would block a loop: names and files. A thread is
// started when a job finds none that is free, never sooner. A loop uses those of EventLoopOptions::helpers;
// by default they are HelperThreads::system(), one set for the whole program.
// Not for: computing (the threads are few, and others wait for them), and jobs that never end.
// Cost: a job is one allocation, one lock and one wake-up.
// Threads: any.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <system_error>

#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/loop/environment.hpp"

namespace linkspan {

/// Where a loop sends what blocks. A simulated world has one of its own, without threads.
class LINKSPAN_API Helpers {
 public:
  /// Called exactly once: without an error where it may block, or with errc::cancelled when it will not be
  /// run. It may outlive the loop that it is for.
  using Job = unique_function<void(std::error_code)>;

  enum class Pace {
    quick,  ///< waits for a disk at most
    slow,   ///< may hang for long, on other machines
  };

  virtual ~Helpers();
  /// Takes `job`, or says why not; then it is destroyed without a call. It is not called inside this call.
  [[nodiscard]] virtual Status submit(Job job, Pace pace) = 0;
};

struct HelperThreadsOptions {
  std::size_t max_threads = 4;         ///< at least 1
  std::size_t max_queued_jobs = 1024;  ///< at least 1; that wait for a thread: submit() refuses beyond it
  std::string thread_name = "linkspan-help";
  const Environment* environment = &Environment::system();

  HelperThreadsOptions() = default;
};

class LINKSPAN_API HelperThreads final : public Helpers {
 public:
  /// Fails for an option without sense.
  [[nodiscard]] static Result<std::unique_ptr<HelperThreads>> create(HelperThreadsOptions options = {});
  /// Cancels the jobs that have not begun, on this thread, and waits for those that have.
  ~HelperThreads() override;
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  /// Those of the program, with the default options; they live for ever, but do not survive a fork.
  [[nodiscard]] static HelperThreads& system();

  /// Jobs begin in the order of the calls, but the slow ones use at most half of the threads (one, if there
  /// is only one), so that names which cannot be resolved do not keep files waiting. Fails with
  /// errc::limit_exceeded when too many wait, and when there is no thread and none can be started.
  [[nodiscard]] Status submit(Job job, Pace pace) override;

 private:
  struct State;

  explicit HelperThreads(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace linkspan
