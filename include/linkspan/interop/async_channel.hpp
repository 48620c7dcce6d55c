// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// AsyncChannel: a channel for a coroutine, or any other Asio completion token. Messages of type In come with
// co_await async_read(channel, asio::use_awaitable), those of type Out go with async_write.
// Not for: pipelines whose last handler is a callback's; they need none of this.
// Cost: two allocations a channel, one an operation, mostly in memory that an earlier one has used; messages
// that wait are bounded by InboxLimits, and reading pauses beyond. A completion runs at the end of the tick
// in which its result came.
// Threads: any for operations, which are then posted to the loop, and for destruction; moving it is the
// owner's. The loop has to outlive it.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "linkspan/base/log.hpp"
#include "linkspan/interop/async_inbox.hpp"

namespace linkspan {

/// Owns the connection: destroying it closes the channel, after what was written. Reads and writes fail with
/// errc::end_of_stream  the peer has ended, or the channel drains: a read that finds nothing more. What was
///                      received before comes first. Writing is still possible;
/// errc::shut_down      it was closed on this side;
/// errc::connection_lost, or what else closed the channel.
template <class In, class Out = In>
class AsyncChannel {
 public:
  /// No channel; for assigning one.
  AsyncChannel() noexcept = default;
  AsyncChannel(std::shared_ptr<detail::Inbox<In, Out>> inbox, ChannelRef ref) noexcept
      : inbox_(std::move(inbox)), ref_(std::move(ref)) {}
  AsyncChannel(AsyncChannel&& other) noexcept = default;
  AsyncChannel& operator=(AsyncChannel&& other) noexcept {
    let_go();
    inbox_ = std::move(other.inbox_);
    ref_ = std::move(other.ref_);
    return *this;
  }
  ~AsyncChannel() { let_go(); }

  explicit operator bool() const noexcept { return inbox_ != nullptr; }
  [[nodiscard]] EventLoop& loop() const noexcept { return inbox_->loop(); }
  [[nodiscard]] const ChannelRef& ref() const noexcept { return ref_; }
  /// nullptr when it is gone. Loop's thread.
  [[nodiscard]] Channel* channel() const noexcept { return inbox_->channel(); }
  [[nodiscard]] const std::shared_ptr<detail::Inbox<In, Out>>& inbox() const noexcept { return inbox_; }

  /// As ChannelRef's; nobody waits.
  void write(Out&& message) const { ref_.write(std::move(message)); }
  void shutdown_write() const { ref_.shutdown_write(); }
  void abort() const { ref_.abort(); }

 private:
  void let_go() noexcept {
    if (inbox_ == nullptr) return;
    const std::shared_ptr<detail::Inbox<In, Out>> inbox = std::move(inbox_);
    if (!ref_.alive()) return;
    if (inbox->loop().in_loop_thread()) {
      inbox->let_go();
    } else {
      static_cast<void>(ref_.post([inbox](Channel&) { inbox->let_go(); }));
    }
  }

  std::shared_ptr<detail::Inbox<In, Out>> inbox_;
  ChannelRef ref_;
};

/// Appends the handler that feeds an AsyncChannel, at the application's end of `channel`'s pipeline. Fails as
/// Pipeline::append does. Loop's thread.
template <class In, class Out = In>
[[nodiscard]] Result<AsyncChannel<In, Out>> attach_async(Channel& channel, InboxLimits limits = {}) {
  static_assert(std::default_initializable<In>,
                "a read that fails has a message, too: make it a default one");
  auto inbox = std::make_shared<detail::Inbox<In, Out>>(channel, limits);
  Status appended = channel.pipeline().append(std::make_unique<InboxHandler<In, Out>>(inbox));
  if (!appended) return appended.error();
  return AsyncChannel<In, Out>(std::move(inbox), channel.ref());
}

namespace detail {

template <class In, class Out, class Options, class Token>
auto read_any(const AsyncChannel<In, Out>& channel, Options options, Token&& token) {
  auto start = [inbox = channel.inbox()](OperationRef<OperationOf<std::error_code, In>> operation) {
    inbox->read(std::move(operation));
  };
  return initiate<std::error_code, In>(channel.loop(), std::move(options), std::move(start),
                                       std::forward<Token>(token));
}

template <class In, class Out>
struct StartWrite {
  std::shared_ptr<Inbox<In, Out>> inbox;
  Out message;

