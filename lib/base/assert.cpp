// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace linkspan::detail {

void assertion_failed(const char* condition, const char* rule, const char* file, int line) noexcept {
  std::fprintf(stderr, "linkspan: %s:%d: broken rule: %s (%s)\n", file, line, rule, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace linkspan::detail
