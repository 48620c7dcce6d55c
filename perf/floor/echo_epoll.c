// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of epoll: an echo server of one thread, level-triggered, written for nothing else. It has what a
// correct server needs (partial sends wait for EPOLLOUT, and the peer is not read from meanwhile) and no
// more.
#include "perf/floor/epoll_serve.h"

enum { kBufferBytes = 64 * 1024 };

struct connection {
  int socket;
  char* unsent;  // what the socket did not take, or NULL
  size_t unsent_offset;
  size_t unsent_size;
};

static char buffer[kBufferBytes];

static struct connection* accepted(int socket) {
  struct connection* connection = calloc(1, sizeof(*connection));
  if (connection != NULL) connection->socket = socket;
  return connection;
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
  serve_watch(connection, connection->socket, EPOLL_CTL_MOD, EPOLLOUT);
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
  serve_watch(connection, connection->socket, EPOLL_CTL_MOD, EPOLLIN);
}

static void ready(struct connection* connection) {
  if (connection->unsent != NULL) {
    send_rest(connection);
  } else {
    echo(connection);
  }
}

int main(int argc, char** argv) {
  server_end_with_parent();
  server_allow_descriptors();
  const int wait_ms = server_option_set(argc, argv, "busy-poll") ? 0 : -1;
  serve(server_endpoint(argc, argv), EPOLLIN, wait_ms, accepted, ready);
}
