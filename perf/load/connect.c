// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Connections that come and go: each sends one message, waits for its first byte to come back, and closes.
// The latency is from the moment when the connection is there for the client, which is before the server has
// accepted it.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/load/load.h"

struct connection {
  int socket;
  uint64_t connected_ns;
};

static int epoll;
static unsigned made;

static void open_one(const struct options* options, struct connection* connection, const char* message) {
  // From 200 addresses in turn, so that ports last.
  connection->socket = connect_to(options->endpoint, 1 + made++ % 200);
  connection->connected_ns = now_ns();
  require(send(connection->socket, message, options->bytes, MSG_NOSIGNAL) == (ssize_t)options->bytes, "send");
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
  require(epoll_ctl(epoll, EPOLL_CTL_ADD, connection->socket, &event) == 0, "epoll_ctl");
}

int run_connect(const struct options* options) {
  static struct histogram latencies;
  const char* message = make_pattern(options->bytes);
  struct connection* connections = calloc((size_t)options->connections, sizeof(*connections));
  epoll = epoll_create1(EPOLL_CLOEXEC);
  require(connections != NULL && epoll >= 0, "memory");
  for (int i = 0; i < options->connections; ++i) open_one(options, &connections[i], message);

  uint64_t completed = 0;
  uint64_t cpu = 0;
  uint64_t now = now_ns();
  uint64_t started = options->messages != 0 ? now : 0;  // a number of messages is measured from the first on
  const uint64_t begin = now + (uint64_t)(options->warm_up * 1e9);
  const uint64_t end = begin + (uint64_t)(options->seconds * 1e9);
  while (options->messages != 0 ? completed < options->messages : now < end) {
    struct epoll_event events[64];
    const int count = epoll_wait(epoll, events, 64, 100);
    for (int i = 0; i < count; ++i) {
      struct connection* connection = events[i].data.ptr;
      char buffer[4096];
      const ssize_t received = recv(connection->socket, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (received < 0 && errno == EAGAIN) continue;
      require(received > 0, "recv");
      require(memcmp(buffer, message, (size_t)received) == 0, "what came back differs from what was sent");
      histogram_add(&latencies, now_ns() - connection->connected_ns);
      ++completed;
      close(connection->socket);
      open_one(options, connection, message);
    }
    now = now_ns();
    if (started == 0 && now >= begin) {
      started = now;
      completed = 0;
      memset(&latencies, 0, sizeof(latencies));
      cpu = cpu_ns(options->server);
    }
  }
  cpu = cpu_ns(options->server) - cpu;
  printf("{\"requests\": %llu, \"seconds\": %.9f, \"cpu_ns\": %llu, ", (unsigned long long)completed,
         (double)(now - started) / 1e9, (unsigned long long)cpu);
  histogram_print(&latencies);
  printf(", \"congestion_control\": \"%s\"}\n", congestion_control(connections[0].socket));
  return 0;
}
