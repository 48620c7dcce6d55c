// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A stream over io_uring: StreamCore's operations as submissions and completions.
#pragma once

#include <memory>

#include "lib/transport/descriptor_message.hpp"
#include "lib/transport/receive_sizer.hpp"
#include "lib/transport/stream_core.hpp"
#include "lib/transport/uring/uring_transport.hpp"

namespace linkspan {

// All or broken: without MSG_WAITALL a send may stop anywhere.
inline constexpr int kStreamSendFlags = MSG_WAITALL | MSG_NOSIGNAL;

class UringStream final : public StreamCore, public CompletionTarget, public BulkUser {
 public:
  UringStream(UringTransport& transport, StreamSetup setup);
  ~UringStream() override;

  void on_completion(unsigned operation, int result, unsigned flags) override;
  std::uint64_t to_cancel(unsigned operation) const noexcept override;
  void on_cancel_finished() override { operation_finished(); }
  void leave_bulk_ring() noexcept override;

  // What a ZeroCopySend reports.
  void on_zero_copy_sent(int result);
  void stop_zero_copy() noexcept { zero_copy_bytes_ = 0; }
  void on_zero_copy_end() noexcept { --zero_copy_count_; }

 protected:
  void update_receive(bool wanted) override;
  bool receive_stopped() override;
  void start_send(SendCall call) override;
  void submit_sends() override;
  void cancel_operations() override;

 private:
  enum Operation : unsigned { kReceive, kWatch, kSend, kWritable };
  enum class State : std::uint8_t { idle, armed, cancelled };

  [[nodiscard]] UringTransport& uring() const noexcept;
  void start(io_uring_sqe& entry, Operation operation) noexcept;

  [[nodiscard]] BufferRing& wanted_buffers() const noexcept {
    return uring().buffers_for(sizer_.receive_class());
  }
  void cancel(Operation operation);
  void arm_receive(BufferRing* buffers, std::span<std::byte> memory);
  void prepare_receive(io_uring_sqe& entry, std::span<std::byte> memory);
  void cancel_receive();
  void cancel_writable();
  void watch_for_reset();

  void on_received(int result, unsigned flags);
  void report_receive_result(int result, unsigned flags);
  void on_watch(int result, unsigned flags);
  void on_sent(int result);
  void report_send_result(int result);
  void send_memory();
  void wait_to_write();
  void on_writable(int result, unsigned flags);

  // The kernel's until their completions.
  std::unique_ptr<SendVector> send_vector_;
  std::unique_ptr<DescriptorMessage> receive_message_;  // of streams that receive descriptors

  IntrusiveList<ZeroCopySend, OfStreamTag> zero_copy_sends_;  // whose results or notifications are to come
  std::size_t zero_copy_bytes_;                               // 0: none
  ZeroCopySend* zero_copy_send_ = nullptr;                    // whose result is to come
  std::uint32_t zero_copy_count_ = 0;

  BufferRing* buffers_ = nullptr;  // those of the last receive; none: it was into the owner's memory
  State receive_ = State::idle;
  ReceiveSizer sizer_;
  bool watching_ = false;
  State writable_ = State::idle;  // a poll
  bool waits_to_write_ = false;
};

}  // namespace linkspan
