// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Sends a block of 256 MiB again and again, in calls of the message's size, to a server that takes it.
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "perf/load/throughput.h"
#include "perf/support/stream_bytes.h"

enum { kBlockBytes = 256 << 20 };

int run_write(const struct options* options) {
  void* memory = mmap(NULL, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "mmap");
  stream_fill(memory, kBlockBytes);
  const int socket = connect_to(options->endpoint, 0);
  struct throughput throughput = throughput_begin(options);
  size_t offset = 0;
  ssize_t sent = 0;
  do {
    const size_t left = kBlockBytes - offset;
    sent = send(socket, (char*)memory + offset, left < options->bytes ? left : options->bytes, 0);
    require(sent > 0, "send");
    offset = (offset + (size_t)sent) % kBlockBytes;
  } while (throughput_add(&throughput, (uint64_t)sent));
  throughput_print(&throughput);
  printf("}\n");
  return 0;
}
