// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The io_uring transport: multishot accept, multishot receive into a ring of pool blocks, one gathered send
// in flight for each stream. All submissions of a tick ride on its wait: one system call a tick.
// Needs Linux 5.19, for the ring of blocks; what came later is used where it is there.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/transport/transport_core.hpp"
#include "lib/transport/uring/buffer_ring.hpp"
#include "lib/transport/uring/ring.hpp"

namespace linkspan {

[[nodiscard]] Result<std::unique_ptr<Engine>> make_uring_transport(EventLoop& loop);
[[nodiscard]] Result<std::unique_ptr<Engine>> make_uring_transport(EventLoop& loop,
                                                                   const UringOptions& options);

/// What a gathered send hands to the kernel; unchanged until its completion.
class SendVector {
 public:
  /// The head of `data`, at most `max_bytes`. Its slices have to stay as long.
  [[nodiscard]] const msghdr& point_to(const Chain& data, std::size_t max_bytes) noexcept {
    message_.msg_iov = vectors_.data();
    message_.msg_iovlen = data.export_iovec(vectors_, max_bytes).count;
    return message_;
  }

 private:
  // 2 KiB of entries: beyond that the cost of a send is that of its slices.
  static constexpr std::size_t kSlices = 128;

  msghdr message_{};
  std::array<iovec, kSlices> vectors_;
};

class UringTransport final : public TransportCore, private CompletionTarget {
 public:
  UringTransport(EventLoop& loop, Socket wake_up, std::unique_ptr<Ring> ring,
                 std::unique_ptr<BufferRing> buffers, const UringOptions& options);
  ~UringTransport() override;

  std::string_view name() const noexcept override { return "io_uring"; }
  std::vector<std::string> capabilities() const override;
  void wake() noexcept override;

  [[nodiscard]] Ring& ring() noexcept { return *ring_; }
  [[nodiscard]] BufferRing& buffers() noexcept { return *buffers_; }
  [[nodiscard]] bool multishot_accept() const noexcept { return options_.multishot_accept; }
  [[nodiscard]] bool multishot_receive() const noexcept { return options_.multishot_receive; }

  [[nodiscard]] std::unique_ptr<SendVector> take_send_vector();
  void give_back(std::unique_ptr<SendVector> vector) noexcept;

 protected:
  std::unique_ptr<StreamCore> make_stream(StreamSetup setup) override;
  std::unique_ptr<ListenerCore> make_listener(Socket socket, ListenerHandler& handler) override;
  void wait(Duration timeout) override;
  void memory_returned() override { buffers_->refill(); }

 private:
  void on_completion(unsigned operation, int result, unsigned flags) override;
  void await_wake_up();

  const UringOptions options_;  // what is in use of it
  Socket wake_up_;              // an eventfd, which the ring reads
  std::uint64_t wake_up_value_ = 0;
  std::unique_ptr<BufferRing> buffers_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<SendVector>> send_vectors_;  // of no send; never grows beyond its capacity
};

}  // namespace linkspan
