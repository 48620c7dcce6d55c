// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the senders of the benchmark `stream` send: a period of 4096 bytes, so that it is the same whichever
// pages of a memory or a file they take.
#ifndef LINKSPAN_PERF_STREAM_BYTES_H
#define LINKSPAN_PERF_STREAM_BYTES_H

#include <stddef.h>

enum { kStreamPeriod = 4096 };

static inline void stream_fill(char* memory, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    const size_t at = i % kStreamPeriod;
    memory[i] = (char)(at * 7 + (at >> 8) * 3);
  }
}

#endif
