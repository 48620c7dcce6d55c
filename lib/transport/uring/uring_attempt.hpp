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

 protected:
  void start() override;
  void cancel() override;

 private:
  enum Operation : unsigned { kConnect, kCancel };

  void submit(io_uring_sqe& entry, Operation operation) noexcept;

  Ring& ring_;
  int result_ = 0;
  unsigned operations_ = 0;
};

}  // namespace linkspan
