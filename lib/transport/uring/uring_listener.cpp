// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/uring_listener.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace linkspan {

UringListener::UringListener(UringTransport& transport, Socket socket, ListenerHandler& handler)
    : ListenerCore(transport, std::move(socket), handler) {
  // Some kernels do not wait for connections of a non-blocking socket, but fail with EAGAIN.
  const int flags = ::fcntl(descriptor(), F_GETFL);
  static_cast<void>(::fcntl(descriptor(), F_SETFL, flags & ~O_NONBLOCK));
}

UringTransport& UringListener::uring() const noexcept {
  return static_cast<UringTransport&>(transport());
}

void UringListener::start_accepting() {
  wanted_ = true;
  if (accept_ != Accept::idle) return;  // its last completion comes here again
  io_uring_sqe& entry = uring().ring().next_entry();
  // Non-blocking, so that a stream of any transport can have it without another system call.
  io_uring_prep_accept(&entry, descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (uring().multishot_accept()) entry.ioprio |= IORING_ACCEPT_MULTISHOT;
  entry.user_data = key(0);
  ++operations_;
  accept_ = Accept::armed;
}

void UringListener::stop_accepting() {
  wanted_ = false;
  if (accept_ != Accept::armed) return;
  accept_ = Accept::cancelled;
  ++operations_;
  uring().ring().cancel(*this, 0);
}

std::uint64_t UringListener::to_cancel(unsigned operation) const noexcept {
  return accept_ == Accept::cancelled ? key(operation) : 0;
}

// The armed accept refers to the socket until its cancel has run, which takes an enter that fetches
// completions; they are dispatched later. A submission alone would not do with deferred task work.
void UringListener::forget_descriptor() {
  if (accept_ != Accept::idle) uring().ring().wait(Duration::zero());
}

void UringListener::on_completion(unsigned, int result, unsigned flags) {
  const bool more = (flags & IORING_CQE_F_MORE) != 0;
  if (!more) accept_ = Accept::idle;
  bool go_on = true;
  if (result >= 0) {
    report_accepted(Socket(result));  // and closed again, if the listener is
  } else if (result != -ECANCELED) {
    go_on = report_accept_error(-result);
  }
  if (more) return;
  if (go_on && wanted_) start_accepting();
  operation_finished();
}

}  // namespace linkspan
