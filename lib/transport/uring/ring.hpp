// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Ring: one io_uring: set-up with what the kernel takes, submission, waiting, and dispatch of completions.
// Belongs to the thread that creates it.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/counter.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

/// valgrind's own libraries are preloaded into what it runs.
[[nodiscard]] bool running_under_valgrind() noexcept;

/// What the transport may use of what a kernel offers. The defaults are for use, others for tests.
struct UringOptions {
  /// A full submission queue is submitted early, so a small one only costs system calls. These two, and a
  /// page for each buffer ring, fit into 64 KiB, which is the least limit of locked memory in use.
  unsigned submission_entries = 256;
  /// An overflow loses nothing, but ends multishot operations.
  unsigned completion_entries = 2048;
  /// What is asked for at set-up; dropped one by one while the kernel refuses.
  unsigned setup_flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
  /// So that tasks and timers get their turn.
  unsigned completions_per_poll = 256;
  bool multishot_accept = true;
  bool multishot_receive = true;
  bool zero_copy_send = true;  ///< where a stream asks for it
  /// Blocks in the two buffer rings, at most, powers of two up to 256: 512 KiB and 8 MiB for a loop, and what
  /// it can be handed in one tick. A receive needs a block only from its data's arrival to its delivery, so
  /// this does not depend on the number of streams. 0: no such ring, and the other one serves all.
  unsigned small_buffers = 128;
  unsigned bulk_buffers = 32;
  /// The bulk ring's blocks go back when it was not used for this long.
  Duration bulk_idle = std::chrono::seconds(1);
  /// Waits on an eventfd instead of in the ring: two more system calls a wait. For valgrind, which lets no
  /// other thread run while one waits in io_uring_enter.
  bool wait_on_event = running_under_valgrind();

  UringOptions() = default;
};

/// Where completions go. Lives until the last one of its operations has been dispatched.
class CompletionTarget {
 public:
  /// `operation` is what was given to start(); `flags` are IORING_CQE_F_*. Not called inside a call of Ring.
  virtual void on_completion(unsigned operation, int result, unsigned flags) = 0;

  /// The key of `operation` while it is to be cancelled and has not come back; 0 otherwise. Asked by
  /// Ring::cancel, and again when the cancel has missed.
  [[nodiscard]] virtual std::uint64_t to_cancel(unsigned operation) const noexcept;
  /// A Ring::cancel is done, which counts as an operation until then.
  virtual void on_cancel_finished() {}

  /// What identifies an operation to the kernel: the target, and in the bits that its alignment leaves free
  /// the operation.
  [[nodiscard]] std::uint64_t key(unsigned operation) const noexcept {
    return reinterpret_cast<std::uintptr_t>(this) | operation;
  }

  static constexpr unsigned kOperationMask = 3;
  static constexpr unsigned kCancel = 4;  ///< a Ring::cancel of the operation
  static constexpr unsigned kKeyMask = kOperationMask | kCancel;

 protected:
  ~CompletionTarget() = default;
};

static_assert(alignof(CompletionTarget) > CompletionTarget::kKeyMask);

class Ring {
 public:
  /// `system_calls` has to outlive the ring.
  [[nodiscard]] static Result<std::unique_ptr<Ring>> create(const UringOptions& options,
                                                            Counter& system_calls);
  ~Ring() { io_uring_queue_exit(&ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// An entry to be filled in before the next call; it is submitted with the next submit or wait.
  [[nodiscard]] io_uring_sqe& next_entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    while (entry == nullptr) {
      submit();
      entry = io_uring_get_sqe(&ring_);
    }
    return *entry;
  }
  void submit();
  /// Asks the kernel to end an operation, which says so itself. An operation that is between two of its
  /// states is missed: then it is asked again, once in each wait, while the target wants it.
  void cancel(CompletionTarget& target, unsigned operation);
  /// Submits, and waits at most `timeout` (Duration::max(): without a limit) for a completion.
  void wait(Duration timeout);
  /// Ends a wait on the event, which a completion that another eventfd has caused may fail to do. Any thread.
  void interrupt_wait() const noexcept;
  /// Hands at most `limit` completions to their targets; not those that come meanwhile. Returns how many.
  unsigned dispatch(unsigned limit);

  /// Those of UringOptions::setup_flags that the kernel took.
  [[nodiscard]] unsigned setup_flags() const noexcept { return setup_flags_; }
  /// Calls need not look the ring's descriptor up.
  [[nodiscard]] bool registered() const noexcept { return registered_; }
  /// Whether the kernel knows the multishot flag of these; asked by trying, without a socket.
  struct Multishot {
    bool accept;
    bool receive;
  };
  [[nodiscard]] Multishot probe_multishot();
  /// Whether the kernel knows an IORING_OP_*.
  [[nodiscard]] bool knows(int operation) noexcept;
  /// Returns the errno.
  [[nodiscard]] int register_buffers(io_uring_buf_reg& registration) noexcept {
    return -io_uring_register_buf_ring(&ring_, &registration, 0);
  }

 private:
  Ring(const io_uring& ring, unsigned setup_flags, Counter& system_calls) noexcept
      : ring_(ring), setup_flags_(setup_flags), system_calls_(system_calls) {}
  [[nodiscard]] Status use_event();
  [[nodiscard]] int wait_for_event(Duration timeout) noexcept;

  io_uring ring_;
  Socket event_;  // tells of completions; only with wait_on_event
  unsigned setup_flags_;
  bool registered_ = false;
  Counter& system_calls_;
};

}  // namespace linkspan
