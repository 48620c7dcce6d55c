// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// File calls in a ring. Where one would block, the kernel hands it to threads of its own.
#pragma once

#include <sys/stat.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "lib/loop/file_call.hpp"
#include "lib/transport/uring/ring.hpp"
#include "linkspan/base/intrusive_list.hpp"

namespace linkspan {

class UringFiles final : public FileCalls {
 public:
  /// Asks the kernel which of the calls it knows. `ring` has to outlive this, unless nothing is in flight.
  explicit UringFiles(Ring& ring);

  [[nodiscard]] bool knows(FileCall::Kind kind) const noexcept override {
    return known_[static_cast<std::size_t>(kind)];
  }
  void start(FileCall& call) override;
  void finish_all() override;
  [[nodiscard]] bool idle() const noexcept { return in_flight_.empty(); }

 private:
  // What the kernel reads and fills in, besides the call's own.
  struct Slot final : CompletionTarget, ListNode<Slot> {
    explicit Slot(UringFiles& files_in) noexcept : files(files_in) {}
    void on_completion(unsigned operation, int result, unsigned flags) override;

    UringFiles& files;
    FileCall* call = nullptr;
    std::array<iovec, 64> vectors;
    struct statx status;
  };
  // Of cancellations.
  struct Ignored final : CompletionTarget {
    void on_completion(unsigned, int, unsigned) override {}
  };

  void prepare(io_uring_sqe& entry, Slot& slot) noexcept;
  void finish(Slot& slot, int result);

  Ring& ring_;
  std::array<bool, 8> known_{};
  IntrusiveList<Slot, Slot> in_flight_;
  std::vector<std::unique_ptr<Slot>> slots_;
  IntrusiveList<Slot, Slot> free_;
  Ignored ignored_;
};

}  // namespace linkspan
