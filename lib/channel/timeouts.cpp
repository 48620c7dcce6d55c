// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/timeouts.hpp"

#include <algorithm>
#include <string>

namespace linkspan {

namespace detail {

template <class Message>
Watchdog<Message>::~Watchdog() = default;

template <class Message>
void Watchdog<Message>::on_added() {
  if (this->channel().active()) watch();
}

template <class Message>
void Watchdog<Message>::on_removed() {
  timer_.reset();
}

template <class Message>
void Watchdog<Message>::on_active() {
  watch();
  this->pass_active();
}

template <class Message>
void Watchdog<Message>::on_inactive(std::error_code) {
  timer_.reset();
}

template <class Message>
void Watchdog<Message>::watch() {
  static_cast<void>(has_sent());
  begin();
  timer_.emplace(this->channel().loop(), [this] {
    Duration next{};
    this->channel().run([&] { next = look(); });
    // It may have removed the handler, or closed the channel.
    if (timer_ && this->channel().active() && !this->channel().ended()) timer_->start(next);
  });
  timer_->start(limit_ / 4);
}

template <class Message>
bool Watchdog<Message>::has_sent() noexcept {
  const std::uint64_t sent = this->channel().sent_bytes() + this->channel().sent_packets();
  return std::exchange(sent_, sent) != sent;
}

template <class Message>
void Watchdog<Message>::fail(const char* what) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count();
  this->channel().fail(make_error_code(errc::timed_out),
                       std::string(what) + " for " + std::to_string(milliseconds) + " ms");
}

template <class Message>
Duration ReadWatchdog<Message>::look() {
  if (!this->channel().reading()) this->last_ = this->now();
  const Duration left = this->limit() - (this->now() - this->last_);
  if (left > Duration::zero()) return left;
  this->last_ = this->now();  // if somebody takes the error
  this->fail("nothing was received");
  return this->limit();
}

template <class Message>
Duration WriteWatchdog<Message>::look() {
  if (this->has_sent() || this->channel().queued_bytes() == 0) {
    this->last_ = this->now();
  } else if (this->now() - this->last_ >= this->limit()) {
    this->last_ = this->now();
    this->fail("the peer has taken nothing of what is queued");
  }
  return this->limit() / 4;
}

template <class Message>
Duration IdleWatchdog<Message>::look() {
  if (this->has_sent()) {
    this->last_ = this->now();
  } else if (const Duration idle = this->now() - this->last_; idle >= this->limit()) {
    this->last_ = this->now();
    if (on_idle_ == OnIdle::close) {
      this->channel().close();
    } else {
      this->pass_user_event(IdleEvent{idle});
    }
  }
  return this->limit() / 4;
}

template class Watchdog<Chain>;
template class Watchdog<Packet>;
template class ReadWatchdog<Chain>;
template class ReadWatchdog<Packet>;
template class WriteWatchdog<Chain>;
template class WriteWatchdog<Packet>;
template class IdleWatchdog<Chain>;
template class IdleWatchdog<Packet>;

}  // namespace detail
}  // namespace linkspan
