// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/retrying_connect.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/split_mix.hpp"
#include "lib/loop/guarded_call.hpp"

namespace linkspan {

// --- Backoff ----------------------------------------------------------------------------------------------

Backoff::Backoff(const BackoffOptions& options) noexcept
    : options_(options), delay_ns_(static_cast<double>(options.first_delay.count())), random_(options.seed) {}

std::optional<Duration> Backoff::next() noexcept {
  if (++failed_ == options_.attempts) return std::nullopt;
  const auto most = static_cast<double>(options_.max_delay.count());
  const double delay = std::min(delay_ns_, most);
  delay_ns_ = std::min(delay_ns_ * std::max(options_.factor, 1.0), most);
  const double chance = static_cast<double>(split_mix(random_) >> 11) * 0x1p-53;
  const double kept = 1 - std::clamp(options_.jitter, 0.0, 1.0) * chance;
  return Duration(static_cast<Duration::rep>(delay * kept));
}

// --- RetryingConnect --------------------------------------------------------------------------------------

namespace {

BackoffOptions seeded(BackoffOptions options, EventLoop& loop) {
  if (options.seed == 0) options.seed = loop.environment().random.next();
  return options;
}

}  // namespace

RetryingConnect::RetryingConnect(EventLoop& loop, ChannelInitializer initializer,
                                 ChannelOptions channel_options, Target target, const RetryOptions& options,
                                 Done done)
    : loop_(loop),
      client_(loop, std::move(initializer), channel_options),
      target_(std::move(target)),
      backoff_(seeded(options.backoff, loop)),
      done_(std::move(done)),
      alive_(std::make_shared<bool>(true)),
      next_(loop, [this] { attempt(); }),
      deadline_(loop, [this] { finish(make_error_code(errc::timed_out), {}); }) {
  deadline_.start(options.deadline);
  next_.start(Duration::zero());
  loop_.await(*this);
  if (loop_.stopping()) loop_stops();
}

RetryingConnect::~RetryingConnect() {
  finish(make_error_code(errc::cancelled), {});
}

// --- the loop's end

void RetryingConnect::loop_stops() noexcept {
  loop_.defer(*this);
}

void RetryingConnect::loop_ends() noexcept {
  run_deferred();
}

void RetryingConnect::run_deferred() {
  finish(make_error_code(errc::cancelled), {});
}

void RetryingConnect::attempt() {
  ++attempts_;
  auto ended = [this, alive = alive_](std::error_code error) {
    if (*alive) attempt_ended(error);
  };
  const auto connect = [&](const auto& target) { return client_.connect(target, std::move(ended)); };
  // It does not end inside the call, but for a loop that stops.
  const std::shared_ptr<bool> alive = alive_;
  ChannelRef channel = std::visit(connect, target_);
  if (*alive) channel_ = std::move(channel);
}

void RetryingConnect::attempt_ended(std::error_code error) {
  if (!error) return finish({}, std::exchange(channel_, {}));
  channel_ = {};
  if (loop_.stopping()) return finish(make_error_code(errc::cancelled), {});
  const std::optional<Duration> delay = backoff_.next();
  if (!delay) return finish(error, {});
  next_.start(*delay);
}

void RetryingConnect::finish(std::error_code error, ChannelRef channel) {
  if (!*alive_) return;
  *alive_ = false;
  next_.cancel();
  deadline_.cancel();
  ListNode<PendingWork>::unlink();
  ListNode<DeferredTask>::unlink();
  if (error) std::exchange(channel_, {}).abort();  // of an attempt that runs
  Done done = std::move(done_);
  if (!done) return;
  LoopCounters& counters = loop_.counters();
  auto call = [&] { done(error, std::move(channel)); };  // which may destroy this
  guarded_call(call, "a callback of connecting again", counters);
}

}  // namespace linkspan
