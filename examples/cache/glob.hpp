// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Patterns of KEYS, SCAN and CONFIG GET: * ? [a-z] [^x] and \\ as Redis has them.
#pragma once

#include <string_view>

namespace linkspan::cache {

/// At most a number of steps that is proportional to the product of the sizes.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text, bool ignore_case = false);

}  // namespace linkspan::cache