  void operator()(PlainOperationRef operation) { inbox->write(std::move(operation), std::move(message)); }
};

template <class In, class Out, class Options, class Token>
auto write_one(const AsyncChannel<In, Out>& channel, Out&& message, Options options, Token&& token) {
  // Made in its place, since the message is moved often enough.
  return asio::async_initiate<Token, void(std::error_code)>(
      Initiation<Options, StartWrite<In, Out>, std::error_code>{
          &AsioCompanion::of(channel.loop()), std::move(options), {channel.inbox(), std::move(message)}},
      token);
}

template <class In, class Out, class Token>
auto async_read_wanted(const AsyncChannel<In, Out>& channel, WantedBytes wanted, AsyncOptions options,
                       Token&& token) {
  auto start = [inbox = channel.inbox(), wanted = std::move(wanted)](
                   OperationRef<OperationOf<std::error_code, In>> operation) mutable {
    inbox->read(std::move(operation), std::move(wanted));
  };
  return initiate<std::error_code, In>(channel.loop(), std::move(options), std::move(start),
                                       std::forward<Token>(token));
}

}  // namespace detail

/// The next message; of a chain all that has come. One read at a time: another one meanwhile fails with
/// errc::limit_exceeded. A read that ends early has taken nothing. Handler: void(std::error_code, In).
template <class In, class Out, class Token>
auto async_read(const AsyncChannel<In, Out>& channel, AsyncOptions options, Token&& token) {
  return detail::read_any(channel, std::move(options), std::forward<Token>(token));
}
template <class In, class Out, class Token>
auto async_read(const AsyncChannel<In, Out>& channel, Token&& token) {
  return detail::read_any(channel, detail::NoOptions(), std::forward<Token>(token));
}

/// Exactly `size` bytes, which may be more than InboxLimits. When the stream ends before, errc::truncated;
/// the bytes that came stay for another read.
template <class Out, class Token>
auto async_read_exactly(const AsyncChannel<Chain, Out>& channel, std::size_t size, AsyncOptions options,
                        Token&& token) {
  LINKSPAN_ASSERT(size != 0, "a read of bytes reads some");
  detail::WantedBytes wanted;
  wanted.count = size;
  return detail::async_read_wanted(channel, std::move(wanted), std::move(options),
                                   std::forward<Token>(token));
}
template <class Out, class Token>
auto async_read_exactly(const AsyncChannel<Chain, Out>& channel, std::size_t size, Token&& token) {
  return async_read_exactly(channel, size, AsyncOptions(), std::forward<Token>(token));
}

/// The bytes up to and with `delimiter`, at most `limit`: errc::limit_exceeded when it is not among the first
/// `limit` bytes. Otherwise as above.
template <class Out, class Token>
auto async_read_until(const AsyncChannel<Chain, Out>& channel, std::string delimiter, std::size_t limit,
                      AsyncOptions options, Token&& token) {
  LINKSPAN_ASSERT(!delimiter.empty(), "a delimiter has a byte at least");
  detail::WantedBytes wanted;
  wanted.delimiter = std::move(delimiter);
  wanted.limit = limit;
  return detail::async_read_wanted(channel, std::move(wanted), std::move(options),
                                   std::forward<Token>(token));
}
template <class Out, class Token>
auto async_read_until(const AsyncChannel<Chain, Out>& channel, std::string delimiter, std::size_t limit,
                      Token&& token) {
  return async_read_until(channel, std::move(delimiter), limit, AsyncOptions(), std::forward<Token>(token));
}

/// Writes a message; completes when the kernel has accepted it and what was written before, so who waits for
/// it is held back by a peer that does not read. With a timeout, a stop token or a cancellation slot it is a
/// Channel::write_cancellable: until the end of the tick, and while the channel is not writable, it waits in
/// front of the pipeline, as PendingLimits allow, and one that ends early meanwhile is not sent. Later it is
/// sent all the same. Handler: void(std::error_code).
template <class In, class Out, class Token>
auto async_write(const AsyncChannel<In, Out>& channel, std::type_identity_t<Out>&& message,
                 AsyncOptions options, Token&& token) {
  return detail::write_one(channel, std::move(message), std::move(options), std::forward<Token>(token));
}
template <class In, class Out, class Token>
auto async_write(const AsyncChannel<In, Out>& channel, std::type_identity_t<Out>&& message, Token&& token) {
  return detail::write_one(channel, std::move(message), detail::NoOptions(), std::forward<Token>(token));
}

/// Completes when the kernel has accepted all that was written before. Handler: void(std::error_code).
template <class In, class Out, class Token>
auto async_flush(const AsyncChannel<In, Out>& channel, AsyncOptions options, Token&& token) {
  auto start = [inbox = channel.inbox()](detail::PlainOperationRef operation) {
    inbox->flush(std::move(operation));
  };
  return detail::initiate<std::error_code>(channel.loop(), std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class In, class Out, class Token>
auto async_flush(const AsyncChannel<In, Out>& channel, Token&& token) {
  return async_flush(channel, AsyncOptions(), std::forward<Token>(token));
}

/// Channel::close with `deadline`; completes when the channel is closed, without an error if it could send
/// all that was written. What has not been read is dropped. Handler: void(std::error_code).
template <class In, class Out, class Token>
auto async_close(const AsyncChannel<In, Out>& channel, Duration deadline, AsyncOptions options,
                 Token&& token) {
  auto start = [inbox = channel.inbox(), deadline](detail::PlainOperationRef operation) {
    inbox->close(std::move(operation), deadline, false);
  };
  return detail::initiate<std::error_code>(channel.loop(), std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class In, class Out, class Token>
auto async_close(const AsyncChannel<In, Out>& channel, Duration deadline, Token&& token) {
  return async_close(channel, deadline, AsyncOptions(), std::forward<Token>(token));
}
template <class In, class Out, class Token>
auto async_close(const AsyncChannel<In, Out>& channel, Token&& token) {
  return async_close(channel, kCloseDeadline, std::forward<Token>(token));
}

/// Channel::drain with `deadline`: lets the other handlers finish before it closes. Otherwise as above.
template <class In, class Out, class Token>
auto async_drain(const AsyncChannel<In, Out>& channel, Duration deadline, AsyncOptions options,
                 Token&& token) {
  auto start = [inbox = channel.inbox(), deadline](detail::PlainOperationRef operation) {
    inbox->close(std::move(operation), deadline, true);
  };
  return detail::initiate<std::error_code>(channel.loop(), std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class In, class Out, class Token>
auto async_drain(const AsyncChannel<In, Out>& channel, Duration deadline, Token&& token) {
  return async_drain(channel, deadline, AsyncOptions(), std::forward<Token>(token));
}

}  // namespace linkspan
