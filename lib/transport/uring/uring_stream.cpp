// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/uring_stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/transport/socket_ops.hpp"

namespace linkspan {
namespace {

// One send: large enough for full throughput; small enough that progress is reported, and memory released,
// while a large message is on its way.
constexpr std::size_t kSendBytes = std::size_t{1} << 20;

// Of which the peer has not acknowledged the bytes: more only pin memory.
constexpr std::size_t kZeroCopySends = 16;

// One receive into memory of the owner's.
constexpr std::size_t kReceiveBytes = std::size_t{1} << 30;

// Of files, in one tick of one stream, so that others get their turn.
constexpr std::size_t kStepsPerTick = 4;

}  // namespace

UringStream::UringStream(UringTransport& transport, StreamSetup setup)
    : StreamCore(transport, std::move(setup)),
      zero_copy_bytes_(transport.zero_copy_send() ? setup.options.zero_copy_bytes : 0) {}

UringStream::~UringStream() {
  while (!zero_copy_sends_.empty()) zero_copy_sends_.pop_front().forget_stream();
}

UringTransport& UringStream::uring() const noexcept {
  return static_cast<UringTransport&>(transport());
}

void UringStream::start(io_uring_sqe& entry, Operation operation) noexcept {
  entry.user_data = key(operation);
  operation_started();
}

void UringStream::on_completion(unsigned operation, int result, unsigned flags) {
  if ((flags & IORING_CQE_F_MORE) == 0) operation_finished();
  switch (operation) {
    case kReceive: on_received(result, flags); break;
    case kWatch: on_watch(result, flags); break;
    case kSend: on_sent(result); break;
    case kWritable: on_writable(result, flags); break;
    default: break;
  }
}

void UringStream::cancel(Operation operation) {
  operation_started();
  uring().ring().cancel(*this, operation);
}

std::uint64_t UringStream::to_cancel(unsigned operation) const noexcept {
  bool wanted = false;
  switch (operation) {
    case kReceive: wanted = receive_ == State::cancelled; break;
    case kWritable: wanted = writable_ == State::cancelled; break;
    case kWatch: wanted = ending() && watching_; break;
    case kSend: wanted = ending() && sending_; break;
    default: break;
  }
  if (!wanted) return 0;
  return operation == kSend && zero_copy_send_ != nullptr ? zero_copy_send_->key(0) : key(operation);
}

// --- receiving
// -------------------------------------------------------------------------------------------------------

void UringStream::update_receive(bool wanted) {
  if (ending()) return;
  if (!wanted) {
    cancel_receive();
    watch_for_reset();
    return;
  }
  const std::span<std::byte> memory = receive_memory();
  BufferRing* const buffers = memory.empty() ? &wanted_buffers() : nullptr;
  if (receive_ == State::armed) {
    // One receive at a time, so that the data stay in order: the other one is armed when this has come back.
    if (buffers_ != buffers) cancel_receive();
  } else if (receive_ == State::idle) {  // a cancelled one's last completion leads here again
    if (buffers == nullptr || buffers->ready()) {
      arm_receive(buffers, memory);
    } else {
      report_no_buffer();
      watch_for_reset();
    }
  }
}

void UringStream::leave_bulk_ring() noexcept {
  sizer_.reset();
  mark_dirty();
}

void UringStream::arm_receive(BufferRing* buffers, std::span<std::byte> memory) {
  io_uring_sqe& entry = uring().ring().next_entry();
  prepare_receive(entry, memory);
  if (buffers != nullptr) {
    entry.flags |= IOSQE_BUFFER_SELECT;
    entry.buf_group = buffers->group();
  }
  start(entry, kReceive);
  receive_ = State::armed;
  buffers_ = buffers;
  memory_in_kernel_ = buffers == nullptr;
  if (buffers != nullptr) uring().receive_armed(*this, *buffers);
}

void UringStream::prepare_receive(io_uring_sqe& entry, std::span<std::byte> memory) {
  memory = memory.first(std::min(memory.size(), kReceiveBytes));
  if (receive_descriptors() != 0) {
    // One message at a time: its control data lie outside of the ring's blocks.
    if (receive_message_ == nullptr) receive_message_ = std::make_unique<DescriptorMessage>();
    io_uring_prep_recvmsg(&entry, descriptor(), &receive_message_->to_receive(memory, receive_descriptors()),
                          DescriptorMessage::kReceiveFlags);
  } else if (!memory.empty()) {
    // Again and again, without MSG_WAITALL: hit by a reset, that reports what came before and loses the
    // error.
    io_uring_prep_recv(&entry, descriptor(), memory.data(), memory.size(), 0);
  } else {
    io_uring_prep_recv(&entry, descriptor(), nullptr, 0, 0);
    if (uring().multishot_receive()) entry.ioprio |= IORING_RECV_MULTISHOT;
  }
}

void UringStream::cancel_receive() {
  if (receive_ != State::armed) return;
  receive_ = State::cancelled;
  cancel(kReceive);
}

void UringStream::on_received(int result, unsigned flags) {
  const bool more = (flags & IORING_CQE_F_MORE) != 0;
  if (!more) {
    receive_ = State::idle;
    ListNode<BulkTag>::unlink();
  }
  if (result > 0 && (flags & IORING_CQE_F_BUFFER) != 0 && receive_message_ == nullptr) {
    const auto size = static_cast<std::size_t>(result);
    BufferRing::Received received = buffers_->take(flags, size);
    sizer_.received(size, received.filled);
    report_received(Chain(std::move(received.data)));
  } else {
    report_receive_result(result, flags);
  }
  // When it ended for no reason of the stream's (no blocks, a pause, too many completions), or has to go to
  // another class, service() goes on.
  if (!more || buffers_ != &wanted_buffers()) mark_dirty();
}

void UringStream::report_receive_result(int result, unsigned flags) {
  const bool into_memory = std::exchange(memory_in_kernel_, false);
  std::vector<Socket> descriptors;
  std::error_code cut_off;
  if (receive_message_ != nullptr && result >= 0) {
    Result<std::vector<Socket>, std::error_code> taken = receive_message_->take(receive_descriptors());
    if (taken) {
      descriptors = std::move(taken).value();
    } else {
      cut_off = taken.error();
    }
  }
  Slice data;
  if ((flags & IORING_CQE_F_BUFFER) != 0) {
    const auto size = static_cast<std::size_t>(std::max(result, 0));
    BufferRing::Received received = buffers_->take(flags, size);
    if (size != 0) sizer_.received(size, received.filled);
    data = std::move(received.data);
  } else if (result == -ENOBUFS && buffers_ == &wanted_buffers()) {
    buffers_->ran_out();
  }
  if (cut_off) {
    report_receive_failure(cut_off);
  } else if (result > 0 && into_memory) {
    report_received_into(static_cast<std::size_t>(result), std::move(descriptors));
  } else if (result > 0) {
    report_received(Chain(std::move(data)), std::move(descriptors));
  } else if (result == 0) {
    report_receive_end();
  } else if (result != -ENOBUFS && result != -ECANCELED && result != -EINTR && result != -EAGAIN) {
    report_receive_error(-result);
  }
}

bool UringStream::receive_stopped() {
  // Data may wait in completions, behind the one that tells of the break.
  cancel_receive();
  return receive_ == State::idle;
}

void UringStream::watch_for_reset() {
  if (watching_) return;
  // Multishot, because a one-shot poll of a stream whose peer has ended completes at once, each time.
  io_uring_sqe& entry = uring().ring().next_entry();
  io_uring_prep_poll_multishot(&entry, descriptor(), 0);
  start(entry, kWatch);
  watching_ = true;
}

void UringStream::on_watch(int result, unsigned flags) {
  if ((flags & IORING_CQE_F_MORE) == 0) {
    watching_ = false;
    mark_dirty();
  }
  if (ending() || result < 0 || (result & POLLERR) == 0) return;
  // Taken at once, even while it receives: after data, an end and a reset, receiving tells of data and an
  // end.
  const int error = take_socket_error(descriptor());
  if (error != 0) report_broken(error);
}

// --- sending
// ---------------------------------------------------------------------------------------------------------

void UringStream::start_send(SendCall call) {
  // With a call of its own, one message is one tick: the ring's completion would be another.
  if (call == SendCall::own && queue().next_is_memory() && zero_copy_bytes_ == 0 && !waits_to_write_) {
    if (send_step() == SendStep::stopped || !send_wanted()) return;
  }
  // Files, and chains with descriptors, are sent here and now: the ring has a splice, which needs a pipe and
  // a worker thread, and is no faster. Callbacks may have started a send meanwhile.
  for (std::size_t steps = 0; !sending_ && !waits_to_write_ && send_wanted(); ++steps) {
    if (queue().next_is_memory()) {
      send_memory();
    } else if (steps == kStepsPerTick) {
      mark_dirty();
      return;
    } else {
      const SendStep step = send_step();
      if (step == SendStep::blocked) wait_to_write();
      if (step != SendStep::sent) return;
    }
  }
}

void UringStream::send_memory() {
  sending_ = true;
  const Chain& chain = queue().chain();
  const std::size_t bytes = std::min(queue().chain_bytes(), kSendBytes);
  if (chain.slice_count() == 1 && zero_copy_bytes_ == 0) {
    io_uring_sqe& entry = uring().ring().next_entry();
    io_uring_prep_send(&entry, descriptor(), chain.front().data(), bytes, kStreamSendFlags);
    start(entry, kSend);
    return;
  }
  std::unique_ptr<SendVector> vector = uring().take_send_vector();
  const Chain::IovecExport exported = vector->point_to(chain, bytes);
  if (zero_copy_bytes_ != 0 && exported.bytes / exported.count >= zero_copy_bytes_ &&
      zero_copy_count_ < kZeroCopySends) {
    zero_copy_send_ = &uring().send_zero_copy(*this, std::move(vector), chain.share(0, exported.bytes));
    zero_copy_sends_.push_back(*zero_copy_send_);
    ++zero_copy_count_;
    operation_started();
    return;
  }
  send_vector_ = std::move(vector);
  io_uring_sqe& entry = uring().ring().next_entry();
  io_uring_prep_sendmsg(&entry, descriptor(), &send_vector_->message(), kStreamSendFlags);
  start(entry, kSend);
}

void UringStream::wait_to_write() {
  waits_to_write_ = true;
  if (writable_ != State::idle) return;  // a cancelled one's last completion leads here again
  // Multishot: a one-shot poll of a stream whose peer has ended completes at once, each time.
  io_uring_sqe& entry = uring().ring().next_entry();
  io_uring_prep_poll_multishot(&entry, descriptor(), POLLOUT);
  start(entry, kWritable);
  writable_ = State::armed;
}

void UringStream::on_writable(int result, unsigned flags) {
  if ((flags & IORING_CQE_F_MORE) == 0) writable_ = State::idle;
  if (ending() || !waits_to_write_) return;
  if (result > 0 && (result & (POLLOUT | POLLERR | POLLHUP)) != 0) {
    waits_to_write_ = false;
    continue_sending();
  } else {
    wait_to_write();
  }
  // Nobody needs to be told what the socket has room for while nothing waits for it.
  if (!ending() && !waits_to_write_) cancel_writable();
}

void UringStream::cancel_writable() {
  if (writable_ != State::armed) return;
  writable_ = State::cancelled;
  cancel(kWritable);
}

void UringStream::submit_sends() {
  uring().ring().submit();
}

void UringStream::on_sent(int result) {
  if (send_vector_ != nullptr) uring().give_back(std::move(send_vector_));
  report_send_result(result);
}

void UringStream::on_zero_copy_sent(int result) {
  operation_finished();
  zero_copy_send_ = nullptr;
  switch (-result) {
    case EINVAL:  // a kernel older than the reports, unless it refuses the operation itself
      if (uring().usage_reports()) {
        uring().stop_usage_reports();
        break;
      }
      [[fallthrough]];
    case EOPNOTSUPP:  // unix sockets, for one
    case ENOMEM:      // of what may be pinned
    case ENOBUFS: stop_zero_copy(); break;
    default: report_send_result(result); return;
  }
  report_send_result(-ECANCELED);  // nothing was sent: it is sent again
}

void UringStream::report_send_result(int result) {
  sending_ = false;
  if (result > 0) {
    report_sent(static_cast<std::size_t>(result));  // short: the next one says why
  } else if (result == -EAGAIN) {
    // The kernel gives up when it was woken 128 times for one send. Nothing was sent.
    if (send_wanted()) wait_to_write();
  } else if (result != -ECANCELED && result != -EINTR) {
    report_send_error(-result);
  }
  continue_sending();
}

void UringStream::cancel_operations() {
  cancel_receive();
  cancel_writable();
  if (watching_) cancel(kWatch);
  if (sending_) cancel(kSend);
}

}  // namespace linkspan
