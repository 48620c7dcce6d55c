// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A datagram socket over io_uring: a multishot receive into the ring of blocks that has room for its longest
// message. While the large ring is not needed, the socket waits for its next message without holding it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lib/transport/datagram_core.hpp"
#include "lib/transport/uring/uring_transport.hpp"

namespace linkspan {

class UringDatagram final : public DatagramCore, public CompletionTarget, public BulkUser {
 public:
  UringDatagram(UringTransport& transport, DatagramSetup setup);

  /// What a block holds besides a message, at most: where it came from, and how.
  static constexpr std::size_t kOverheadBytes = sizeof(io_uring_recvmsg_out) + kAddressBytes + kControlBytes;

  void on_completion(unsigned operation, int result, unsigned flags) override;
  std::uint64_t to_cancel(unsigned operation) const noexcept override;
  void on_cancel_finished() override { operation_finished(); }
  void leave_bulk_ring() noexcept override;

 protected:
  void update_receive(bool wanted) override;
  bool wait_writable(int descriptor) override;
  void cancel_operations() override;

 private:
  enum Operation : unsigned { kReceive, kArrival, kWatch, kRoom };
  enum class Receive : std::uint8_t { idle, armed, resting, cancelled };

  [[nodiscard]] UringTransport& uring() const noexcept;
  void start(io_uring_sqe& entry, Operation operation) noexcept;
  void cancel(Operation operation);
  void arm_receive();
  void await_arrival();
  void cancel_receive();
  void watch_for_errors();
  void on_received(int result, unsigned flags);
  void take_message_from(Block& block, std::size_t size);

  BufferRing& buffers_;
  const bool multishot_;
  // The kernel's while a receive is armed. A multishot one takes only the sizes from it.
  msghdr layout_{};
  alignas(sockaddr) std::array<std::byte, kAddressBytes> address_;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control_;
  Receive receive_ = Receive::idle;
  bool resting_;  // nothing has come for long: the next receive is armed when something does
  bool watching_ = false;
  bool awaits_room_ = false;
};

}  // namespace linkspan
