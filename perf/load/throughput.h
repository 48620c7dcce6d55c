// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Bytes for each second, after a warm-up, and the processor time of both sides meanwhile. Times and bytes are
// those between two calls of throughput_add: nothing is cut.
#ifndef LINKSPAN_PERF_THROUGHPUT_H
#define LINKSPAN_PERF_THROUGHPUT_H

#include <unistd.h>

#include "perf/load/load.h"

struct throughput {
  const struct options* options;
  uint64_t bytes;         // all
  uint64_t bytes_before;  // it was measured
  uint64_t cpu;
  uint64_t own_cpu;
  uint64_t started;  // 0: not yet
  uint64_t now;
  uint64_t next;  // the end of the warm-up, then of everything
};

static inline void throughput_start(struct throughput* of) {
  of->started = of->now;
  of->next = of->now + (uint64_t)(of->options->seconds * 1e9);
  of->bytes_before = of->bytes;
  of->cpu = cpu_ns(of->options->server);
  of->own_cpu = cpu_ns(getpid());
}

static inline struct throughput throughput_begin(const struct options* options) {
  struct throughput of = {.options = options, .now = now_ns()};
  of.next = of.now + (uint64_t)(options->warm_up * 1e9);
  if (options->messages != 0) throughput_start(&of);  // a number of them is measured from the first on
  return of;
}

// What has been moved since the last call. Whether there is more to do.
static inline int throughput_add(struct throughput* of, uint64_t bytes) {
  of->bytes += bytes;
  of->now = now_ns();
  if (of->options->messages != 0) return of->bytes < of->options->messages * of->options->bytes;
  if (of->started != 0) return of->now < of->next;
  if (of->now >= of->next && of->bytes >= of->options->warm_up_bytes) throughput_start(of);
  return 1;
}

// The beginning of a line of JSON.
static inline void throughput_print(const struct throughput* of) {
  printf("{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_ns\": %llu, \"client_cpu_ns\": %llu",
         (unsigned long long)(of->bytes - of->bytes_before), (double)(of->now - of->started) / 1e9,
         (unsigned long long)(cpu_ns(of->options->server) - of->cpu),
         (unsigned long long)(cpu_ns(getpid()) - of->own_cpu));
}

#endif
