// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/readiness_datagram.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lib/transport/readiness_transport.hpp"

namespace linkspan {
namespace {

// Messages of one call. Each needs a block from before the call until after it, so large ones are fewer.
constexpr std::size_t kSlots = 32;
constexpr std::size_t kLargeSlots = 8;
constexpr std::size_t kFirstSlots = 2;
constexpr std::size_t kLargeBytes = 16 * 1024;
// One tick of one socket, so that others get their turn.
constexpr std::size_t kCallsPerTick = 8;
constexpr std::size_t kSingleCallsPerTick = 64;
// A message keeps no block alive that is more than so many times its size.
constexpr std::size_t kWasteFactor = 4;

struct ReceiveBatch {
  std::array<MessageHeader, kSlots> headers;
  std::array<iovec, kSlots> vectors;
  std::array<Block, kSlots> blocks;
  alignas(sockaddr) std::array<std::array<std::byte, kAddressBytes>, kSlots> addresses;
  alignas(cmsghdr) std::array<std::array<std::byte, kControlBytes>, kSlots> controls;
  std::size_t count = 0;

  /// Room for one more message; false when the pool refuses.
  bool add(BlockPool& pool, std::size_t bytes, std::size_t control_bytes) noexcept {
    Block& block = blocks[count];
    block = pool.allocate(bytes);
    if (!block) return false;
    vectors[count] = {block.data(), bytes};
    msghdr& header = headers[count].msg_hdr;
    header = {};
    header.msg_iov = &vectors[count];
    header.msg_iovlen = 1;
    header.msg_name = addresses[count].data();
    header.msg_namelen = kAddressBytes;
    header.msg_control = controls[count].data();
    header.msg_controllen = control_bytes;
    ++count;
    return true;
  }
};

}  // namespace

ReadinessDatagram::ReadinessDatagram(ReadinessTransport& transport, DatagramSetup setup)
    : DatagramCore(transport, std::move(setup)),
      watch_(transport.reactor(), *this),
      room_watch_(transport.reactor(), room_),
      slots_(options().batched_calls ? kFirstSlots : 1) {}

bool ReadinessDatagram::update_watch() {
  const int error = watch_.want(descriptor(), waits_to_read_, waits_to_write_);
  if (error != 0) report_error(error);
  return error == 0;
}

void ReadinessDatagram::update_receive(bool wanted) {
  waits_to_read_ = wanted;
  if (!ending()) static_cast<void>(update_watch());
}

bool ReadinessDatagram::wait_writable(int other) {
  if (other != descriptor()) return room_watch_.want(other, false, true) == 0;
  waits_to_write_ = true;
  return update_watch();
}

void ReadinessDatagram::Room::on_ready(Readiness) {
  socket.room_watch_.stop();
  socket.report_writable();
}

void ReadinessDatagram::cancel_operations() {
  watch_.stop();
  room_watch_.stop();
}

void ReadinessDatagram::on_ready(Readiness ready) {
  if (ready.error) {
    report_error(0);
    if (ending()) return;
    // All errors have been taken, so the next one is news.
    watch_.stop();
  } else {
    if (ready.readable) on_readable();
    if (ready.writable && waits_to_write_ && !ending()) {
      report_error(0);
      waits_to_write_ = false;
      report_writable();
    }
  }
  if (!ending()) static_cast<void>(update_watch());
}

void ReadinessDatagram::on_readable() {
  const std::size_t calls = options().batched_calls ? kCallsPerTick : kSingleCallsPerTick;
  for (std::size_t call = 0; call < calls && waits_to_read_ && receive_wanted(); ++call) {
    if (!receive_once(call == 0)) return;
  }
}

// True when there is likely to be more.
bool ReadinessDatagram::receive_once(bool just_told) {
  BlockPool& pool = transport().loop().pool();
  ReceiveBatch batch;
  while (batch.count < slots_ && batch.add(pool, receive_bytes(), control_bytes())) {
  }
  if (batch.count == 0) {
    waits_to_read_ = false;
    report_no_buffer();
    return false;
  }
  transport().loop().counters().system_calls.add(1);
  const int received = transport().sockets().receive_messages(
      descriptor(), std::span(batch.headers).first(batch.count), options().batched_calls);
  if (received < 0) {
    const bool nothing = errno == EAGAIN || errno == EINTR;
    // Asio does not tell errors apart from what is waited for.
    if (!nothing || just_told) report_error(nothing ? 0 : errno);
    return false;
  }
  const auto messages = static_cast<std::size_t>(received);
  for (std::size_t i = 0; i < messages; ++i) {
    const msghdr& header = batch.headers[i].msg_hdr;
    Block& block = batch.blocks[i];
    Slice data = take_message(block, 0, batch.headers[i].msg_len, block.size() / kWasteFactor, pool);
    report_received(std::move(data), Endpoint(static_cast<sockaddr*>(header.msg_name), header.msg_namelen),
                    segment_bytes_of(header), (header.msg_flags & MSG_TRUNC) != 0);
  }
  const bool filled = messages == slots_;
  if (options().batched_calls) {
    const std::size_t most = receive_bytes() > kLargeBytes ? kLargeSlots : kSlots;
    slots_ = filled ? std::min(2 * slots_, most) : std::max(messages + 1, kFirstSlots);
  }
  deliver();
  return filled;
}

}  // namespace linkspan
