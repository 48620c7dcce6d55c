// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/uring_attempt.hpp"

#include <sys/socket.h>

namespace linkspan {

void UringAttempt::start() {
  io_uring_sqe& entry = ring_.next_entry();
  io_uring_prep_connect(&entry, descriptor(), peer().address(),
                        static_cast<socklen_t>(peer().address_size()));
  entry.user_data = key(0);
  connecting_ = true;
  ++operations_;
}

void UringAttempt::cancel() {
  ++operations_;
  ring_.cancel(*this, 0);
}

std::uint64_t UringAttempt::to_cancel(unsigned operation) const noexcept {
  return connecting_ ? key(operation) : 0;
}

void UringAttempt::on_completion(unsigned, int result, unsigned) {
  result_ = result;
  connecting_ = false;
  finished();
}

void UringAttempt::finished() {
  if (--operations_ == 0) report(-result_);
}

}  // namespace linkspan
