// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// The main() of every test program; the test cases come from the room's own files.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
