// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/connection_pool.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <string>
#include <vector>

#include "lib/loop/guarded_call.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {

// Shared by the pool and the leases.
class PooledChannel::Pool final : public std::enable_shared_from_this<Pool>,
                                  private PendingWork,
                                  private DeferredTask {
 public:
  Pool(EventLoop& loop, RetryingConnect::Target target, ChannelInitializer initializer,
       ChannelOptions channel_options, PoolOptions options)
      : loop_(loop),
        target_(std::move(target)),
        initializer_(std::move(initializer)),
        channel_options_(channel_options),
        options_(std::move(options)),
        serve_(loop, [this] { serve(); }),
        idle_timer_(loop, [this] { close_idle(); }) {
    LINKSPAN_ASSERT(options_.max_connections != 0, "a pool has at least one connection");
  }

  void acquire(ConnectionPool::Acquired done);
  void give_back(ChannelRef channel, bool usable);
  void close();

  [[nodiscard]] std::size_t in_use() const noexcept { return in_use_; }
  [[nodiscard]] std::size_t idle() const noexcept { return idle_.size(); }
  [[nodiscard]] std::size_t connecting() const noexcept { return connects_.size() - ended_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiters_.size(); }

 private:
  struct Waiter {
    Waiter(Pool& pool, ConnectionPool::Acquired done_in)
        : done(std::move(done_in)), deadline(pool.loop_, [this, &pool] { pool.timed_out(*this); }) {}
    ConnectionPool::Acquired done;
    Timer deadline;
  };
  struct Idle {
    ChannelRef channel;
    TimePoint since;
  };
  using Connects = std::list<std::unique_ptr<RetryingConnect>>;

  void loop_stops() noexcept override { loop_.defer(*this); }
  void loop_ends() noexcept override { run_deferred(); }
  void run_deferred() override;
  void serve();
  void serve_refused();
  void fail_waiters(const char* why);
  void timed_out(const Waiter& waiter);
  void connect();
  void connected(Connects::iterator connect, std::error_code error, ChannelRef channel);
  void close_idle();
  [[nodiscard]] bool healthy(const ChannelRef& channel);
  void hand_out(ChannelRef channel);
  void finish(Waiter& waiter, Result<PooledChannel> result) {
    auto call = [&] { waiter.done(std::move(result)); };
    guarded_call(call, "a pool's callback", loop_.counters());
  }

  EventLoop& loop_;
  const RetryingConnect::Target target_;
  const ChannelInitializer initializer_;
  const ChannelOptions channel_options_;
  const PoolOptions options_;
  bool closed_ = false;
  std::size_t in_use_ = 0;
  std::deque<Idle> idle_;  // the longest idle one first
  std::deque<std::unique_ptr<Waiter>> waiters_;
  std::deque<std::unique_ptr<Waiter>> refused_;
  Connects connects_;
  std::vector<Connects::iterator> ended_;  // of these, to be destroyed outside of their callbacks
  Timer serve_;
  Timer idle_timer_;
};

void PooledChannel::Pool::acquire(ConnectionPool::Acquired done) {
  auto waiter = std::make_unique<Waiter>(*this, std::move(done));
  if (waiters_.size() >= options_.max_waiting) {
    refused_.push_back(std::move(waiter));
  } else {
    waiter->deadline.start(options_.acquire_deadline);
    waiters_.push_back(std::move(waiter));
  }
  serve_.start(Duration::zero());
  if (!ListNode<PendingWork>::linked()) loop_.await(*this);
  if (loop_.stopping()) loop_stops();
}

// The loop stops: timers fire no more. What acquires inside of these callbacks waits for the next tick.
void PooledChannel::Pool::run_deferred() {
  const std::shared_ptr<Pool> self = shared_from_this();
  ListNode<PendingWork>::unlink();
  serve_refused();
  fail_waiters("the loop stops");
}

void PooledChannel::Pool::fail_waiters(const char* why) {
  for (const auto& waiter : std::exchange(waiters_, {})) {
    waiter->deadline.cancel();
    finish(*waiter, Error(errc::cancelled, why));
  }
}

void PooledChannel::Pool::timed_out(const Waiter& waiter) {
  const std::shared_ptr<Pool> self = shared_from_this();
  const auto found = std::ranges::find_if(waiters_, [&](const auto& each) { return each.get() == &waiter; });
  const std::unique_ptr<Waiter> late = std::move(*found);
  waiters_.erase(found);
  finish(*late, Error(errc::timed_out,
                      "no connection was free within PoolOptions::acquire_deadline; max_connections is " +
                          std::to_string(options_.max_connections)));
}

void PooledChannel::Pool::serve() {
  const std::shared_ptr<Pool> self = shared_from_this();
  for (const auto connect : std::exchange(ended_, {})) connects_.erase(connect);
  serve_refused();
  // The one that came back last is the likeliest to be open still.
  while (!waiters_.empty() && !idle_.empty()) {
    const ChannelRef channel = std::move(idle_.back().channel);
    idle_.pop_back();
    if (!healthy(channel) || closed_) {  // the check may have destroyed the pool
      channel.close();
    } else {
      hand_out(channel);
    }
  }
  while (!closed_ && connecting() < waiters_.size() &&
         in_use_ + idle_.size() + connecting() < options_.max_connections) {
    connect();
  }
}

