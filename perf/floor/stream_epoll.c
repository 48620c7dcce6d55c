// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of streaming: one thread that calls send for a message of one slice, sendmsg for several, and
// sendfile for a range of a file, until the socket is full, and then waits for it.
#include <sys/sendfile.h>

#include "perf/floor/epoll_serve.h"
#include "perf/support/stream_source.h"

enum { kSendsInARow = 64 };

struct connection {
  int socket;
  size_t unsent;  // bytes of the current message; 0: there is none
  off_t offset;   // of what is unsent of a file's range
  struct iovec* slices;
  unsigned count;
  struct iovec all[kSlicesMost];
  char* copy;  // of a message, when it is copied first
};

static struct stream_source source;

static void begin_message(struct connection* connection) {
  connection->unsent = source.bytes;
  if (source.file >= 0) {
    connection->offset = (off_t)stream_source_offset(&source);
    return;
  }
  stream_source_slices(&source, connection->all);
  connection->slices = connection->all;
  connection->count = source.slices;
  if (!source.copy) return;
  char* to = connection->copy;
  for (unsigned i = 0; i < source.slices; ++i) {
    memcpy(to, connection->all[i].iov_base, connection->all[i].iov_len);
    to += connection->all[i].iov_len;
  }
  connection->all[0] = (struct iovec){connection->copy, source.bytes};
  connection->count = 1;
}

static ssize_t send_some(struct connection* connection) {
  if (source.file >= 0) {
    return sendfile(connection->socket, source.file, &connection->offset, connection->unsent);
  }
  if (connection->count == 1) {
    return send(connection->socket, connection->slices->iov_base, connection->slices->iov_len, MSG_NOSIGNAL);
  }
  struct msghdr message = {.msg_iov = connection->slices, .msg_iovlen = connection->count};
  return sendmsg(connection->socket, &message, MSG_NOSIGNAL);
}

static void sent(struct connection* connection, size_t bytes) {
  connection->unsent -= bytes;
  if (source.file >= 0) return;
  while (bytes > 0 && bytes >= connection->slices->iov_len) {
    bytes -= connection->slices->iov_len;
    ++connection->slices;
    --connection->count;
  }
  if (bytes == 0) return;
  connection->slices->iov_base = (char*)connection->slices->iov_base + bytes;
  connection->slices->iov_len -= bytes;
}

static void send_many(struct connection* connection) {
  for (int i = 0; i < kSendsInARow; ++i) {
    if (connection->unsent == 0) begin_message(connection);
    const ssize_t result = send_some(connection);
    if (result < 0 && errno == EAGAIN) return;
    if (result <= 0) {
      close(connection->socket);
      free(connection->copy);
      free(connection);
      return;
    }
    sent(connection, (size_t)result);
  }
}

static struct connection* accepted(int socket) {
  struct connection* connection = calloc(1, sizeof(*connection));
  if (connection == NULL) return NULL;
  connection->socket = socket;
  connection->copy = source.copy ? malloc(source.bytes) : NULL;
  return connection;
}

int main(int argc, char** argv) {
  server_end_with_parent();
  server_allow_descriptors();
  stream_source_open(&source, argc, argv);
  serve(server_endpoint(argc, argv), EPOLLOUT, -1, accepted, send_many);
}
