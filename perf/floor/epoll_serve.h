// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the floors on epoll have in common: one thread, level-triggered, that accepts connections and calls a
// function for each that is ready. One program includes it once.
#ifndef LINKSPAN_PERF_EPOLL_SERVE_H
#define LINKSPAN_PERF_EPOLL_SERVE_H

#include <errno.h>
#include <sys/epoll.h>

#include "perf/support/server.h"

enum { kServeEvents = 256 };

struct connection;  // the program's

static int serve_epoll;

static inline void serve_watch(struct connection* connection, int socket, int operation, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = connection};
  server_require(epoll_ctl(serve_epoll, operation, socket, &event) == 0, "epoll_ctl");
}

// Serves until the process ends. `accepted` makes a connection of a socket, which waits for `events` at
// first; `ready` may close and free it. `wait_ms` is epoll_wait's.
static inline void serve(const char* endpoint, uint32_t events, int wait_ms,
                         struct connection* (*accepted)(int socket), void (*ready)(struct connection*)) {
  const int listener = server_listen(endpoint, SOCK_NONBLOCK);
  serve_epoll = epoll_create1(EPOLL_CLOEXEC);
  server_require(serve_epoll >= 0, "epoll_create1");
  serve_watch(NULL, listener, EPOLL_CTL_ADD, EPOLLIN);
  server_ready(listener);
  for (;;) {
    struct epoll_event found[kServeEvents];
    const int count = epoll_wait(serve_epoll, found, kServeEvents, wait_ms);
    for (int i = 0; i < count; ++i) {
      if (found[i].data.ptr != NULL) {
        ready(found[i].data.ptr);
        continue;
      }
      const int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) continue;
      struct connection* connection = accepted(socket);
      server_require(connection != NULL, "memory for a connection");
      serve_watch(connection, socket, EPOLL_CTL_ADD, events);
    }
  }
}

#endif
