// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// mimalloc. Its library takes the place of malloc in this program, too.
#include <mimalloc.h>

#include "perf/support/allocators.hpp"

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  add_allocator_cases<HeapFunctions<mi_malloc, mi_free>>("mimalloc");
  return run(argc, argv);
}
