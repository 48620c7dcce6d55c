// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of epoll: an echo server of one thread, level-triggered, written for nothing else. It has what a
// correct server needs (partial sends wait for EPOLLOUT, and the peer is not read from meanwhile) and no
// more.
#include <errno.h>
#include <sys/epoll.h>

#include "perf/support/server.h"

enum { kEvents = 256, kBufferBytes = 64 * 1024 };

struct connection {
  int socket;
  char* unsent;  // what the socket did not take, or NULL
  size_t unsent_offset;
  size_t unsent_size;
};

static int epoll;
static char buffer[kBufferBytes];

static void watch(struct connection* connection, int operation, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = connection};
  server_require(epoll_ctl(epoll, operation, connection->socket, &event) == 0, "epoll_ctl");
}

static void accept_one(int listener) {
  const int socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket < 0) return;
  struct connection* connection = calloc(1, sizeof(*connection));
  server_require(connection != NULL, "calloc");
  connection->socket = socket;
  watch(connection, EPOLL_CTL_ADD, EPOLLIN);
}

static void close_connection(struct connection* connection) {
  close(connection->socket);
  free(connection->unsent);
  free(connection);
}

static void echo(struct connection* connection) {
  const ssize_t received = recv(connection->socket, buffer, sizeof(buffer), 0);
  if (received <= 0) {
    if (received < 0 && errno == EAGAIN) return;
    close_connection(connection);
    return;
  }
  ssize_t sent = send(connection->socket, buffer, (size_t)received, MSG_NOSIGNAL);
  if (sent == received) return;
  if (sent < 0 && errno != EAGAIN) {
    close_connection(connection);
    return;
  }
  if (sent < 0) sent = 0;
  connection->unsent_offset = 0;
  connection->unsent_size = (size_t)(received - sent);
  connection->unsent = malloc(connection->unsent_size);
  server_require(connection->unsent != NULL, "malloc");
  memcpy(connection->unsent, buffer + sent, connection->unsent_size);
  watch(connection, EPOLL_CTL_MOD, EPOLLOUT);
}

static void send_rest(struct connection* connection) {
  const ssize_t sent = send(connection->socket, connection->unsent + connection->unsent_offset,
                            connection->unsent_size, MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno != EAGAIN) close_connection(connection);
    return;
  }
  connection->unsent_offset += (size_t)sent;
  connection->unsent_size -= (size_t)sent;
  if (connection->unsent_size > 0) return;
  free(connection->unsent);
  connection->unsent = NULL;
  watch(connection, EPOLL_CTL_MOD, EPOLLIN);
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  const int wait_ms = server_option_set(argc, argv, "busy-poll") ? 0 : -1;
  server_end_with_parent();
  server_allow_descriptors();
  const int listener = server_listen(endpoint, SOCK_NONBLOCK);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event accepting = {.events = EPOLLIN, .data.ptr = NULL};
  server_require(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &accepting) == 0, "epoll");
  server_ready(listener);
  for (;;) {
    struct epoll_event events[kEvents];
    const int count = epoll_wait(epoll, events, kEvents, wait_ms);
    for (int i = 0; i < count; ++i) {
      struct connection* connection = events[i].data.ptr;
      if (connection == NULL) {
        accept_one(listener);
      } else if (connection->unsent != NULL) {
        send_rest(connection);
      } else {
        echo(connection);
      }
    }
  }
}
