// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// EmbeddedDatagramChannel: a datagram channel without a network, to test handlers. The test plays the wire:
// it feeds packets with receive(), and accepts those that the pipeline has written with take_sent().
// Not for: services; and what only streams have fails here as on the others, with errc::unavailable.
// Cost: a loop of its own.
// Threads: the thread that made it.
#pragma once

#include <deque>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/channel/packet.hpp"

namespace linkspan {

/// Fill its pipeline, then open() it. Each of the functions below ends with a tick of the loop.
class LINKSPAN_API EmbeddedDatagramChannel final : private detail::EmbeddedLoop, public Channel {
 public:
  explicit EmbeddedDatagramChannel(Watermarks watermarks = {}, bool auto_read = true,
                                   const PendingLimits& limits = {}, EventLoopOptions loop_options = {});
  /// Aborts first if it is open.
  ~EmbeddedDatagramChannel() override;

  void open();
  /// What comes while reading is paused is held.
  void receive(Packet&& packet);
  /// Copies.
  void receive(std::string_view text, const Endpoint& peer = {});
  /// As the network refuses what was sent to `peer`.
  void refuse(std::error_code error, const Endpoint& peer = {});
  /// Closes the channel with `error`; queued writes fail.
  void break_socket(std::error_code error);
  /// Everything written so far; its writes complete, and a channel that closes is closed now.
  [[nodiscard]] std::vector<Packet> take_sent();
  void tick();

  /// What on_inactive was given; nothing while the channel is open.
  [[nodiscard]] const std::optional<std::error_code>& close_error() const noexcept { return close_error_; }

  [[nodiscard]] Endpoint local_endpoint() const override { return {}; }
  [[nodiscard]] Endpoint peer_endpoint() const override { return {}; }

 private:
  void send_packet(Packet&& packet) override;
  void send_marker(WriteDone&& done, std::uint64_t begin) override;
  void send_range(FileRange&& range, WriteDone done) override;
  void send_descriptors(WithDescriptors&& message, WriteDone done) override;
  void do_receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) override;
  void do_flush() override {}
  void do_shutdown_write() override;
  void do_close(Duration) override { ending_ = std::error_code(); }
  void do_abort() override;
  void do_read(bool wanted) override { receiving_ = wanted; }
  [[nodiscard]] std::size_t unsent_bytes() const noexcept override { return sent_bytes_; }
  [[nodiscard]] std::uint64_t total_sent() const noexcept override { return taken_bytes_; }
  [[nodiscard]] std::uint64_t total_packets_sent() const noexcept override { return taken_packets_; }
  void destroy() noexcept override {}

  void deliver();
  void complete_all(std::error_code error);
  void end(std::error_code error);

  std::deque<Packet> held_;  // received, not delivered
  std::vector<Packet> sent_;
  std::size_t sent_bytes_ = 0;  // of these
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t taken_packets_ = 0;
  std::deque<WriteDone> completions_;
  std::optional<std::error_code> close_error_;
  std::optional<std::error_code> ending_;  // close or abort was called; takes effect in the next tick
  bool receiving_ = false;
};

}  // namespace linkspan
