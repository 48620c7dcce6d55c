// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the senders of the benchmark `stream` send: a period of 4096 bytes, so that it is the same whichever
// pages of a memory or a file they take.
#ifndef LINKSPAN_PERF_STREAM_BYTES_H
#define LINKSPAN_PERF_STREAM_BYTES_H

#include <stddef.h>
#include <string.h>

enum { kStreamPeriod = 4096 };

static inline void stream_fill(char* memory, size_t bytes) {
  const size_t period = kStreamPeriod;
  const size_t first = bytes < period ? bytes : period;
  for (size_t i = 0; i < first; ++i) memory[i] = i * 7 + (i >> 8) * 3;
  for (size_t at = first; at < bytes; at += period) {
    memcpy(memory + at, memory, bytes - at < period ? bytes - at : period);
  }
}

#endif
