// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Slice: an immutable, shared view of memory that it keeps alive. Copying a Slice shares the memory; moving
// it touches nothing. Where the memory comes from has one spelling each: copy, adopt, borrow, immortal (and
// map_file in mapped_file.hpp).
// Not for: memory that somebody still writes to; that is a Block (block.hpp).
// Cost: 24 bytes. A copy is one atomic increment, a release one atomic decrement, or a plain load for the
// last owner. A small slice keeps the whole block behind it alive.
// Threads: a Slice is a value, for one thread at a time; slices of one memory may live on different threads.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/base/assert.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/buffer/storage.hpp"

namespace linkspan {

namespace detail {

// Inside a catch block.
LINKSPAN_API void completion_threw() noexcept;

// Calls a function when the memory is released: one allocation holds the count and the function. Whoever
// drops the last slice may be anywhere, a destructor included, so nothing is thrown at it.
template <class F>
struct CallbackStorage final : Storage {
  CallbackStorage(std::span<const std::byte> bytes, F&& function, BufferKind kind)
      : Storage(bytes.data(), bytes.size(), Access::read_only, &run, kind), callback(std::move(function)) {}

  static void run(Storage* self) noexcept {
    const std::unique_ptr<CallbackStorage> storage(static_cast<CallbackStorage*>(self));
    try {
      storage->callback();
    } catch (...) {
      completion_threw();
    }
  }

  F callback;
};

}  // namespace detail

template <class F>
Slice Slice::with_callback(std::span<const std::byte> bytes, F&& callback, BufferKind kind) {
  auto* storage = new detail::CallbackStorage<F>(bytes, std::move(callback), kind);
  return {bytes.data(), bytes.size(), StorageRef(*storage)};
}

}  // namespace linkspan
