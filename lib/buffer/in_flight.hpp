// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// InFlight: checks that nobody changes memory between its way into a queue and its way out. In a build with
// -Dbuffer_debug=true it keeps a hash of each slice; without it, it is empty and does nothing. Mapped files
// are left out: reading one that was truncated raises SIGBUS.
// Owned by whoever owns the queue; for one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linkspan/base/ring_queue.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

#ifdef LINKSPAN_BUFFER_DEBUG

class InFlight {
 public:
  /// `data` goes to the end of the queue that reports are to call `queue` (of stream `number`).
  void add(const Chain& data, const char* queue, int number);
  /// The first `bytes` have left the queue; their memory is still there. Aborts when a slice that has left
  /// it whole has changed.
  void remove(std::size_t bytes) noexcept;

 private:
  struct Part {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    std::size_t hash = 0;
    bool readable = false;
    detail::HolderName holder;
  };

  RingQueue<Part> parts_;
  std::size_t removed_ = 0;  // of the first part
};

#else

class InFlight {
 public:
  void add(const Chain&, const char*, int) noexcept {}
  void remove(std::size_t) noexcept {}
};

#endif

}  // namespace linkspan
