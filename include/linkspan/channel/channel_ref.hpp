// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ChannelRef: a handle on a channel for code outside of it. It does not keep the channel alive, and does
// nothing once that is gone.
// Not for: handlers; they have channel().
// Cost: a shared_ptr. On the loop's thread a call is direct; on another one it is posted, with one allocation
// and a lock that is held for the post.
// Threads: any. Calls of one thread take effect in their order.
//
// channel.hpp defines write(); include that one.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/channel/pending_limits.hpp"

namespace linkspan {

class Channel;
class EventLoop;
class PendingBudget;
class WriteToken;

/// What a message counts towards the watermarks while it waits for the loop. A message type of your own says
/// it with a member size_bytes().
template <class T>
[[nodiscard]] std::size_t message_bytes(const T& message) noexcept {
  if constexpr (requires {
                  { message.size_bytes() } -> std::convertible_to<std::size_t>;
                }) {
    return message.size_bytes();
  } else if constexpr (std::is_same_v<T, Chain> || std::is_same_v<T, Slice> ||
                       std::is_same_v<T, std::string>) {
    return message.size();
  } else {
    return sizeof(T);
  }
}
[[nodiscard]] inline std::size_t message_bytes(const FileRange& range) noexcept {
  return static_cast<std::size_t>(range.size);
}

namespace detail {

template <class T>
class RemoteWriteOf;

/// Shared by a channel and its refs.
struct ChannelState {
  std::mutex mutex;
  EventLoop* loop;  // guarded by mutex; nullptr once the channel is gone

  std::atomic<std::thread::id> thread{};  // of the loop; none until the channel is there
  Channel* channel = nullptr;             // used on that thread only

  std::size_t high_bytes;  // the watermark
  PendingLimits limits;
  PendingBudget* budget;                     // of the loop, or nullptr; lives while `loop` is there
  std::size_t charged_bytes = 0;             // to it, for what the channel has; on that thread only
  std::atomic<std::size_t> remote_bytes{0};  // given to refs, not yet in the pipeline
  std::atomic<std::size_t> local_bytes{0};   // the channel's queue, as it was last seen
  std::atomic<bool> writable{true};

  ChannelState(EventLoop& loop_in, std::size_t high_bytes_in, const PendingLimits& limits_in);
  /// Whether a write from another thread may be posted; counts it when not.
  [[nodiscard]] bool admits(std::size_t bytes) noexcept;
  /// The channel has that many bytes. Its thread.
  void charge(std::size_t bytes) noexcept;
};

/// Something to do on the channel's loop. `channel` is nullptr when it is gone; a task that cannot be posted
/// is destroyed without running.
class LINKSPAN_API RemoteTask {
 public:
  virtual ~RemoteTask();
  virtual void run(Channel* channel) = 0;

  /// False, and the task is destroyed, when the loop takes it no more.
  static bool submit(const std::shared_ptr<ChannelState>& state, std::unique_ptr<RemoteTask> task);

 protected:
  /// It is about to be posted, or could not be after all. The loop is there meanwhile.
  virtual void put_on_account() noexcept {}
  virtual void take_off_account() noexcept {}
};

/// Inside a call, or where nobody is above it: what it throws is logged.
LINKSPAN_API void complete_here(WriteDone& done, std::error_code error) noexcept;

/// A write on its way to the loop: counts its bytes, and completes also when it never arrives.
class LINKSPAN_API RemoteWrite : public RemoteTask {
 public:
  ~RemoteWrite() override;
  void run(Channel* channel) final;

 protected:
  RemoteWrite(std::shared_ptr<ChannelState> state, std::size_t bytes, WriteDone done);
  virtual void deliver(Channel& channel, WriteDone done) = 0;

 private:
  void put_on_account() noexcept final;
  void take_off_account() noexcept final;

  std::shared_ptr<ChannelState> state_;
  std::size_t bytes_;
  bool on_account_ = false;
  WriteDone done_;
};

}  // namespace detail

class LINKSPAN_API ChannelRef {
 public:
  /// No channel; every call does nothing.
  ChannelRef() noexcept = default;

  /// See Channel::write. The bytes count towards the watermarks and limits at once. `done` is called on the
  /// loop's thread, or inside this call when it is refused, or the channel or its loop is gone. Messages are
  /// also FileRange and WithDescriptors.
  template <class T>
  requires(!std::is_lvalue_reference_v<T>) void write(T&& message, WriteDone done = nullptr) const;

  /// The same; the write can be cancelled until it is started.
  template <class T>
  requires(!std::is_lvalue_reference_v<T>) WriteToken write_cancellable(T&& message, WriteDone done = nullptr)
  const;

  /// See Channel; without effect when the channel is gone.
  void shutdown_write() const;
  void close(Duration deadline = std::chrono::seconds(5)) const;
  void abort() const;
  /// Runs `task` on the loop, as an event of the channel; not at all if the channel is gone by then. False
  /// when that is known already.
  bool post(unique_function<void(Channel&)> task) const;

  /// Whether a write now stays below the high watermark; false too when the channel is gone.
  [[nodiscard]] bool writable() const noexcept;
  /// As far as this thread knows; the channel may go at any time.
  [[nodiscard]] bool alive() const noexcept;

  /// The channel, if it is there and this is its loop's thread; not to be kept.
  [[nodiscard]] Channel* here() const noexcept;

  friend bool operator==(const ChannelRef&, const ChannelRef&) noexcept = default;

 private:
  friend class Channel;
  friend class Client;
  friend class WriteToken;

  explicit ChannelRef(std::shared_ptr<detail::ChannelState> state) noexcept : state_(std::move(state)) {}
  template <class T>
  void write_remotely(T&& message, WriteDone done, WriteToken token) const;

  std::shared_ptr<detail::ChannelState> state_;
};

}  // namespace linkspan
