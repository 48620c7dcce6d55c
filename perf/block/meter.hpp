// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Meter: what the clients of the benchmark `block-read` measure, and the line of JSON that they print, as the
// load generator does. Options, with two dashes: seconds; warm-up and warm-up-bytes, both of which are
// reached before it measures; and server, whose processor time is taken.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "perf/support/server.h"

namespace linkspan::perf {

class Meter {
 public:
  Meter(int argc, char** argv)
      : seconds_(std::atof(server_option(argc, argv, "seconds", "1"))),
        warm_up_bytes_(std::strtoull(server_option(argc, argv, "warm-up-bytes", "0"), nullptr, 10)),
        server_(std::atoi(server_option(argc, argv, "server", "0"))),
        end_ns_(now_ns() +
                static_cast<std::uint64_t>(1e9 * std::atof(server_option(argc, argv, "warm-up", "0.2")))) {}

  /// Measures from here on.
  void start() {
    started_ = true;
    bytes_ = 0;
    start_ns_ = now_ns();
    end_ns_ = start_ns_ + static_cast<std::uint64_t>(seconds_ * 1e9);
    server_cpu_ns_ = cpu_ns(server_);
    client_cpu_ns_ = cpu_ns(getpid());
  }
  [[nodiscard]] bool started() const { return started_; }

  /// An operation is over. True when there is time for another one.
  bool add(std::uint64_t bytes) {
    last_ns_ = now_ns();
    bytes_ += bytes;
    if (!started_) return last_ns_ < end_ns_ || bytes_ < warm_up_bytes_;
    ++operations_;
    return last_ns_ < end_ns_;
  }

  /// `more` are members of the JSON object, each with a comma in front.
  void print(const std::string& more = {}) const {
    std::printf(
        "{\"bytes\": %llu, \"operations\": %llu, \"seconds\": %.9f, \"cpu_ns\": %llu, "
        "\"client_cpu_ns\": %llu%s}\n",
        static_cast<unsigned long long>(bytes_), static_cast<unsigned long long>(operations_),
        static_cast<double>(last_ns_ - start_ns_) / 1e9,
        static_cast<unsigned long long>(cpu_ns(server_) - server_cpu_ns_),
        static_cast<unsigned long long>(cpu_ns(getpid()) - client_cpu_ns_), more.c_str());
  }

  /// Does operations, which return their bytes, until the time is over.
  template <class Operation>
  void run(Operation operation) {
    while (add(operation())) {
    }
    start();
    while (add(operation())) {
    }
    print();
  }

 private:
  static std::uint64_t read_clock(clockid_t clock) {
    timespec time{};
    server_require(clock_gettime(clock, &time) == 0, "clock_gettime");
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  }
  static std::uint64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }
  static std::uint64_t cpu_ns(pid_t process) {
    clockid_t clock = 0;
    if (process == 0) return 0;
    errno = clock_getcpuclockid(process, &clock);
    server_require(errno == 0, "the processor time of a process");
    return read_clock(clock);
  }

  double seconds_;
  std::uint64_t warm_up_bytes_;
  pid_t server_;
  bool started_ = false;
  std::uint64_t end_ns_;  // of the warm-up, then of what is measured
  std::uint64_t start_ns_ = 0;
  std::uint64_t last_ns_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t server_cpu_ns_ = 0;
  std::uint64_t client_cpu_ns_ = 0;
};

}  // namespace linkspan::perf
