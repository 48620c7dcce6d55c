// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/channel/accept_limits.hpp"

#include <algorithm>

namespace linkspan {

AcceptLimits::AcceptLimits(const ServerOptions& options)
    : per_address_(options.max_connections_per_address),
      per_second_(static_cast<double>(options.max_accepts_per_second)),
      burst_(static_cast<double>(options.accept_burst == 0 ? options.max_accepts_per_second
                                                           : options.accept_burst)),
      tokens_(burst_) {}

bool AcceptLimits::admit_rate(TimePoint now) {
  if (per_second_ == 0) return true;
  const std::lock_guard lock(mutex_);
  if (filled_ == TimePoint()) filled_ = now;
  if (now > filled_) {  // loops' clocks differ by a tick
    tokens_ = std::min(burst_, tokens_ + per_second_ * std::chrono::duration<double>(now - filled_).count());
    filled_ = now;
  }
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

bool AcceptLimits::admit_host(const std::string& host) {
  if (per_address_ == 0 || host.empty()) return true;
  const std::lock_guard lock(mutex_);
  std::size_t& count = connections_[host];
  if (count >= per_address_) return false;
  ++count;
  return true;
}

void AcceptLimits::release(const std::string& host) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(host);
  if (found != connections_.end() && --found->second == 0) connections_.erase(found);
}

}  // namespace linkspan
