// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Socket: an open descriptor with one owner, on its way to a stream: accepted by a listener, or made
// elsewhere. Descriptors that travel over unix sockets come in it too, whatever they are open on.
// Not for: input and output; give it to Transport::open, or what it release()s to adopt_file.
// Cost: 16 bytes.
// Threads: a value; it may be handed to another thread.
#pragma once

#include <utility>

#include "linkspan/base/export.hpp"

namespace linkspan {

/// Where the descriptors of sockets that are not the kernel's live, such as those of a simulated network.
class LINKSPAN_API SocketSpace {
 public:
  virtual ~SocketSpace();
  virtual void close_socket(int descriptor) noexcept = 0;
};

class LINKSPAN_API Socket {
 public:
  Socket() noexcept = default;
  /// Takes over an open descriptor of `space`, or of the kernel.
  explicit Socket(int descriptor, SocketSpace* space = nullptr) noexcept
      : descriptor_(descriptor), space_(space) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()), space_(other.space_) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(space_, other.space_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(); }

  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// nullptr: the kernel.
  [[nodiscard]] SocketSpace* space() const noexcept { return space_; }
  /// Closes the descriptor; again: no effect.
  void close() noexcept;
  /// The descriptor, which is the caller's to close from now on.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
  SocketSpace* space_ = nullptr;  // outlives this
};

}  // namespace linkspan
