// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The last handler of a pipeline whose messages a coroutine takes when it wants them: it keeps those that
// have come, up to a bound, and pauses reading beyond it.
// Not for: use by itself; AsyncChannel is its face.
// Cost: one allocation a channel, shared by handler and AsyncChannel, and the messages that wait.
// Threads: the loop's.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "linkspan/base/error.hpp"
#include "linkspan/base/ring_queue.hpp"
#include "linkspan/buffer/cursor.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/interop/async_initiate.hpp"

namespace linkspan {

/// What may wait for a coroutine before reading pauses. One message more may come, and what a decoder that
/// does not ask Channel::reading() has decoded already.
struct InboxLimits {
  std::size_t max_bytes = 64 * 1024;  ///< by message_bytes()
  std::size_t max_messages = 64;      ///< of chains, which are joined to one, only the bytes count

  InboxLimits() = default;
};

namespace detail {

/// Which bytes a read of chains waits for: any, so many, or those up to a delimiter.
struct WantedBytes {
  std::size_t count = 0;
  std::string delimiter;
  std::size_t limit = 0;    // of bytes with the delimiter
  std::size_t scanned = 0;  // bytes that are known to have none

  WantedBytes() = default;
  [[nodiscard]] bool any() const noexcept { return count == 0 && delimiter.empty(); }
};

/// Messages that wait, in order.
template <class In>
class InboxQueue {
 public:
  [[nodiscard]] bool full(const InboxLimits& limits, std::size_t) const noexcept {
    return bytes_ >= limits.max_bytes || messages_.size() >= limits.max_messages;
  }
  [[nodiscard]] bool low(const InboxLimits& limits, std::size_t) const noexcept {
    return bytes_ <= limits.max_bytes / 2 && messages_.size() <= limits.max_messages / 2;
  }
  [[nodiscard]] bool empty() const noexcept { return messages_.empty(); }
  void push(In&& message) {
    const std::size_t bytes = message_bytes(message);
    messages_.push_back(std::move(message));
    bytes_ += bytes;
  }
  [[nodiscard]] std::optional<In> take(WantedBytes&, std::error_code&) {
    if (messages_.empty()) return std::nullopt;
    return pop();
  }
  /// The next one; there is one.
  [[nodiscard]] In pop() {
    bytes_ -= message_bytes(messages_.front());
    return messages_.pop_front();
  }
  void clear() { *this = InboxQueue(); }

 private:
  RingQueue<In> messages_;
  std::size_t bytes_ = 0;
};

template <>
class InboxQueue<Chain> {
 public:
  [[nodiscard]] bool full(const InboxLimits& limits, std::size_t wanted) const noexcept {
    return bytes_.size() >= std::max(limits.max_bytes, wanted);
  }
  [[nodiscard]] bool low(const InboxLimits& limits, std::size_t wanted) const noexcept {
    return bytes_.size() <= limits.max_bytes / 2 || bytes_.size() < wanted;
  }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  void push(Chain&& bytes) { bytes_.append(std::move(bytes)); }
  [[nodiscard]] std::optional<Chain> take(WantedBytes& wanted, std::error_code& error) {
    std::size_t size = wanted.count;
    if (!wanted.delimiter.empty()) {
      const std::size_t overlap = std::min(wanted.scanned, wanted.delimiter.size() - 1);
      Cursor cursor(bytes_);
      cursor.skip(wanted.scanned - overlap);
      const std::optional<std::size_t> found = cursor.find(wanted.delimiter);
      size = found ? cursor.position() + *found + wanted.delimiter.size() : bytes_.size();
      wanted.scanned = bytes_.size();
      if (size > wanted.limit || (!found && size == wanted.limit)) {
        error = make_error_code(errc::limit_exceeded);
        return std::nullopt;
      }
      if (!found) return std::nullopt;
    } else if (size == 0) {
      if (bytes_.empty()) return std::nullopt;
      return pop();
    }
    if (bytes_.size() < size) return std::nullopt;
    return bytes_.split_front(size);
  }
  [[nodiscard]] Chain pop() noexcept { return std::move(bytes_); }
  void clear() noexcept { bytes_.clear(); }

