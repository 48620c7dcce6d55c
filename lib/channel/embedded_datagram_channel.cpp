// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/embedded_datagram_channel.hpp"

#include <utility>

#include "lib/channel/only_streams.hpp"

namespace linkspan {

EmbeddedDatagramChannel::EmbeddedDatagramChannel(Watermarks watermarks, bool auto_read,
                                                 const PendingLimits& limits, EventLoopOptions loop_options)
    : EmbeddedLoop(std::move(loop_options)),
      Channel(*owned_loop, watermarks, auto_read, limits, Wire::packets) {
  if (loop().pending_budget() != nullptr) static_cast<void>(ref());
}

EmbeddedDatagramChannel::~EmbeddedDatagramChannel() {
  if (!closed()) end(make_error_code(errc::aborted));
  tick();
}

// --- the test's side --------------------------------------------------------------------------------------

void EmbeddedDatagramChannel::open() {
  report_open();
  tick();
}

void EmbeddedDatagramChannel::receive(Packet&& packet) {
  held_.push_back(std::move(packet));
  tick();
}

void EmbeddedDatagramChannel::receive(std::string_view text, const Endpoint& peer) {
  receive({Chain(Slice::copy(text)), peer});
}

void EmbeddedDatagramChannel::refuse(std::error_code error, const Endpoint& peer) {
  if (!closed()) report_refused(error, peer);
  tick();
}

void EmbeddedDatagramChannel::break_socket(std::error_code error) {
  if (!closed()) end(error);
  tick();
}

std::vector<Packet> EmbeddedDatagramChannel::take_sent() {
  std::vector<Packet> sent = std::exchange(sent_, {});
  taken_packets_ += sent.size();
  taken_bytes_ += std::exchange(sent_bytes_, 0);
  if (!closed()) {
    complete_all({});
    report_progress();
  }
  tick();
  return sent;
}

void EmbeddedDatagramChannel::tick() {
  deliver();
  owned_loop->run_once(Duration::zero());
  deliver();
  if (!closed() && ending_ && sent_.empty()) end(*ending_);
  owned_loop->run_once(Duration::zero());
}

// --- the channel's side -----------------------------------------------------------------------------------

void EmbeddedDatagramChannel::deliver() {
  while (!closed() && !ending_ && receiving_ && !held_.empty()) {
    Packet packet = std::move(held_.front());
    held_.pop_front();
    report_packet(std::move(packet));
  }
}

void EmbeddedDatagramChannel::send_packet(Packet&& packet) {
  if (ending_) return;
  sent_bytes_ += packet.data.size();
  sent_.push_back(std::move(packet));
}

void EmbeddedDatagramChannel::send_marker(WriteDone&& done, std::uint64_t) {
  if (ending_) return complete_later(std::move(done), make_error_code(errc::shut_down));
  completions_.push_back(std::move(done));
}

void EmbeddedDatagramChannel::send_range(FileRange&&, WriteDone done) {
  refuse_on_datagrams(*this, std::move(done), "ranges of files");
}

void EmbeddedDatagramChannel::send_descriptors(WithDescriptors&&, WriteDone done) {
  refuse_on_datagrams(*this, std::move(done), "descriptors");
}

void EmbeddedDatagramChannel::do_receive_into(Block&& memory, std::size_t, ReceiveCompletion completion) {
  refuse_on_datagrams(*this, std::move(memory), std::move(completion));
}

void EmbeddedDatagramChannel::do_shutdown_write() {
  refuse_on_datagrams(*this, nullptr, "ends of its sending side");
}

void EmbeddedDatagramChannel::do_abort() {
  sent_.clear();
  sent_bytes_ = 0;
  ending_ = make_error_code(errc::aborted);
}

void EmbeddedDatagramChannel::complete_all(std::error_code error) {
  std::deque<WriteDone> completions = std::exchange(completions_, {});
  for (WriteDone& done : completions) run([&] { done(error); });
}

void EmbeddedDatagramChannel::end(std::error_code error) {
  close_error_ = reason() ? reason() : error;
  begin_closed();
  complete_all(error == errc::aborted ? make_error_code(errc::cancelled) : error);
  report_closed(error);
}

}  // namespace linkspan
