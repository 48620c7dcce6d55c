// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/ring.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
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

timespec to_timespec(Duration duration) noexcept {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
  return {static_cast<time_t>(seconds.count()), static_cast<long>((duration - seconds).count())};
}

class ProbeTarget final : public CompletionTarget {
 public:
  void on_completion(unsigned operation, int result, unsigned) override { results[operation] = result; }

  int results[2] = {0, 0};
};

}  // namespace

std::uint64_t CompletionTarget::to_cancel(unsigned) const noexcept {
  return 0;
}

bool running_under_valgrind() noexcept {
  const char* preloaded = std::getenv("LD_PRELOAD");
  return preloaded != nullptr && std::strstr(preloaded, "/vgpreload_") != nullptr;
}

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
  std::unique_ptr<Ring> made(new Ring(ring, flags, system_calls));
  // Linux 5.18: saves the kernel from looking the descriptor up at each call. Without it all works as well.
  made->registered_ = io_uring_register_ring_fd(&made->ring_) == 1;
  // A forked child must not touch the ring, whose queues it would share with us.
  static_cast<void>(io_uring_ring_dontfork(&made->ring_));
  if (options.wait_on_event) {
    if (Status event = made->use_event(); !event) return event.error();
  }
  return made;
}

Status Ring::use_event() {
  event_ = Socket(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event_) return Error(system_error_code(errno), "eventfd");
  const int error = -io_uring_register_eventfd(&ring_, event_.descriptor());
  if (error != 0) return Error(system_error_code(error), "registering an eventfd");
  return std::monostate();
}

// An event stays from the moment a completion is there, so one between the last look and the wait is not
// missed.
int Ring::wait_for_event(Duration timeout) noexcept {
  const timespec limit = to_timespec(timeout);
  pollfd event{event_.descriptor(), POLLIN, 0};
  static_cast<void>(::ppoll(&event, 1, timeout == Duration::max() ? nullptr : &limit, nullptr));
  std::uint64_t count = 0;
  static_cast<void>(!::read(event_.descriptor(), &count, sizeof(count)));
  return io_uring_submit_and_get_events(&ring_);
}

void Ring::interrupt_wait() const noexcept {
  if (!event_) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(event_.descriptor(), &one, sizeof(one)));
}

void Ring::submit() {
  system_calls_.add(1);
  LINKSPAN_ASSERT(is_passing(io_uring_submit(&ring_)), "the kernel takes submissions");
}

void Ring::cancel(CompletionTarget& target, unsigned operation) {
  const std::uint64_t key = target.to_cancel(operation);
  LINKSPAN_ASSERT(key != 0, "only what is in the kernel's hands is cancelled");
  io_uring_sqe& entry = next_entry();
  io_uring_prep_cancel64(&entry, key, 0);
  entry.user_data = target.key(operation | CompletionTarget::kCancel);
}

void Ring::wait(Duration timeout) {
  system_calls_.add(1);
  int result = 0;
  if (timeout <= Duration::zero() || io_uring_cq_ready(&ring_) != 0) {
    result = io_uring_submit_and_get_events(&ring_);
  } else if (event_) {
    result = io_uring_submit_and_get_events(&ring_);
    if (is_passing(result) && io_uring_cq_ready(&ring_) == 0) result = wait_for_event(timeout);
  } else {
    const timespec wait_limit = to_timespec(timeout);
    __kernel_timespec limit{};
    limit.tv_sec = wait_limit.tv_sec;
    limit.tv_nsec = wait_limit.tv_nsec;
    io_uring_cqe* first = nullptr;
    result = io_uring_submit_and_wait_timeout(&ring_, &first, 1,
                                              timeout == Duration::max() ? nullptr : &limit, nullptr);
  }
  LINKSPAN_ASSERT(is_passing(result), "the kernel takes submissions");
}

unsigned Ring::dispatch(unsigned limit) {
  const unsigned total = std::min(io_uring_cq_ready(&ring_), limit);
  for (unsigned count = total; count != 0; --count) {
    const io_uring_cqe& entry = ring_.cq.cqes[*ring_.cq.khead & ring_.cq.ring_mask];
    const std::uint64_t key = entry.user_data;
    const int result = entry.res;
    const unsigned flags = entry.flags;
    io_uring_cq_advance(&ring_, 1);
    constexpr std::uint64_t kMask = CompletionTarget::kKeyMask;
    auto* target = reinterpret_cast<CompletionTarget*>(static_cast<std::uintptr_t>(key & ~kMask));
    const unsigned operation = static_cast<unsigned>(key) & CompletionTarget::kOperationMask;
    if ((key & CompletionTarget::kCancel) == 0) {
      target->on_completion(operation, result, flags);
    } else if (result < 0 && target->to_cancel(operation) != 0) {
      cancel(*target, operation);
    } else {
      target->on_cancel_finished();
    }
  }
  return total;
}

bool Ring::knows(int operation) noexcept {
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
  if (probe == nullptr) return false;
  const bool known = io_uring_opcode_supported(probe, operation) != 0;
  io_uring_free_probe(probe);
  return known;
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