 private:
  Chain bytes_;
};

/// Shared by the handler in the pipeline and the AsyncChannel.
template <class In, class Out>
class Inbox : public std::enable_shared_from_this<Inbox<In, Out>> {
 public:
  using ReadOperation = OperationOf<std::error_code, In>;
  using PlainOperation = OperationOf<std::error_code>;

  Inbox(Channel& channel, InboxLimits limits) noexcept
      : loop_(channel.loop()), channel_(&channel), limits_(limits) {}
  ~Inbox() { LINKSPAN_ASSERT(reader_ == nullptr, "a read has ended before its channel is gone"); }

  [[nodiscard]] EventLoop& loop() const noexcept { return loop_; }

  // For the AsyncChannel.

  void read(OperationRef<ReadOperation> operation, WantedBytes&& wanted) {
    if (reader_ == nullptr) wanted_ = std::move(wanted);
    read(std::move(operation));
  }
  void read(OperationRef<ReadOperation> operation) {
    if (reader_ != nullptr) return operation->end_with(make_error_code(errc::limit_exceeded));
    if (queue_.empty() || !wanted_.any()) {
      // This stays until the read has ended.
      operation->when_abandoned([this] { static_cast<void>(take_reader()); });
      reader_ = std::move(operation);
      if (!queue_.empty() || failure_ || refusal_) serve_reader();
    } else {
      operation->end_with({}, queue_.pop());
    }
    if (paused_ && queue_.low(limits_, wanted_bytes())) unpause();
  }

  void write(OperationRef<PlainOperation> operation, Out&& message) {
    if (channel_ == nullptr) return operation->end_with(gone());
    operation->result_is_certain();
    if (!operation->may_end_early()) {
      return channel_->write(std::move(message), [operation = std::move(operation)](std::error_code error) {
        operation->end_with(error);
      });
    }
    PlainOperation* const begun = operation.get();
    WriteToken token = channel_->write_cancellable(
        std::move(message),
        [operation = std::move(operation)](std::error_code error) { operation->end_with(error); });
    begun->when_abandoned([token = std::move(token)] { static_cast<void>(token.cancel()); });
  }

  void flush(OperationRef<PlainOperation> operation) {
    if (channel_ == nullptr) return operation->end_with(make_error_code(errc::cancelled));
    operation->result_is_certain();
    channel_->flush(
        [operation = std::move(operation)](std::error_code error) { operation->end_with(error); });
  }

  /// Closes, or lets the handlers finish first, and completes when the channel is closed.
  void close(OperationRef<PlainOperation> operation, Duration deadline, bool drains) {
    if (channel_ == nullptr) return operation->end_with({});
    operation->result_is_certain();
    closers_.push_back(std::move(operation));
    if (drains) {
      draining_ourselves_ = true;
      channel_->drain(deadline);
    } else {
      begin_close(deadline);
    }
  }

  void begin_close(Duration deadline) {
    if (channel_ != nullptr) channel_->close(deadline);
    if (!failure_) failure_ = make_error_code(errc::shut_down);
    queue_.clear();
    serve_reader();
  }

  /// Nobody reads any more.
  void let_go() {
    let_go_ = true;
    begin_close(kCloseDeadline);
  }

  [[nodiscard]] Channel* channel() const noexcept { return channel_; }

  // For the handler.

