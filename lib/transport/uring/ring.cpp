// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/ring.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>

#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

std::string reason_of(int error) {
  switch (error) {
    case EPERM:
      return "io_uring is forbidden, by a seccomp filter as in containers or kernel.io_uring_disabled";
    case ENOSYS: return "this kernel has no io_uring";
    case ENOMEM: return "too little memory may be locked (ulimit -l)";
    case EMFILE:
    case ENFILE: return "no descriptor is free";
    default: return "io_uring_setup";
  }
}

// What an enter may fail with for reasons that pass: a signal, the end of the wait, memory, an overflow that
// dispatching makes room for.
bool is_passing(int result) noexcept {
  return result >= 0 || result == -EINTR || result == -ETIME || result == -EAGAIN || result == -EBUSY;
}

class ProbeTarget final : public CompletionTarget {
 public:
  void on_completion(unsigned operation, int result, unsigned) override { results[operation] = result; }

  int results[2] = {0, 0};
};

}  // namespace

Result<std::unique_ptr<Ring>> Ring::create(const UringOptions& options, Counter& system_calls) {
  io_uring ring{};
  unsigned flags = options.setup_flags;
  const auto set_up = [&] {
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE | flags;
    parameters.cq_entries = options.completion_entries;
    return -io_uring_queue_init_params(options.submission_entries, &ring, &parameters);
  };
  int error = set_up();
  while (error == EINVAL && flags != 0) {
    flags &= ~std::bit_floor(flags);  // the bits were given out over the years: the newest first
    error = set_up();
  }
  if (error != 0) return Error(system_error_code(error), reason_of(error));
  return std::unique_ptr<Ring>(new Ring(ring, flags, system_calls));
}

void Ring::submit() {
  system_calls_.add(1);
  LINKSPAN_ASSERT(is_passing(io_uring_submit(&ring_)), "the kernel takes submissions");
}

void Ring::wait(Duration timeout) {
  system_calls_.add(1);
  int result = 0;
  if (timeout <= Duration::zero() || io_uring_cq_ready(&ring_) != 0) {
    result = io_uring_submit_and_get_events(&ring_);
  } else {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(timeout);
    __kernel_timespec limit{};
    limit.tv_sec = seconds.count();
    limit.tv_nsec = std::chrono::nanoseconds(timeout - seconds).count();
    io_uring_cqe* first = nullptr;
    result = io_uring_submit_and_wait_timeout(&ring_, &first, 1,
                                              timeout == Duration::max() ? nullptr : &limit, nullptr);
  }
  LINKSPAN_ASSERT(is_passing(result), "the kernel takes submissions");
}

void Ring::dispatch(unsigned limit) {
  for (unsigned count = std::min(io_uring_cq_ready(&ring_), limit); count != 0; --count) {
    const io_uring_cqe& entry = ring_.cq.cqes[*ring_.cq.khead & ring_.cq.ring_mask];
    const std::uint64_t key = entry.user_data;
    const int result = entry.res;
    const unsigned flags = entry.flags;
    io_uring_cq_advance(&ring_, 1);
    constexpr std::uint64_t kMask = CompletionTarget::kOperationMask;
    auto* target = reinterpret_cast<CompletionTarget*>(static_cast<std::uintptr_t>(key & ~kMask));
    target->on_completion(static_cast<unsigned>(key & kMask), result, flags);
  }
}

Ring::Multishot Ring::probe_multishot() {
  // Flags are checked before the descriptor: EINVAL or EBADF tells whether the kernel knows them.
  enum : unsigned { kAccept, kReceive };
  ProbeTarget target;
  io_uring_sqe& accept = next_entry();
  io_uring_prep_multishot_accept(&accept, -1, nullptr, nullptr, 0);
  accept.user_data = target.key(kAccept);
  io_uring_sqe& receive = next_entry();
  io_uring_prep_recv_multishot(&receive, -1, nullptr, 0, 0);
  receive.flags |= IOSQE_BUFFER_SELECT;
  receive.user_data = target.key(kReceive);
  while (target.results[kAccept] == 0 || target.results[kReceive] == 0) {
    wait(Duration::max());
    dispatch(2);
  }
  return {target.results[kAccept] == -EBADF, target.results[kReceive] == -EBADF};
}

}  // namespace linkspan
