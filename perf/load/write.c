// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Sends a block of 256 MiB again and again, in calls of the message's size, to a server that takes it.
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/load/load.h"
#include "perf/support/stream_bytes.h"

enum { kBlockBytes = 256 << 20 };

int run_write(const struct options* options) {
  void* memory = mmap(NULL, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "mmap");
  stream_fill(memory, kBlockBytes);
  const int socket = connect_to(options->endpoint, 0);
  uint64_t bytes = 0;
  uint64_t bytes_before = 0;
  uint64_t cpu = 0;
  uint64_t own_cpu = 0;
  uint64_t started = 0;
  uint64_t now = now_ns();
  const uint64_t begin = now + (uint64_t)(options->warm_up * 1e9);
  const uint64_t end = begin + (uint64_t)(options->seconds * 1e9);
  size_t offset = 0;
  while (now < end) {
    const size_t left = kBlockBytes - offset;
    const ssize_t sent =
        send(socket, (char*)memory + offset, left < options->bytes ? left : options->bytes, 0);
    require(sent > 0, "send");
    bytes += (uint64_t)sent;
    offset = (offset + (size_t)sent) % kBlockBytes;
    now = now_ns();
    if (started == 0 && now >= begin) {
      started = now;
      bytes_before = bytes;
      cpu = cpu_ns(options->server);
      own_cpu = cpu_ns(getpid());
    }
  }
  cpu = cpu_ns(options->server) - cpu;
  own_cpu = cpu_ns(getpid()) - own_cpu;
  printf("{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_ns\": %llu, \"client_cpu_ns\": %llu}\n",
         (unsigned long long)(bytes - bytes_before), (double)(now - started) / 1e9, (unsigned long long)cpu,
         (unsigned long long)own_cpu);
  return 0;
}
