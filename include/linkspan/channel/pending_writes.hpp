// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// How much may wait to be sent on a channel, what happens to a write beyond that, and writes that can be
// cancelled before they are started.
// Not for: pacing; handlers that produce go by writable() and on_writable_changed.
// Cost: nothing while a channel is below its high watermark and no write of it waits. A write that waits
// costs an allocation.
// Threads: options are values; a WriteToken may be used on any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/channel/channel_ref.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

namespace detail {
class HeldWrites;
}

/// What was cancelled is not sent. A write is started when it enters the pipeline; until then it waits in
/// front of it, and so do those behind it.
class LINKSPAN_API WriteToken {
 public:
  /// Of no write.
  WriteToken() noexcept = default;

  /// There is a write.
  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// True: the write will not be started. Its completion says errc::cancelled, soon and on the loop. False:
  /// it was started, has completed, or was cancelled before.
  bool cancel() const;

 private:
  friend class Channel;
  friend class ChannelRef;
  friend class detail::HeldWrites;

  enum class Stage : std::uint8_t { waits, started, cancelled };
  struct State {
    std::atomic<Stage> stage{Stage::waits};
    ChannelRef channel;
  };

  explicit WriteToken(ChannelRef channel);
  /// False when it was cancelled.
  [[nodiscard]] bool start() const noexcept;
  [[nodiscard]] bool cancelled() const noexcept;

  std::shared_ptr<State> state_;
};

namespace detail {

/// A write that waits in front of the pipeline.
class LINKSPAN_API HeldWrite {
 public:
  virtual ~HeldWrite();

 protected:
  HeldWrite(std::size_t bytes, WriteDone done, WriteToken token) noexcept
      : done_(std::move(done)), token_(std::move(token)), bytes_(bytes) {}
  virtual void start(Channel& channel, WriteDone done) = 0;

 private:
  friend class HeldWrites;

  WriteDone done_;
  WriteToken token_;
  std::size_t bytes_;
  TimePoint since_;
};

template <class T>
class HeldWriteOf;

/// Waits among the writes for its turn, and is nothing.
struct FlushMark {
  [[nodiscard]] std::size_t size_bytes() const noexcept { return 0; }
};

/// The writes that wait in front of one channel's pipeline, in order. Loop's thread.
class HeldWrites {
 public:
  explicit HeldWrites(Channel& channel);

  [[nodiscard]] bool empty() const noexcept { return writes_.empty(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Completes it at once, with `refusal` or when there is no room.
  void take_in(std::unique_ptr<HeldWrite> write, std::error_code refusal);
  /// Starts them while the channel is writable, or all of them. True when none is left.
  bool start(bool all);
  void sweep_cancelled();
  /// Completes all.
  void fail(std::error_code error);

 private:
  std::unique_ptr<HeldWrite> take(std::size_t index);
  void deadline_passed();
  void restart_timer();

  Channel& channel_;
  std::deque<std::unique_ptr<HeldWrite>> writes_;
  std::size_t bytes_ = 0;
  Timer deadline_;  // of the first
};

}  // namespace detail
}  // namespace linkspan
