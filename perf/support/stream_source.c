// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "perf/support/stream_source.h"

#include <stdint.h>
#include <sys/mman.h>

#include "perf/support/server.h"
#include "perf/support/stream_bytes.h"

enum { kMemoryBytes = 256 << 20 };

static unsigned* straight_order(size_t pieces) {
  unsigned* order = malloc(pieces * sizeof(*order));
  server_require(order != NULL, "malloc");
  for (size_t i = 0; i < pieces; ++i) order[i] = (unsigned)i;
  return order;
}

// The same for every server: a mixed order, from a generator of its own.
static unsigned* mixed_order(size_t pieces) {
  unsigned* order = straight_order(pieces);
  uint64_t state = 1;
  for (size_t i = 0; i < pieces; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const size_t other = (size_t)(state >> 33) % (i + 1);
    order[i] = order[other];
    order[other] = (unsigned)i;
  }
  return order;
}

void stream_source_open(struct stream_source* source, int argc, char** argv) {
  const char* kind = server_option(argc, argv, "source", "hot");
  source->bytes = strtoul(server_option(argc, argv, "bytes", "65536"), NULL, 10);
  source->slices = (unsigned)strtoul(server_option(argc, argv, "slices", "1"), NULL, 10);
  source->copy = server_option_set(argc, argv, "copy");
  source->file = -1;
  source->order = NULL;
  source->next = 0;
  const int is_file = strcmp(kind, "file") == 0;
  const int is_block = strcmp(kind, "block") == 0;
  const int is_cold = is_block || strcmp(kind, "cold") == 0;
  const int fits = source->slices >= 1 && source->slices <= kSlicesMost && source->bytes > 0 &&
                   source->bytes % ((size_t)source->slices * kStreamPeriod) == 0 &&
                   kMemoryBytes % source->bytes == 0;
  if (!fits || (!is_file && !is_cold && strcmp(kind, "hot") != 0)) {
    fprintf(stderr, "%s: no such messages\n", argv[0]);
    exit(2);
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  source->memory_bytes = is_file || is_cold ? kMemoryBytes : source->bytes;
  if (is_file) {
    flags = MAP_SHARED;
    source->file = memfd_create("stream", MFD_CLOEXEC);
    server_require(source->file >= 0 && ftruncate(source->file, kMemoryBytes) == 0, "memfd_create");
  }
  void* memory = mmap(NULL, source->memory_bytes, PROT_READ | PROT_WRITE, flags, source->file, 0);
  server_require(memory != MAP_FAILED, "mmap");
  source->memory = memory;
  stream_fill(memory, source->memory_bytes);
  if (!is_cold) return;
  const size_t pieces = source->memory_bytes / (source->bytes / source->slices);
  source->order = is_block ? straight_order(pieces) : mixed_order(pieces);
}

void stream_source_slices(struct stream_source* source, struct iovec* slices) {
  const size_t bytes = source->bytes / source->slices;
  const size_t pieces = source->memory_bytes / bytes;
  for (unsigned i = 0; i < source->slices; ++i) {
    const size_t piece = source->order != NULL ? source->order[source->next] : i;
    source->next = (source->next + 1) % pieces;
    slices[i] = (struct iovec){source->memory + piece * bytes, bytes};
  }
}

size_t stream_source_offset(struct stream_source* source) {
  const size_t offset = source->next;
  source->next = (offset + source->bytes) % source->memory_bytes;
  return offset;
}
