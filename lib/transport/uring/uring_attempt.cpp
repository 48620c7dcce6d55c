// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/uring_attempt.hpp"

#include <sys/socket.h>

namespace linkspan {

void UringAttempt::submit(io_uring_sqe& entry, Operation operation) noexcept {
  entry.user_data = key(operation);
  ++operations_;
}

void UringAttempt::start() {
  io_uring_sqe& entry = ring_.next_entry();
  io_uring_prep_connect(&entry, descriptor(), peer().address(),
                        static_cast<socklen_t>(peer().address_size()));
  submit(entry, kConnect);
}

void UringAttempt::cancel() {
  io_uring_sqe& entry = ring_.next_entry();
  io_uring_prep_cancel64(&entry, key(kConnect), 0);
  submit(entry, kCancel);
}

void UringAttempt::on_completion(unsigned operation, int result, unsigned) {
  if (operation == kConnect) result_ = result;
  if (--operations_ == 0) report(-result_);
}

}  // namespace linkspan
