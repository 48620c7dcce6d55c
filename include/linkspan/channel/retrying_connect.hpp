// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// RetryingConnect: connects a channel, and tries again while that fails, with growing delays.
// Not for: connecting once (Client), and reconnecting when an open channel is lost: make another one then.
// Cost: one object; each attempt is a channel.
// Threads: the loop's thread only.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "linkspan/channel/backoff.hpp"
#include "linkspan/channel/client.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

struct RetryOptions {
  BackoffOptions backoff;
  Duration deadline = std::chrono::minutes(2);  ///< for all attempts and delays together

  RetryOptions() = default;
};

class LINKSPAN_API RetryingConnect final : private PendingWork, private DeferredTask {
 public:
  /// The addresses of a peer, or a name as for Client::connect, which is looked up for each attempt.
  using Target = std::variant<std::vector<Endpoint>, std::string>;
  /// Called once, outside of calls, or in the destructor: with the open channel; or with an empty ref and the
  /// last attempt's error, errc::timed_out after the deadline, errc::cancelled when destroyed before, or when
  /// the loop stops: then before that is done.
  using Done = unique_function<void(std::error_code error, ChannelRef channel)>;

  /// `initializer` fills the pipeline of each attempt's channel.
  RetryingConnect(EventLoop& loop, ChannelInitializer initializer, ChannelOptions channel_options,
                  Target target, const RetryOptions& options, Done done);
  ~RetryingConnect();
  RetryingConnect(const RetryingConnect&) = delete;
  RetryingConnect& operator=(const RetryingConnect&) = delete;

  /// That have begun.
  [[nodiscard]] std::size_t attempts() const noexcept { return attempts_; }

 private:
  void attempt();
  void attempt_ended(std::error_code error);
  void finish(std::error_code error, ChannelRef channel);
  void loop_stops() noexcept override;
  void loop_ends() noexcept override;
  void run_deferred() override;

  EventLoop& loop_;
  Client client_;
  Target target_;
  Backoff backoff_;
  Done done_;  // empty once it was called
  std::size_t attempts_ = 0;
  ChannelRef channel_;           // of the attempt that runs
  std::shared_ptr<bool> alive_;  // false when this is gone
  Timer next_;
  Timer deadline_;
};

}  // namespace linkspan