void PooledChannel::Pool::serve_refused() {
  for (const auto& waiter : std::exchange(refused_, {})) {
    finish(*waiter, Error(errc::limit_exceeded,
                          "PoolOptions::max_waiting is " + std::to_string(options_.max_waiting)));
  }
}

bool PooledChannel::Pool::healthy(const ChannelRef& channel) {
  Channel* const here = channel.here();
  if (here == nullptr || here->ended()) return false;
  bool result = true;
  auto ask = [&] {
    result = false;  // if it throws
    result = options_.healthy(*here);
  };
  if (options_.healthy) guarded_call(ask, "a pool's health check", loop_.counters());
  return result;
}

void PooledChannel::Pool::hand_out(ChannelRef channel) {
  const std::unique_ptr<Waiter> waiter = std::move(waiters_.front());
  waiters_.pop_front();
  ++in_use_;
  finish(*waiter, PooledChannel(shared_from_this(), std::move(channel)));
}

void PooledChannel::Pool::connect() {
  const auto place = connects_.emplace(connects_.end());
  *place = std::make_unique<RetryingConnect>(loop_, initializer_, channel_options_, target_, options_.connect,
                                             [this, place](std::error_code error, ChannelRef channel) {
                                               connected(place, error, std::move(channel));
                                             });
}

void PooledChannel::Pool::connected(Connects::iterator connect, std::error_code error, ChannelRef channel) {
  const std::shared_ptr<Pool> self = shared_from_this();
  if (closed_) return channel.close();
  ended_.push_back(connect);
  serve_.start(Duration::zero());
  if (!error) {
    ++in_use_;
    give_back(std::move(channel), true);
  } else if (!waiters_.empty()) {
    const std::unique_ptr<Waiter> waiter = std::move(waiters_.front());
    waiters_.pop_front();
    finish(*waiter, Error(error, "a connection of the pool failed"));
  }
}

void PooledChannel::Pool::give_back(ChannelRef channel, bool usable) {
  --in_use_;
  if (usable && !closed_ && (idle_.size() < options_.max_idle || !waiters_.empty())) {
    idle_.push_back({std::move(channel), loop_.now()});
    if (!idle_timer_.active()) idle_timer_.start(options_.idle_time);
  } else {
    channel.close();
  }
  if (!closed_) serve_.start(Duration::zero());
}

void PooledChannel::Pool::close_idle() {
  const TimePoint now = loop_.now();
  while (!idle_.empty() && now - idle_.front().since >= options_.idle_time) {
    idle_.front().channel.close();
    idle_.pop_front();
  }
  if (!idle_.empty()) idle_timer_.start(options_.idle_time - (now - idle_.front().since));
}

void PooledChannel::Pool::close() {
  const std::shared_ptr<Pool> self = shared_from_this();
  closed_ = true;
  serve_.cancel();
  idle_timer_.cancel();
  ended_.clear();
  connects_.clear();
  for (const Idle& idle : std::exchange(idle_, {})) idle.channel.close();
  ListNode<PendingWork>::unlink();
  ListNode<DeferredTask>::unlink();
  serve_refused();
  fail_waiters("the pool was closed");
}

// --- PooledChannel ----------------------------------------------------------------------------------------

PooledChannel& PooledChannel::operator=(PooledChannel&& other) noexcept {
  if (this == &other) return *this;
  give_back(true);
  pool_ = std::move(other.pool_);
  channel_ = std::move(other.channel_);
  return *this;
}

void PooledChannel::give_back(bool usable) {
  if (pool_ == nullptr) return;
  const std::shared_ptr<Pool> pool = std::move(pool_);
  pool->give_back(std::exchange(channel_, {}), usable);
}

// --- ConnectionPool ---------------------------------------------------------------------------------------

ConnectionPool::ConnectionPool(EventLoop& loop, RetryingConnect::Target target,
                               ChannelInitializer initializer, ChannelOptions channel_options,
                               PoolOptions options)
    : pool_(std::make_shared<PooledChannel::Pool>(loop, std::move(target), std::move(initializer),
                                                  channel_options, std::move(options))) {}

ConnectionPool::~ConnectionPool() {
  pool_->close();
}

void ConnectionPool::acquire(Acquired done) {
  pool_->acquire(std::move(done));
}

std::size_t ConnectionPool::in_use() const noexcept {
  return pool_->in_use();
}
std::size_t ConnectionPool::idle() const noexcept {
  return pool_->idle();
}
std::size_t ConnectionPool::connecting() const noexcept {
  return pool_->connecting();
}
std::size_t ConnectionPool::waiting() const noexcept {
  return pool_->waiting();
}

}  // namespace linkspan
