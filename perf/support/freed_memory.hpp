// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A heap that keeps what was freed, as the heaps of services do.
#pragma once

#include <malloc.h>

#include "perf/support/server.h"

namespace linkspan::perf {

/// From now on free() keeps memory, for the next chunk: otherwise glibc may map and unmap it for each, and a
/// program that copies then waits for new pages more than for anything else.
inline void keep_freed_memory() {
  constexpr int kLargestThreshold = 32 << 20;  // that glibc accepts
  const bool kept = mallopt(M_MMAP_THRESHOLD, kLargestThreshold) == 1 && mallopt(M_TRIM_THRESHOLD, -1) == 1;
  server_require(kept, "mallopt");
}

}  // namespace linkspan::perf
