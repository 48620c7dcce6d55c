// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// TypeName: identity and name of a message or handler type, for pipelines that check what is joined. Works
// without RTTI and across shared objects.
// Not for: serialising; the spelling is the compiler's.
// Cost: comparing two is comparing two pointers, unless they come from different shared objects.
// Threads: immutable.
#pragma once

#include <string>
#include <string_view>

#include "linkspan/base/export.hpp"

namespace linkspan {

struct TypeName {
  std::string_view raw;  ///< as the compiler spells it

  /// The same type. Types of an anonymous namespace are equal only within one source file.
  [[nodiscard]] LINKSPAN_API static bool same(const TypeName& a, const TypeName& b) noexcept;
  /// For messages: without `linkspan::` and the noise of the standard library.
  [[nodiscard]] LINKSPAN_API std::string to_string() const;
};

namespace detail {

template <class T>
constexpr TypeName type_name() noexcept {
  constexpr std::string_view signature = __PRETTY_FUNCTION__;  // "... [with T = X]" or "... [T = X]"
  constexpr std::size_t begin = signature.find("T = ") + 4;
  return {signature.substr(begin, signature.size() - begin - 1)};
}

}  // namespace detail

template <class T>
inline constexpr TypeName kTypeName = detail::type_name<T>();

}  // namespace linkspan
