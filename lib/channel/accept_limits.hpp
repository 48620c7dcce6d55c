// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// AcceptLimits: how often a server accepts, and how many connections one address may have. Made only when
// there is such a limit. Any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>

#include "linkspan/base/clock.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/transport/endpoint.hpp"

namespace linkspan {

class AcceptLimits {
 public:
  explicit AcceptLimits(const ServerOptions& options);

  /// Whether the rate allows for one connection more now, which is counted.
  [[nodiscard]] bool admit_rate(TimePoint now);
  /// Whether this host may have one more, which is counted until release(); empty: it is no host.
  [[nodiscard]] bool admit_host(const std::string& host);
  void release(const std::string& host) noexcept;

 private:
  const std::size_t per_address_;
  const double per_second_;
  const double burst_;

  std::mutex mutex_;
  double tokens_;
  TimePoint filled_{};
  std::unordered_map<std::string, std::size_t> connections_;  // as many as there are, at most
};

}  // namespace linkspan
