// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/base/version.hpp"

#include <doctest/doctest.h>

// That the numbers equal the project's version is checked by tests/tidy, which reads both files.
TEST_CASE("a later version has a larger number, whatever its parts are") {
  CHECK(LINKSPAN_VERSION / 10000 == LINKSPAN_VERSION_MAJOR);
  CHECK(LINKSPAN_VERSION / 100 % 100 == LINKSPAN_VERSION_MINOR);
  CHECK(LINKSPAN_VERSION % 100 == LINKSPAN_VERSION_PATCH);
}
