// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/zero_copy_send.hpp"

#include <utility>

#include "lib/transport/uring/uring_stream.hpp"
#include "lib/transport/uring/uring_transport.hpp"

namespace linkspan {
namespace {

// Linux 6.2; liburing 2.3 does not have them.
constexpr unsigned short kReportUsage = 1u << 3;  // IORING_SEND_ZC_REPORT_USAGE
constexpr unsigned kCopied = 1u << 31;            // IORING_NOTIF_USAGE_ZC_COPIED

}  // namespace

void ZeroCopySend::prepare(io_uring_sqe& entry, int descriptor, bool report_usage) noexcept {
  io_uring_prep_sendmsg_zc(&entry, descriptor, &vector_->message(), kStreamSendFlags);
  if (report_usage) entry.ioprio |= kReportUsage;
  entry.user_data = key(0);
}

void ZeroCopySend::on_completion(unsigned, int result, unsigned flags) {
  const bool notification_follows = (flags & IORING_CQE_F_MORE) != 0;
  if ((flags & IORING_CQE_F_NOTIF) != 0) {
    const bool copied = (static_cast<unsigned>(result) & kCopied) != 0;
    transport_.count_zero_copy(copied);
    if (copied && stream_ != nullptr) stream_->stop_zero_copy();
  } else {
    transport_.give_back(std::move(vector_));
    stream_->on_zero_copy_sent(result);
  }
  if (notification_follows) return;
  if (stream_ != nullptr) stream_->on_zero_copy_end();
  transport_.end_zero_copy(*this);
}

}  // namespace linkspan
