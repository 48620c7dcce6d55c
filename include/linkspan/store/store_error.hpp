// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Why a store refuses: one code for each limit and each condition. Compare with
// `code == store_errc::no_room`; the limits also equal errc::limit_exceeded, want of memory
// errc::pool_exhausted.
// Not for: options that cannot be used; open() reports those as Error, with a text.
// Cost: std::error_code is 16 bytes.
// Threads: values; the category is immutable.
#pragma once

#include <system_error>

#include "linkspan/base/error.hpp"

namespace linkspan {

enum class store_errc {
  key_too_long = 1,  ///< more than OffHeapMapOptions::max_key_bytes
  value_too_long,    ///< more than OffHeapMapOptions::max_value_bytes
  no_room,           ///< max_bytes are used, and nothing may or can be evicted
  out_of_memory,     ///< max_bytes are not used up, but the system refuses memory
  exists,            ///< put only_absent, and the key is there
  absent,            ///< put only_present or compare_and_set, and the key is not there
  changed,           ///< compare_and_set: the entry has another version
};

[[nodiscard]] LINKSPAN_API const std::error_category& store_error_category() noexcept;

[[nodiscard]] inline std::error_code make_error_code(store_errc code) noexcept {
  return {static_cast<int>(code), store_error_category()};
}

}  // namespace linkspan

template <>
struct std::is_error_code_enum<linkspan::store_errc> : std::true_type {};
