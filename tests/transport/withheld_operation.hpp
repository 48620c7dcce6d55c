// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// WithheldOperation: a submission to the ring that the kernel does not get to see, until arrive(). Meanwhile
// a test can make its completions up; or a cancel misses it, as one does that hits an operation between two
// states.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <optional>

#include "lib/transport/uring/uring_transport.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {

class WithheldOperation {
 public:
  /// The newest entry that `world`'s transport has filled in, or fills in when its sockets are serviced.
  explicit WithheldOperation(World& world)
      : world_(world), ring_(static_cast<UringTransport&>(world.transport()).ring()) {
    world_.transport().prepare();
    // Entries are filled in one after the other: it is the one before the next.
    io_uring_sqe& next = ring_.next_entry();
    io_uring_sqe& withheld = *(&next - 1);
    entry_ = std::make_unique<io_uring_sqe>(withheld);
    descriptor_ = Socket(::fcntl(entry_->fd, F_DUPFD_CLOEXEC, 0));  // the original may be closed meanwhile
    entry_->fd = descriptor_.descriptor();
    for (io_uring_sqe* entry : {&next, &withheld}) {
      io_uring_prep_nop(entry);
      entry->user_data = in_its_place_.key(0);
    }
  }
  WithheldOperation(const WithheldOperation&) = delete;
  WithheldOperation& operator=(const WithheldOperation&) = delete;

  [[nodiscard]] int operation() const { return entry_->opcode; }
  [[nodiscard]] int descriptor() const { return descriptor_.descriptor(); }

  /// Its target is told what the test says.
  void complete(int result, unsigned flags = 0) {
    constexpr std::uint64_t kMask = CompletionTarget::kOperationMask;
    auto* target =
        reinterpret_cast<CompletionTarget*>(static_cast<std::uintptr_t>(entry_->user_data & ~kMask));
    target->on_completion(static_cast<unsigned>(entry_->user_data & kMask), result, flags);
  }
  /// The kernel gets it after all.
  void arrive() { ring_.next_entry() = *entry_; }
  /// The kernel has it, or had it until now: it is cancelled.
  [[nodiscard]] bool in_kernel() {
    Answer answer;
    io_uring_sqe& entry = ring_.next_entry();
    io_uring_prep_cancel64(&entry, entry_->user_data, 0);
    entry.user_data = answer.key(0);
    world_.run_until([&] { return answer.result.has_value(); });
    return answer.result != -ENOENT;
  }

 private:
  struct Answer final : CompletionTarget {
    void on_completion(unsigned, int completion, unsigned) override { result = completion; }
    std::optional<int> result;
  };

  World& world_;
  Ring& ring_;
  Answer in_its_place_;
  std::unique_ptr<io_uring_sqe> entry_;
  Socket descriptor_;
};

/// The only stream that a tick serves sends past the ring. This one is served as well, before the one that is
/// written to next.
inline void serve_another(World& world) {
  Connection& other = world.open();
  world.settle();
  other.stream.start_read();
  other.stream.pause_read();
}

}  // namespace linkspan::conformance
