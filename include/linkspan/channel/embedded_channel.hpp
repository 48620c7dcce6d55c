// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// EmbeddedChannel: a channel without a network, to test handlers. The test plays the wire: it feeds bytes
// with receive(), and accepts what the pipeline has written with take_sent().
// Not for: services, and receive_into, which needs a kernel and fails here with errc::unavailable.
// Cost: a loop of its own.
// Threads: the thread that made it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "linkspan/channel/channel.hpp"

namespace linkspan {

namespace detail {
struct EmbeddedLoop {  // a base, because the loop has to be there before the channel
  explicit EmbeddedLoop(EventLoopOptions options);
  std::unique_ptr<EventLoop> owned_loop;
};
}  // namespace detail

/// Fill its pipeline, then open() it. Each of the functions below ends with a tick of the loop.
class LINKSPAN_API EmbeddedChannel final : private detail::EmbeddedLoop, public Channel {
 public:
  explicit EmbeddedChannel(Watermarks watermarks = {}, bool auto_read = true,
                           const PendingLimits& limits = {}, EventLoopOptions loop_options = {});
  /// Aborts first if it is open.
  ~EmbeddedChannel() override;

  void open();
  /// What comes while reading is paused is held.
  void receive(Chain&& bytes);
  /// Copies.
  void receive(std::string_view text);
  void receive_end();
  /// Closes the channel with `error`; queued writes fail.
  void break_connection(std::error_code error);
  /// Everything written so far; its writes complete, and a channel that closes is closed now.
  [[nodiscard]] Chain take_sent();
  void tick();
  /// Those that were written with what take_sent has returned, or will.
  [[nodiscard]] std::vector<Socket> take_descriptors() { return std::exchange(descriptors_, {}); }

  /// The sending side was ended, by shutdown_write or close.
  [[nodiscard]] bool write_ended() const noexcept { return write_ended_; }
  /// What on_inactive was given; nothing while the channel is open.
  [[nodiscard]] const std::optional<std::error_code>& close_error() const noexcept { return close_error_; }

  [[nodiscard]] Endpoint local_endpoint() const override { return {}; }
  [[nodiscard]] Endpoint peer_endpoint() const override { return {}; }

 private:
  void send(Chain&& bytes) override;
  void send_marker(WriteDone&& done, std::uint64_t begin) override;
  void send_range(FileRange&& range, WriteDone done) override;
  void send_descriptors(WithDescriptors&& message, WriteDone done) override;
  void do_receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) override;
  void do_flush() override {}
  void do_shutdown_write() override { write_ended_ = true; }
  void do_close(Duration deadline) override;
  void do_abort() override;
  void do_read(bool wanted) override { receiving_ = wanted; }
  [[nodiscard]] std::size_t unsent_bytes() const noexcept override { return sent_.size(); }
  [[nodiscard]] std::uint64_t total_sent() const noexcept override { return taken_bytes_; }
  void destroy() noexcept override {}

  void deliver();
  void complete_all(std::error_code error);
  void end(std::error_code error);

  Chain held_;  // received, not delivered
  Chain sent_;
  std::uint64_t taken_bytes_ = 0;
  std::deque<WriteDone> completions_;
  std::vector<Socket> descriptors_;
  std::optional<std::error_code> close_error_;
  std::optional<std::error_code> ending_;  // close or abort was called; takes effect in the next tick
  bool receiving_ = false;
  bool end_received_ = false;
  bool write_ended_ = false;
};

/// A last handler that keeps what arrives.
template <class In, class Out = In>
class Collector final : public Service<In, Out> {
 public:
  void on_read(In&& message) override { messages.push_back(std::move(message)); }

  std::deque<In> messages;
};

}  // namespace linkspan
