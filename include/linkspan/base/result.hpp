// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Result<T, E>: a value or the reason why there is none. C++20 has no std::expected.
// Not for: hot paths that have only one way to fail; those return an empty handle.
// Cost: a std::variant.
// Threads: a value.
#pragma once

#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include "linkspan/base/assert.hpp"
#include "linkspan/base/error.hpp"

namespace linkspan {

template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  /// Makes the value in its place, for one that is dear to move.
  template <class... Args>
  explicit Result(std::in_place_t, Args&&... args)
      : state_(std::in_place_index<0>, std::forward<Args>(args)...) {}
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  [[nodiscard]] T& value() & {
    LINKSPAN_ASSERT(ok(), "value() of a Result that holds an error");
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] const T& value() const& {
    LINKSPAN_ASSERT(ok(), "value() of a Result that holds an error");
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] T&& value() && { return std::move(value()); }

  [[nodiscard]] const E& error() const {
    LINKSPAN_ASSERT(!ok(), "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }

  /// The value, or an Exception: the throwing form of every function that returns Result<T, Error>.
  T value_or_throw() && requires std::is_same_v<E, Error> {
    if (!ok()) throw Exception(error());
    return std::move(value());
  }

 private:
  std::variant<T, E> state_;
};

/// Result of an action that yields nothing.
using Status = Result<std::monostate, Error>;

}  // namespace linkspan
