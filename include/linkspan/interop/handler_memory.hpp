// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// HandlerMemory: a place of its owner's for what Asio makes of a handler, so that handing one over neither
// allocates nor fails. HandlerAllocator is what such a handler names as its allocator.
// Not for: handlers of which there are several at a time; asio::recycling_allocator is for those.
// Cost: the bytes, for as long as the owner lives; nothing for each handler.
// Threads: the owner's.
#pragma once

#include <cstddef>

namespace linkspan::detail {

/// Has to stay where it is, and alive, until Asio has given the handler back.
template <std::size_t kSize>
struct alignas(std::max_align_t) HandlerMemory {
  std::byte bytes[kSize];
};

template <class T, std::size_t kSize>
class HandlerAllocator {
 public:
  using value_type = T;
  template <class Other>
  struct rebind {
    using other = HandlerAllocator<Other, kSize>;
  };

  explicit HandlerAllocator(HandlerMemory<kSize>& memory) noexcept : memory_(&memory) {}
  template <class Other>
  explicit(false) HandlerAllocator(const HandlerAllocator<Other, kSize>& other) noexcept
      : memory_(other.memory_) {}

  /// The place: Asio asks for one object.
  [[nodiscard]] T* allocate(std::size_t) noexcept {
    static_assert(sizeof(T) <= kSize && alignof(T) <= alignof(HandlerMemory<kSize>));
    return reinterpret_cast<T*>(memory_->bytes);
  }
  void deallocate(T*, std::size_t) noexcept {}

  bool operator==(const HandlerAllocator&) const = default;

 private:
  template <class Other, std::size_t kOtherSize>
  friend class HandlerAllocator;

  HandlerMemory<kSize>* memory_;
};

}  // namespace linkspan::detail
