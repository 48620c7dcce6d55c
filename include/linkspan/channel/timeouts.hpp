// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Handlers that watch the time of a channel; put them next to the wire. ReadTimeout: the peer sends nothing.
// WriteTimeout: the peer takes nothing of what is queued. IdleTimeout: neither. What counts is progress: a
// large write that moves slowly is neither idle nor stuck. Those whose names begin with Packet are the same
// for datagram channels.
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
#include "linkspan/channel/packet.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

namespace detail {

/// A handler that looks at its channel from time to time while the connection is open. Message: Chain, or
/// Packet on datagram channels.
template <class Message>
class LINKSPAN_API Watchdog : public Handler<Message, Message, Message, Message> {
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
  void begin() noexcept { last_ = now(); }

  /// Whether the kernel has taken something since the last question.
  [[nodiscard]] bool has_sent() noexcept;
  [[nodiscard]] TimePoint now() const noexcept { return this->channel().loop().now(); }
  [[nodiscard]] Duration limit() const noexcept { return limit_; }
  /// An error event with errc::timed_out.
  void fail(const char* what);

  TimePoint last_;  // something happened

 private:
  void watch();

  Duration limit_;
  std::uint64_t sent_ = 0;
  std::optional<Timer> timer_;
};
// Exported here: Chain itself has no visibility that they could have.
extern template class LINKSPAN_API Watchdog<Chain>;
extern template class LINKSPAN_API Watchdog<Packet>;

template <class Message>
class LINKSPAN_API ReadWatchdog : public Watchdog<Message> {
 public:
  explicit ReadWatchdog(Duration limit) noexcept : Watchdog<Message>(limit) {}
  void on_read(Message&& message) override {
    this->begin();
    this->pass(std::move(message));
  }
  void on_read_resumed() override { this->begin(); }

 private:
  Duration look() override;
};
extern template class LINKSPAN_API ReadWatchdog<Chain>;
extern template class LINKSPAN_API ReadWatchdog<Packet>;

template <class Message>
class LINKSPAN_API WriteWatchdog : public Watchdog<Message> {
 public:
  explicit WriteWatchdog(Duration limit) noexcept : Watchdog<Message>(limit) {}

 private:
  Duration look() override;
};
extern template class LINKSPAN_API WriteWatchdog<Chain>;
extern template class LINKSPAN_API WriteWatchdog<Packet>;

}  // namespace detail

/// The user event that an IdleTimeout passes on.
struct IdleEvent {
  Duration idle;
};

enum class OnIdle {
  close,  ///< close(): no error
  tell,   ///< a user event, IdleEvent, again after each `limit`
};

namespace detail {

template <class Message>
class LINKSPAN_API IdleWatchdog : public Watchdog<Message> {
 public:
  explicit IdleWatchdog(Duration limit, OnIdle on_idle = OnIdle::close) noexcept
      : Watchdog<Message>(limit), on_idle_(on_idle) {}
  void on_read(Message&& message) override {
    this->begin();
    this->pass(std::move(message));
  }

 private:
  Duration look() override;

  OnIdle on_idle_;
};
extern template class LINKSPAN_API IdleWatchdog<Chain>;
extern template class LINKSPAN_API IdleWatchdog<Packet>;

}  // namespace detail

/// An error event, errc::timed_out, when nothing was received for `limit`. Time in which reading is paused
/// does not count.
class LINKSPAN_API ReadTimeout final : public detail::ReadWatchdog<Chain> {
 public:
  using ReadWatchdog::ReadWatchdog;
};
class LINKSPAN_API PacketReadTimeout final : public detail::ReadWatchdog<Packet> {
 public:
  using ReadWatchdog::ReadWatchdog;
};

/// An error event, errc::timed_out, when bytes are queued and the kernel has taken none for `limit`, or up to
/// a quarter more.
class LINKSPAN_API WriteTimeout final : public detail::WriteWatchdog<Chain> {
 public:
  using WriteWatchdog::WriteWatchdog;
};
class LINKSPAN_API PacketWriteTimeout final : public detail::WriteWatchdog<Packet> {
 public:
  using WriteWatchdog::WriteWatchdog;
};

/// When nothing was received, and the kernel has taken no bytes, for `limit`, or up to a quarter more.
class LINKSPAN_API IdleTimeout final : public detail::IdleWatchdog<Chain> {
 public:
  using IdleWatchdog::IdleWatchdog;
};
class LINKSPAN_API PacketIdleTimeout final : public detail::IdleWatchdog<Packet> {
 public:
  using IdleWatchdog::IdleWatchdog;
};

}  // namespace linkspan
