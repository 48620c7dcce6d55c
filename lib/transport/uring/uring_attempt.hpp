// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An attempt to connect over io_uring.
#pragma once

#include "lib/transport/connect_attempt.hpp"
#include "lib/transport/uring/uring_transport.hpp"

namespace linkspan {

class UringAttempt final : public ConnectAttempt, public CompletionTarget {
 public:
  UringAttempt(UringTransport& transport, AttemptSetup setup) noexcept
      : ConnectAttempt(transport, std::move(setup)), ring_(transport.ring()) {}

  void on_completion(unsigned operation, int result, unsigned flags) override;
  std::uint64_t to_cancel(unsigned operation) const noexcept override;
  void on_cancel_finished() override { finished(); }

 protected:
  void start() override;
  void cancel() override;

 private:
  void finished();

  Ring& ring_;
  int result_ = 0;
  bool connecting_ = false;
  unsigned operations_ = 0;  // that, and its cancel
};

}  // namespace linkspan
