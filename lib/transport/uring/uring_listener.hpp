// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A listener over io_uring.
#pragma once

#include "lib/transport/listener_core.hpp"
#include "lib/transport/uring/uring_transport.hpp"

namespace linkspan {

class UringListener final : public ListenerCore, public CompletionTarget {
 public:
  UringListener(UringTransport& transport, Socket socket, ListenerHandler& handler);

  void on_completion(unsigned operation, int result, unsigned flags) override;
  std::uint64_t to_cancel(unsigned operation) const noexcept override;
  void on_cancel_finished() override { operation_finished(); }

 protected:
  void start_accepting() override;
  void stop_accepting() override;
  void forget_descriptor() override;

 private:
  enum class Accept : std::uint8_t { idle, armed, cancelled };

  [[nodiscard]] UringTransport& uring() const noexcept;

  Accept accept_ = Accept::idle;
  bool wanted_ = false;
};

}  // namespace linkspan
