// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Receives what a server sends without being asked, as fast as it comes, in calls of 256 KiB. With --verify
// it compares: byte i of a connection has to be stream_byte(i % 4096), wherever the server takes it from.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/load/load.h"
#include "perf/support/byte_sum.h"
#include "perf/support/stream_bytes.h"

enum { kCallBytes = 256 * 1024 };

struct connection {
  int socket;
  uint64_t offset;
};

static struct byte_sum sum;
static char* buffer;
static char* expected;

static uint64_t receive(const struct options* options, struct connection* connection) {
  const ssize_t received = recv(connection->socket, buffer, kCallBytes, MSG_DONTWAIT);
  if (received < 0 && errno == EAGAIN) return 0;
  require(received > 0, "recv");
  if (options->verify &&
      memcmp(buffer, expected + connection->offset % kStreamPeriod, (size_t)received) != 0) {
    fprintf(stderr, "load: the server has sent something else\n");
    exit(1);
  }
  if (options->summed) byte_sum_add(&sum, buffer, (size_t)received);
  connection->offset += (uint64_t)received;
  return (uint64_t)received;
}

int run_stream(const struct options* options) {
  buffer = malloc(kCallBytes);
  expected = malloc(kCallBytes + kStreamPeriod);
  struct connection* connections = calloc((size_t)options->connections, sizeof(*connections));
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  require(buffer != NULL && expected != NULL && connections != NULL && epoll >= 0, "memory");
  stream_fill(expected, kCallBytes + kStreamPeriod);
  for (int i = 0; i < options->connections; ++i) {
    connections[i].socket = connect_to(options->endpoint, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
    require(epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].socket, &event) == 0, "epoll_ctl");
  }

  // Times and bytes are those between two turns of the loop: nothing is cut.
  uint64_t bytes = 0;
  uint64_t bytes_before = 0;
  uint64_t cpu = 0;
  uint64_t own_cpu = 0;
  uint64_t now = now_ns();
  uint64_t started = options->messages != 0 ? now : 0;  // a number of messages is measured from the first on
  const uint64_t wanted = options->messages * options->bytes;
  const uint64_t begin = now + (uint64_t)(options->warm_up * 1e9);
  const uint64_t end = begin + (uint64_t)(options->seconds * 1e9);
  while (wanted != 0 ? bytes < wanted : now < end) {
    struct epoll_event events[64];
    const int count = epoll_wait(epoll, events, 64, options->busy ? 0 : 100);
    for (int i = 0; i < count; ++i) bytes += receive(options, events[i].data.ptr);
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
  printf(
      "{\"bytes\": %llu, \"seconds\": %.9f, \"cpu_ns\": %llu, \"client_cpu_ns\": %llu, "
      "\"congestion_control\": \"%s\"}\n",
      (unsigned long long)(bytes - bytes_before), (double)(now - started) / 1e9, (unsigned long long)cpu,
      (unsigned long long)own_cpu, congestion_control(connections[0].socket));
  return 0;
}
