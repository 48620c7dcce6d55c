// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Socket: an open descriptor with one owner, on its way to a stream: accepted by a listener, or made
// elsewhere.
// Not for: input and output; give it to Transport::open.
// Cost: an int.
// Threads: a value; it may be handed to another thread.
#pragma once

#include <utility>

#include "linkspan/base/export.hpp"

namespace linkspan {

class LINKSPAN_API Socket {
 public:
  Socket() noexcept = default;
  /// Takes over an open descriptor.
  explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  /// Closes the descriptor.
  ~Socket();

  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// The descriptor, which is the caller's to close from now on.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

}  // namespace linkspan