  void receive(In&& message) {
    if (let_go_ || failure_) return;
    if (reader_ != nullptr && wanted_.any() && queue_.empty()) {
      take_reader()->end_with({}, std::move(message));
      return;
    }
    queue_.push(std::move(message));
    serve_reader();
    if (!paused_ && channel_ != nullptr && queue_.full(limits_, wanted_bytes())) {
      paused_ = true;
      channel_->pause_read();
    }
  }
  /// The peer of a connected datagram channel did not get something: for one read that finds no message.
  void refused(std::error_code error) {
    refusal_ = error;
    serve_reader();
  }
  /// Nothing more comes: after what is queued, reads fail with `error`.
  void end(std::error_code error) {
    if (!failure_) failure_ = error;
    serve_reader();
  }
  /// True when the event is to go on.
  [[nodiscard]] bool drain() {
    if (draining_ourselves_ || let_go_) return true;
    if (!drained_ && channel_ != nullptr) {
      drained_ = true;
      channel_->pause_read();
      end(make_error_code(errc::end_of_stream));
    }
    return false;
  }
  void closed(std::error_code error) {
    channel_ = nullptr;
    end(error ? error : make_error_code(errc::shut_down));
    for (const auto& operation : std::exchange(closers_, {})) operation->end_with(error);
  }

 private:
  [[nodiscard]] std::error_code gone() const noexcept {
    return failure_ && failure_ != errc::end_of_stream ? failure_ : make_error_code(errc::cancelled);
  }
  [[nodiscard]] OperationRef<ReadOperation> take_reader() {
    OperationRef<ReadOperation> reader = std::move(reader_);
    if (!wanted_.any()) wanted_ = {};
    return reader;
  }
  [[nodiscard]] std::size_t wanted_bytes() const noexcept { return std::max(wanted_.count, wanted_.limit); }

  void serve_reader() {
    if (reader_ == nullptr) return;
    std::error_code error;
    std::optional<In> message = queue_.take(wanted_, error);
    if (!message) {
      if (!error && !failure_) error = std::exchange(refusal_, {});
      if (!error && !failure_) return;
      if (!error) {  // bytes that are too few stay for another read
        error =
            failure_ == errc::end_of_stream && !queue_.empty() ? make_error_code(errc::truncated) : failure_;
      }
    }
    const OperationRef<ReadOperation> reader = take_reader();
    if (message) {
      reader->end_with({}, std::move(*message));
    } else {
      reader->end_with(error);
    }
    if (paused_ && queue_.low(limits_, 0)) unpause();
  }

  void unpause() {
    if (channel_ == nullptr) return;
    paused_ = false;
    channel_->resume_read();
  }

  EventLoop& loop_;
  Channel* channel_;  // nullptr once it is closed, or the handler was removed
  InboxLimits limits_;
  InboxQueue<In> queue_;
  WantedBytes wanted_;
  OperationRef<ReadOperation> reader_;  // at most one
  std::vector<OperationRef<PlainOperation>> closers_;
  std::error_code failure_;  // of reads, when the queue is empty
  std::error_code refusal_;  // of one read
  bool paused_ = false;
  bool drained_ = false;
  bool draining_ourselves_ = false;
  bool let_go_ = false;
};

}  // namespace detail

/// The last handler of a pipeline; attach_async appends it.
template <class In, class Out>
class InboxHandler final : public Service<In, Out> {
 public:
  explicit InboxHandler(std::shared_ptr<detail::Inbox<In, Out>> inbox) noexcept : inbox_(std::move(inbox)) {}

  void on_read(In&& message) override { inbox_->receive(std::move(message)); }
  void on_read_end() override { inbox_->end(make_error_code(errc::end_of_stream)); }
  void on_error(std::error_code error, std::string_view detail) override {
    inbox_->end(error);
    this->pass_error(error, detail);
  }
  void on_refused(std::error_code error, const Endpoint& peer) override {
    if (this->channel().peer_endpoint().address_size() != 0) inbox_->refused(error);
    this->pass_refused(error, peer);
  }
  void on_drain(Duration deadline) override {
    if (inbox_->drain()) this->pass_drain(deadline);
  }
  void on_inactive(std::error_code error) override { inbox_->closed(error); }
  void on_removed() override {
    if (inbox_->channel() != nullptr) inbox_->closed(make_error_code(errc::cancelled));
  }

 private:
  std::shared_ptr<detail::Inbox<In, Out>> inbox_;
};

}  // namespace linkspan
