// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SendVector: what a gathered send hands to the kernel; unchanged until its completion.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>

#include "linkspan/buffer/chain.hpp"

namespace linkspan {

class SendVector {
 public:
  /// The head of `data`, at most `max_bytes`. Its slices have to stay as long.
  Chain::IovecExport point_to(const Chain& data, std::size_t max_bytes) noexcept {
    const Chain::IovecExport exported = data.export_iovec(vectors_, max_bytes);
    message_.msg_iov = vectors_.data();
    message_.msg_iovlen = exported.count;
    return exported;
  }
  [[nodiscard]] const msghdr& message() const noexcept { return message_; }

 private:
  // 2 KiB of entries: beyond that the cost of a send is that of its slices.
  static constexpr std::size_t kSlices = 128;

  msghdr message_{};
  std::array<iovec, kSlices> vectors_;
};

}  // namespace linkspan
