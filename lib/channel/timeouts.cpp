// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/timeouts.hpp"

#include <algorithm>
#include <string>

namespace linkspan {

namespace detail {

Watchdog::~Watchdog() = default;

void Watchdog::on_added() {
  if (channel().active()) watch();
}
void Watchdog::on_removed() {
  timer_.reset();
}
void Watchdog::on_active() {
  watch();
  pass_active();
}
void Watchdog::on_inactive(std::error_code) {
  timer_.reset();
}

void Watchdog::watch() {
  static_cast<void>(has_sent());
  begin();
  timer_.emplace(channel().loop(), [this] {
    Duration next{};
    channel().run([&] { next = look(); });
    // It may have removed the handler, or closed the channel.
    if (timer_ && channel().active() && !channel().ended()) timer_->start(next);
  });
  timer_->start(limit_ / 4);
}

bool Watchdog::has_sent() noexcept {
  const std::uint64_t sent = channel().sent_bytes();
  return std::exchange(sent_, sent) != sent;
}

void Watchdog::fail(const char* what) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count();
  channel().fail(make_error_code(errc::timed_out),
                 std::string(what) + " for " + std::to_string(milliseconds) + " ms");
}

}  // namespace detail

Duration ReadTimeout::look() {
  if (!channel().reading()) last_ = now();
  const Duration left = last_ + limit() - now();
  if (left > Duration::zero()) return left;
  last_ = now();  // if somebody takes the error
  fail("nothing was received");
  return limit();
}

Duration WriteTimeout::look() {
  if (has_sent() || channel().queued_bytes() == 0) {
    last_ = now();
  } else if (now() - last_ >= limit()) {
    last_ = now();
    fail("the peer has taken nothing of what is queued");
  }
  return limit() / 4;
}

Duration IdleTimeout::look() {
  if (has_sent()) {
    last_ = now();
  } else if (const Duration idle = now() - last_; idle >= limit()) {
    last_ = now();
    if (on_idle_ == OnIdle::close) {
      channel().close();
    } else {
      pass_user_event(IdleEvent{idle});
    }
  }
  return limit() / 4;
}

}  // namespace linkspan
