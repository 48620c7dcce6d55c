// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of receiving, for the load `write`: one thread that calls recv for 256 KiB until nothing is left,
// and then waits. With --summed it reads every byte.
#include <errno.h>
#include <sys/epoll.h>

#include "perf/support/byte_sum.h"
#include "perf/support/server.h"

enum { kEvents = 64, kCallBytes = 256 * 1024, kCallsInARow = 8 };

struct connection {
  int socket;
  struct byte_sum sum;
};

static char buffer[kCallBytes];

static void receive_many(struct connection* connection, int summed) {
  for (int i = 0; i < kCallsInARow; ++i) {
    const ssize_t received = recv(connection->socket, buffer, sizeof(buffer), 0);
    if (received < 0 && errno == EAGAIN) return;
    if (received <= 0) {
      close(connection->socket);
      free(connection);
      return;
    }
    if (summed) byte_sum_add(&connection->sum, buffer, (size_t)received);
  }
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  const int summed = server_option_set(argc, argv, "summed");
  server_end_with_parent();
  const int listener = server_listen(endpoint, SOCK_NONBLOCK);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event accepting = {.events = EPOLLIN, .data.ptr = NULL};
  server_require(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &accepting) == 0, "epoll");
  server_ready(listener);
  for (;;) {
    struct epoll_event events[kEvents];
    const int count = epoll_wait(epoll, events, kEvents, -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr != NULL) {
        receive_many(events[i].data.ptr, summed);
        continue;
      }
      const int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) continue;
      struct connection* connection = calloc(1, sizeof(*connection));
      server_require(connection != NULL, "calloc");
      connection->socket = socket;
      struct epoll_event receiving = {.events = EPOLLIN, .data.ptr = connection};
      server_require(epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &receiving) == 0, "epoll_ctl");
    }
  }
}
