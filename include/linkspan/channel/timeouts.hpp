// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Handlers that watch the time of a channel; put them next to the wire. ReadTimeout: the peer sends nothing.
// WriteTimeout: the peer takes nothing of what is queued. IdleTimeout: neither. What counts is progress: a
// large write that moves slowly is neither idle nor stuck.
// Not for: how long an answer may take; see Requests. Connecting and closing have deadlines of their own.
// Cost: 152 bytes a channel with a timer that is never moved by a message; ReadTimeout and IdleTimeout also
// cost a message one indirect call.
// Threads: the loop's thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

namespace detail {

/// A handler that looks at its channel from time to time while the connection is open.
class LINKSPAN_API Watchdog : public Handler<Chain, Chain, Chain, Chain> {
 public:
  ~Watchdog() override;
  void on_added() override;
  void on_removed() override;
  void on_active() override;
  void on_inactive(std::error_code error) override;

 protected:
  explicit Watchdog(Duration limit) noexcept : limit_(limit) {}
  /// How long until the next look.
  virtual Duration look() = 0;
  virtual void begin() = 0;

  /// Whether the kernel has taken bytes since the last question.
  [[nodiscard]] bool has_sent() noexcept;
  [[nodiscard]] TimePoint now() const noexcept { return channel().loop().now(); }
  [[nodiscard]] Duration limit() const noexcept { return limit_; }
  /// An error event with errc::timed_out.
  void fail(const char* what);

 private:
  void watch();

  Duration limit_;
  std::uint64_t sent_ = 0;
  std::optional<Timer> timer_;
};

}  // namespace detail

/// An error event, errc::timed_out, when nothing was received for `limit`. Time in which reading is paused
/// does not count.
class LINKSPAN_API ReadTimeout final : public detail::Watchdog {
 public:
  explicit ReadTimeout(Duration limit) noexcept : Watchdog(limit) {}
  void on_read(Chain&& data) override {
    last_ = now();
    pass(std::move(data));
  }
  void on_read_resumed() override { last_ = now(); }

 private:
  Duration look() override;
  void begin() override { last_ = now(); }

  TimePoint last_;
};

/// An error event, errc::timed_out, when bytes are queued and the kernel has taken none for `limit`, or up to
/// a quarter more.
class LINKSPAN_API WriteTimeout final : public detail::Watchdog {
 public:
  explicit WriteTimeout(Duration limit) noexcept : Watchdog(limit) {}

 private:
  Duration look() override;
  void begin() override { last_ = now(); }

  TimePoint last_;
};

/// The user event that an IdleTimeout passes on.
struct IdleEvent {
  Duration idle;
};

enum class OnIdle {
  close,  ///< close(): no error
  tell,   ///< a user event, IdleEvent, again after each `limit`
};

/// When nothing was received, and the kernel has taken no bytes, for `limit`, or up to a quarter more.
class LINKSPAN_API IdleTimeout final : public detail::Watchdog {
 public:
  explicit IdleTimeout(Duration limit, OnIdle on_idle = OnIdle::close) noexcept
      : Watchdog(limit), on_idle_(on_idle) {}
  void on_read(Chain&& data) override {
    last_ = now();
    pass(std::move(data));
  }

 private:
  Duration look() override;
  void begin() override { last_ = now(); }

  TimePoint last_;
  OnIdle on_idle_;
};

}  // namespace linkspan
