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

class UringStream;
struct BulkTag;

class UringTransport final : public TransportCore, private CompletionTarget {
 public:
  UringTransport(EventLoop& loop, Socket wake_up, std::unique_ptr<Ring> ring, BufferRings buffers,
                 const UringOptions& options);
  ~UringTransport() override;

  std::string_view name() const noexcept override { return "io_uring"; }
  std::vector<std::string> capabilities() const override;
  void wake() noexcept override;

  [[nodiscard]] Ring& ring() noexcept { return *ring_; }
  [[nodiscard]] BufferRing& buffers_for(ReceiveClass receive_class) noexcept {
    const bool small =
        receive_class == ReceiveClass::small ? buffers_.small != nullptr : buffers_.bulk == nullptr;
    return small ? *buffers_.small : *buffers_.bulk;
  }
  /// A stream has armed a receive with these; it says itself when that has ended.
  void receive_armed(UringStream& stream, const BufferRing& buffers) noexcept;
  [[nodiscard]] bool multishot_accept() const noexcept { return options_.multishot_accept; }
  [[nodiscard]] bool multishot_receive() const noexcept { return options_.multishot_receive; }

  [[nodiscard]] std::unique_ptr<SendVector> take_send_vector();
  void give_back(std::unique_ptr<SendVector> vector) noexcept;

 protected:
  std::unique_ptr<StreamCore> make_stream(StreamSetup setup) override;
  std::unique_ptr<ListenerCore> make_listener(Socket socket, ListenerHandler& handler) override;
  bool wait(Duration timeout) override;
  void memory_returned() override;

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
  IntrusiveList<UringStream, BulkTag> bulk_streams_;  // those whose armed receive has the bulk ring
  Timer bulk_idle_;
  std::unique_ptr<Ring> ring_;
  std::vector<std::unique_ptr<SendVector>> send_vectors_;  // of no send; never grows beyond its capacity
};

}  // namespace linkspan
