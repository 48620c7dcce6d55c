// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// jemalloc, which takes the place of malloc in this program.
#include <jemalloc/jemalloc.h>

#include "perf/support/allocators.hpp"

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  add_allocator_cases<HeapFunctions<malloc, free>>("jemalloc");
  return run(argc, argv);
}
