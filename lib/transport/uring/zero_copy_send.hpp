// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ZeroCopySend: one send whose bytes the kernel reads where they are, until it says so. Its result comes like
// that of any send; a notification follows if, and only if, the result announced one, perhaps long after the
// stream is gone, as it comes when the peer has acknowledged the bytes. So this belongs to the transport, and
// holds the memory.
#pragma once

#include <memory>

#include "lib/transport/uring/ring.hpp"
#include "lib/transport/uring/send_vector.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

class UringStream;
class UringTransport;
struct InKernelTag;
struct OfStreamTag;

class ZeroCopySend final : public CompletionTarget,
                           public ListNode<InKernelTag>,
                           public ListNode<OfStreamTag> {
 public:
  ZeroCopySend(UringTransport& transport, UringStream& stream, std::unique_ptr<SendVector> vector,
               Chain&& held)
      : transport_(transport), stream_(&stream), vector_(std::move(vector)), held_(std::move(held)) {}

  /// Fills in `entry` for `descriptor`.
  void prepare(io_uring_sqe& entry, int descriptor, bool report_usage) noexcept;

  void on_completion(unsigned operation, int result, unsigned flags) override;

  /// The stream goes; it has had the result.
  void forget_stream() noexcept { stream_ = nullptr; }

 private:
  UringTransport& transport_;
  UringStream* stream_;
  std::unique_ptr<SendVector> vector_;
  Chain held_;
};

}  // namespace linkspan
