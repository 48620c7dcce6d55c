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

#include "perf/load/throughput.h"
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

  struct throughput throughput = throughput_begin(options);
  uint64_t bytes = 0;
  do {
    struct epoll_event events[64];
    const int count = epoll_wait(epoll, events, 64, options->busy ? 0 : 100);
    bytes = 0;
    for (int i = 0; i < count; ++i) bytes += receive(options, events[i].data.ptr);
  } while (throughput_add(&throughput, bytes));
  throughput_print(&throughput);
  printf(", \"sum\": %llu, \"congestion_control\": \"%s\"}\n", (unsigned long long)sum.total,
         congestion_control(connections[0].socket));
  return 0;
}
