// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The io_uring transport: multishot accept, multishot receive into a ring of pool blocks, one gathered send
// in flight for each stream. All submissions of a tick ride on its wait: one system call a tick.
// Needs Linux 5.19, for the ring of blocks; what came later is used where it is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/transport/transport_core.hpp"
#include "lib/transport/uring/buffer_ring.hpp"
#include "lib/transport/uring/ring.hpp"
#include "lib/transport/uring/send_vector.hpp"
#include "lib/transport/uring/uring_files.hpp"
#include "lib/transport/uring/zero_copy_send.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/loop/timer.hpp"

namespace linkspan {

[[nodiscard]] Result<std::unique_ptr<Engine>> make_uring_transport(EventLoop& loop);
[[nodiscard]] Result<std::unique_ptr<Engine>> make_uring_transport(EventLoop& loop,
                                                                   const UringOptions& options);

/// What streams receive into. Where one of the two cannot be had, the other one serves all classes.
struct BufferRings {
  std::unique_ptr<BufferRing> small;
  std::unique_ptr<BufferRing> bulk;  // for the medium class too: receives share its blocks
};

struct BulkTag;

/// A socket that receives into the bulk ring from time to time.
class BulkUser : public ListNode<BulkTag> {
 public:
  /// Nothing has come for long: it is to receive without that ring until something does.
  virtual void leave_bulk_ring() noexcept = 0;

 protected:
  ~BulkUser() = default;
};

class UringTransport final : public TransportCore, private CompletionTarget {
 public:
  UringTransport(EventLoop& loop, Socket wake_up, std::unique_ptr<Ring> ring, BufferRings buffers,
                 const UringOptions& options);
  ~UringTransport() override;

  std::string_view name() const noexcept override { return "io_uring"; }
  std::vector<std::string> capabilities() const override;
  void wake() noexcept override;
  FileCalls* file_calls() noexcept override { return &files_; }

  [[nodiscard]] Ring& ring() noexcept { return *ring_; }
  [[nodiscard]] BufferRing& buffers_for(ReceiveClass receive_class) noexcept {
    const bool small =
        receive_class == ReceiveClass::small ? buffers_.small != nullptr : buffers_.bulk == nullptr;
    return small ? *buffers_.small : *buffers_.bulk;
  }
  /// `user` has armed a receive with these; it leaves its list when that has ended.
  void receive_armed(BulkUser& user, const BufferRing& buffers) noexcept;
  /// Whether they are to be left while nothing comes.
  [[nodiscard]] bool goes_idle(const BufferRing& buffers) const noexcept {
    return &buffers == buffers_.bulk.get() && has_receive_classes();
  }
  [[nodiscard]] bool multishot_accept() const noexcept { return options_.multishot_accept; }
  [[nodiscard]] bool multishot_receive() const noexcept { return options_.multishot_receive; }

  [[nodiscard]] std::unique_ptr<SendVector> take_send_vector();
  void give_back(std::unique_ptr<SendVector> vector) noexcept;

  [[nodiscard]] bool zero_copy_send() const noexcept { return options_.zero_copy_send; }
  /// Sends what `vector` points to, which `held` keeps. The stream gets the result.
  ZeroCopySend& send_zero_copy(UringStream& stream, std::unique_ptr<SendVector> vector, Chain&& held);
  /// Its last completion has come: releases the memory.
  void end_zero_copy(ZeroCopySend& send) noexcept;
  void count_zero_copy(bool copied) noexcept;
  /// The kernel does not know how to report what became of a send.
  void stop_usage_reports() noexcept { usage_reports_ = false; }
  [[nodiscard]] bool usage_reports() const noexcept { return usage_reports_; }

 protected:
  std::unique_ptr<StreamCore> make_stream(StreamSetup setup) override;
  std::unique_ptr<ConnectAttempt> make_attempt(AttemptSetup setup) override;
  std::unique_ptr<ListenerCore> make_listener(Socket socket, ListenerHandler& handler) override;
  std::unique_ptr<DatagramCore> make_datagram(DatagramSetup setup) override;
  bool wait(Duration timeout) override;
  void memory_returned() override;
  bool nothing_in_flight() const noexcept override { return zero_copy_sends_.empty() && files_.idle(); }

 private:
  void on_completion(unsigned operation, int result, unsigned flags) override;
  void await_wake_up();
  [[nodiscard]] bool has_receive_classes() const noexcept {
    return buffers_.small != nullptr && buffers_.bulk != nullptr;
  }
  void look_after_bulk() noexcept;

  const UringOptions options_;  // what is in use of it
  Socket wake_up_;              // an eventfd, which the ring reads
  std::uint64_t wake_up_value_ = 0;
  BufferRings buffers_;
  IntrusiveList<BulkUser, BulkTag> bulk_users_;  // those whose armed receive has the bulk ring
  Timer bulk_idle_;
  std::unique_ptr<Ring> ring_;
  IntrusiveList<ZeroCopySend, InKernelTag> zero_copy_sends_;  // owned
  bool usage_reports_ = true;
  UringFiles files_;
  std::vector<std::unique_ptr<SendVector>> send_vectors_;  // of no send; never grows beyond its capacity
};

}  // namespace linkspan
