// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ConnectionPool: open channels to one peer that are used again. acquire() hands one out, connects another if
// there may be more, or waits; what was acquired goes back when its lease does.
// Not for: protocols with many requests in flight on one channel; those share one (Requests).
// Cost: one allocation for each acquire.
// Threads: the loop's thread only; a pool for each loop.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "linkspan/base/result.hpp"
#include "linkspan/channel/retrying_connect.hpp"

namespace linkspan {

struct PoolOptions {
  std::size_t max_connections = 16;                      ///< in use, idle and connecting; at least 1
  std::size_t max_idle = 8;                              ///< one more that comes back is closed
  std::size_t max_waiting = 1024;                        ///< one more acquire fails with errc::limit_exceeded
  Duration idle_time = std::chrono::seconds(60);         ///< then an idle connection is closed
  Duration acquire_deadline = std::chrono::seconds(10);  ///< then it fails with errc::timed_out
  RetryOptions connect;  ///< attempts and delays of each connection; its failure goes to one that waits
  /// Asked before an idle connection is handed out; false closes it. Without: it is open.
  std::function<bool(Channel& channel)> healthy;

  PoolOptions() = default;
};

/// A connection of a pool, for one user at a time; goes back when destroyed.
class LINKSPAN_API PooledChannel {
 public:
  PooledChannel() noexcept = default;
  PooledChannel(PooledChannel&& other) noexcept = default;
  PooledChannel& operator=(PooledChannel&& other) noexcept;
  ~PooledChannel() { give_back(true); }

  [[nodiscard]] const ChannelRef& channel() const noexcept { return channel_; }
  /// Closes it instead: it is in no state to be used again.
  void discard() { give_back(false); }

 private:
  friend class ConnectionPool;
  class Pool;

  PooledChannel(std::shared_ptr<Pool> pool, ChannelRef channel) noexcept
      : pool_(std::move(pool)), channel_(std::move(channel)) {}
  void give_back(bool usable);

  std::shared_ptr<Pool> pool_;
  ChannelRef channel_;
};

class LINKSPAN_API ConnectionPool {
 public:
  /// Called once, not inside acquire(). An error names the limit that it comes from. A loop that stops calls
  /// it with errc::cancelled before it is done.
  using Acquired = unique_function<void(Result<PooledChannel> channel)>;

  /// Fills the pipeline of each channel with `initializer`.
  ConnectionPool(EventLoop& loop, RetryingConnect::Target target, ChannelInitializer initializer,
                 ChannelOptions channel_options = {}, PoolOptions options = {});
  /// Fails those that wait with errc::cancelled, in this call, and closes idle connections; those in use are
  /// closed when they come back.
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  void acquire(Acquired done);

  [[nodiscard]] std::size_t in_use() const noexcept;
  [[nodiscard]] std::size_t idle() const noexcept;
  [[nodiscard]] std::size_t connecting() const noexcept;
  [[nodiscard]] std::size_t waiting() const noexcept;

 private:
  std::shared_ptr<PooledChannel::Pool> pool_;
};

}  // namespace linkspan
