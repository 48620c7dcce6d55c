// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of receiving, for the load `write`: one thread that calls recv for 256 KiB until nothing is left,
// and then waits. With --summed it reads every byte.
#include "perf/floor/epoll_serve.h"
#include "perf/support/byte_sum.h"

enum { kCallBytes = 256 * 1024, kCallsInARow = 8 };

struct connection {
  int socket;
  struct byte_sum sum;
};

static char buffer[kCallBytes];
static int summed;

static struct connection* accepted(int socket) {
  struct connection* connection = calloc(1, sizeof(*connection));
  if (connection != NULL) connection->socket = socket;
  return connection;
}

static void receive_many(struct connection* connection) {
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
  summed = server_option_set(argc, argv, "summed");
  server_end_with_parent();
  serve(server_endpoint(argc, argv), EPOLLIN, -1, accepted, receive_many);
}
