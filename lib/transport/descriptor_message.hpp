// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// DescriptorMessage: what sendmsg and recvmsg are given when descriptors travel with the bytes of a unix
// socket. The kernel's while such a call runs, or is in the ring.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <span>
#include <system_error>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

class DescriptorMessage {
 public:
  static constexpr std::size_t kDescriptorsMost = 253;  // Linux: SCM_MAX_FD
#ifdef MSG_CMSG_CLOEXEC
  static constexpr int kReceiveFlags = MSG_CMSG_CLOEXEC;
#else
  static constexpr int kReceiveFlags = 0;
#endif

  DescriptorMessage() noexcept = default;
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  /// `vectors` have to stay.
  [[nodiscard]] const msghdr& to_send(std::span<iovec> vectors, std::span<const Socket> descriptors) noexcept;
  /// Room for `most` descriptors, and `memory` for the bytes.
  [[nodiscard]] msghdr& to_receive(std::span<std::byte> memory, std::size_t most) noexcept;
  /// The descriptors that have come. When some were cut off, the others are closed: errc::limit_exceeded, or
  /// the system's error when the process can have no more of them.
  [[nodiscard]] Result<std::vector<Socket>, std::error_code> take(std::size_t most);

 private:
  msghdr message_{};
  iovec vector_{};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsMost * sizeof(int))> control_;
};

}  // namespace linkspan
