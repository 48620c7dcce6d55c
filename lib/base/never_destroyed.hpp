// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A function's static object that is still there when other static objects are destroyed, and threads end.
#pragma once

#include <cstddef>
#include <new>

namespace linkspan {

template <class T>
class NeverDestroyed {
 public:
  NeverDestroyed() { ::new (static_cast<void*>(memory_)) T; }
  NeverDestroyed(const NeverDestroyed&) = delete;
  NeverDestroyed& operator=(const NeverDestroyed&) = delete;

  [[nodiscard]] T& get() noexcept { return *std::launder(reinterpret_cast<T*>(memory_)); }

 private:
  alignas(T) std::byte memory_[sizeof(T)];
};

}  // namespace linkspan
