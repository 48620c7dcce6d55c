// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/uring_datagram.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

// Shorter messages are copied out of their block. One of the bulk ring serves several receives, a small one
// is handed over with what it has received.
constexpr std::size_t kLeastBulkBytes = 16 * 1024;
constexpr std::size_t kLeastSmallBytes = 1024;

}  // namespace

UringDatagram::UringDatagram(UringTransport& transport, DatagramSetup setup)
    : DatagramCore(transport, std::move(setup)),
      buffers_(transport.buffers_for(receive_bytes() + kOverheadBytes <= blocks_of(ReceiveClass::small).bytes
                                         ? ReceiveClass::small
                                         : ReceiveClass::bulk)),
      multishot_(transport.multishot_receive()),
      resting_(transport.goes_idle(buffers_)) {}

UringTransport& UringDatagram::uring() const noexcept {
  return static_cast<UringTransport&>(transport());
}

void UringDatagram::start(io_uring_sqe& entry, Operation operation) noexcept {
  entry.user_data = key(operation);
  operation_started();
}

void UringDatagram::on_completion(unsigned operation, int result, unsigned flags) {
  const bool more = (flags & IORING_CQE_F_MORE) != 0;
  if (!more) operation_finished();
  switch (operation) {
    case kReceive: on_received(result, flags); break;
    case kArrival:
      receive_ = Receive::idle;
      if (result > 0) resting_ = false;
      mark_dirty();
      break;
    case kWatch:
      if (!more) {
        watching_ = false;
        mark_dirty();
      }
      if (result >= 0 && (result & POLLERR) != 0) report_error(0);
      break;
    case kRoom:
      awaits_room_ = false;
      report_writable();
      break;
    default: break;
  }
}

// --- receiving
// -------------------------------------------------------------------------------------------------------

void UringDatagram::update_receive(bool wanted) {
  if (ending()) return;
  watch_for_errors();
  if (!wanted) {
    cancel_receive();
  } else if (receive_ == Receive::idle) {  // a cancelled one's last completion leads here again
    if (resting_) {
      await_arrival();
    } else if (buffers_.ready()) {
      arm_receive();
    } else {
      report_no_buffer();
    }
  }
}

void UringDatagram::leave_bulk_ring() noexcept {
  resting_ = true;
  if (receive_ == Receive::armed) cancel_receive();
}

void UringDatagram::arm_receive() {
  layout_ = {};
  layout_.msg_namelen = kAddressBytes;
  layout_.msg_controllen = control_bytes();
  io_uring_sqe& entry = uring().ring().next_entry();
  io_uring_prep_recvmsg(&entry, descriptor(), &layout_, 0);
  if (multishot_) {
    entry.ioprio |= IORING_RECV_MULTISHOT;
  } else {
    layout_.msg_name = address_.data();
    layout_.msg_control = control_.data();
  }
  entry.flags |= IOSQE_BUFFER_SELECT;
  entry.buf_group = buffers_.group();
  start(entry, kReceive);
  receive_ = Receive::armed;
  uring().receive_armed(*this, buffers_);
}

void UringDatagram::await_arrival() {
  io_uring_sqe& entry = uring().ring().next_entry();
  io_uring_prep_poll_add(&entry, descriptor(), POLLIN);
  start(entry, kArrival);
  receive_ = Receive::resting;
}

void UringDatagram::cancel_receive() {
  if (receive_ != Receive::armed && receive_ != Receive::resting) return;
  const Operation operation = receive_ == Receive::armed ? kReceive : kArrival;
  receive_ = Receive::cancelled;
  cancel(operation);
}

void UringDatagram::on_received(int result, unsigned flags) {
  if ((flags & IORING_CQE_F_MORE) == 0) {
    receive_ = Receive::idle;
    ListNode<BulkTag>::unlink();
  }
  if ((flags & IORING_CQE_F_BUFFER) != 0) {
    if (result >= 0) take_message_from(buffers_.filled(flags), static_cast<std::size_t>(result));
    buffers_.provide_again(flags);
  } else if (result == 0) {  // an empty message, for which a one-shot receive keeps no block
    report_received({}, Endpoint(static_cast<const sockaddr*>(layout_.msg_name), layout_.msg_namelen), 0,
                    false);
  } else if (result == -ENOBUFS) {
    buffers_.ran_out();
  } else if (result < 0 && result != -ECANCELED && result != -EINTR && result != -EAGAIN) {
    report_error(-result);
  }
  mark_dirty();  // service() delivers all that has come in this tick, and arms the next receive
}

// A multishot receive puts everything into the block, in the order of layout_; another one only the message.
// Blocks begin anywhere: what is not payload is copied out, to where its structures may be read.
void UringDatagram::take_message_from(Block& block, std::size_t size) {
  msghdr message = layout_;
  std::size_t offset = 0;
  alignas(std::max_align_t) std::array<std::byte, kOverheadBytes> overhead;
  if (multishot_) {
    offset = sizeof(io_uring_recvmsg_out) + layout_.msg_namelen + layout_.msg_controllen;
    LINKSPAN_ASSERT(offset <= std::min(size, overhead.size()), "the kernel writes what it was asked for");
    std::memcpy(overhead.data(), block.data(), offset);  // tidy: moves handles, not bytes
    io_uring_recvmsg_out out;
    std::memcpy(&out, overhead.data(), sizeof(out));  // tidy: moves handles, not bytes
    message.msg_name = overhead.data() + sizeof(out);
    message.msg_namelen = out.namelen;
    message.msg_control = overhead.data() + sizeof(out) + layout_.msg_namelen;
    message.msg_controllen = out.controllen;
    message.msg_flags = static_cast<int>(out.flags);
    size -= offset;
  }
  const Endpoint from(static_cast<const sockaddr*>(message.msg_name), message.msg_namelen);
  const std::size_t segment_bytes = segment_bytes_of(message);
  const std::size_t least =
      block.size() > blocks_of(ReceiveClass::small).bytes ? kLeastBulkBytes : kLeastSmallBytes;
  report_received(take_message(block, offset, size, least, transport().loop().pool()), from, segment_bytes,
                  (message.msg_flags & MSG_TRUNC) != 0);
}

// --- errors, room, the end
// -------------------------------------------------------------------------------------------

void UringDatagram::watch_for_errors() {
  if (watching_) return;
  io_uring_sqe& entry = uring().ring().next_entry();
  io_uring_prep_poll_multishot(&entry, descriptor(), 0);
  start(entry, kWatch);
  watching_ = true;
}

bool UringDatagram::wait_writable(int other) {
  io_uring_sqe& entry = uring().ring().next_entry();
  io_uring_prep_poll_add(&entry, other, POLLOUT);
  start(entry, kRoom);
  awaits_room_ = true;
  return true;
}

void UringDatagram::cancel_operations() {
  cancel_receive();
  if (watching_) cancel(kWatch);
  if (awaits_room_) cancel(kRoom);
}

void UringDatagram::cancel(Operation operation) {
  operation_started();
  uring().ring().cancel(*this, operation);
}

std::uint64_t UringDatagram::to_cancel(unsigned operation) const noexcept {
  bool wanted = false;
  switch (operation) {
    case kReceive:
    case kArrival: wanted = receive_ == Receive::cancelled; break;
    case kWatch: wanted = ending() && watching_; break;
    case kRoom: wanted = ending() && awaits_room_; break;
    default: break;
  }
  return wanted ? key(operation) : 0;
}

}  // namespace linkspan
