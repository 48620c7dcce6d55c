// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of streaming on io_uring: a send of one slice, or a sendmsg of several, in flight on each
// connection, the next one when it has completed. DEFER_TASKRUN. It has no file ranges: the ring has no
// sendfile.
#include <errno.h>
#include <liburing.h>

#include "perf/support/server.h"
#include "perf/support/stream_source.h"

enum { kEntries = 256, kAccept = 0, kEnd = 1 };  // other user data is a connection

struct connection {
  int socket;
  struct msghdr message;
  struct iovec slices[kSlicesMost];
};

static struct stream_source source;
static struct io_uring ring;

static struct io_uring_sqe* entry(void) {
  struct io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  server_require(sqe != NULL, "no entry");
  return sqe;
}

static void submit_rest(struct connection* connection) {
  struct io_uring_sqe* sqe = entry();
  const struct iovec* first = connection->message.msg_iov;
  const int flags = MSG_NOSIGNAL | MSG_WAITALL;
  if (connection->message.msg_iovlen == 1) {
    io_uring_prep_send(sqe, connection->socket, first->iov_base, first->iov_len, flags);
  } else {
    io_uring_prep_sendmsg(sqe, connection->socket, &connection->message, (unsigned)flags);
  }
  io_uring_sqe_set_data(sqe, connection);
}

static void send_message(struct connection* connection) {
  stream_source_slices(&source, connection->slices);
  connection->message.msg_iov = connection->slices;
  connection->message.msg_iovlen = source.slices;
  submit_rest(connection);
}

static void sent(struct connection* connection, int result) {
  if (result <= 0) {
    close(connection->socket);
    free(connection);
    return;
  }
  size_t bytes = (size_t)result;
  struct msghdr* message = &connection->message;
  while (message->msg_iovlen > 0 && bytes >= message->msg_iov->iov_len) {
    bytes -= message->msg_iov->iov_len;
    ++message->msg_iov;
    --message->msg_iovlen;
  }
  if (message->msg_iovlen == 0) {
    send_message(connection);
    return;
  }
  message->msg_iov->iov_base = (char*)message->msg_iov->iov_base + bytes;
  message->msg_iov->iov_len -= bytes;
  submit_rest(connection);
}

static void accept_many(int listener) {
  struct io_uring_sqe* sqe = entry();
  io_uring_prep_multishot_accept(sqe, listener, NULL, NULL, SOCK_CLOEXEC);
  sqe->user_data = kAccept;
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  server_allow_descriptors();
  stream_source_open(&source, argc, argv);
  server_require(source.file < 0 && !source.copy, "sends memory as it is");
  const int listener = server_listen(endpoint, 0);
  struct io_uring_params parameters = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
  errno = -io_uring_queue_init_params(kEntries, &ring, &parameters);
  server_require(errno == 0, "io_uring");
  io_uring_register_ring_fd(&ring);
  accept_many(listener);
  struct io_uring_sqe* input = entry();
  io_uring_prep_poll_add(input, STDIN_FILENO, POLLHUP);
  input->user_data = kEnd;
  io_uring_submit(&ring);
  server_ready(listener);
  for (;;) {
    io_uring_submit_and_wait(&ring, 1);
    unsigned head = 0;
    unsigned count = 0;
    struct io_uring_cqe* cqe = NULL;
    io_uring_for_each_cqe(&ring, head, cqe) {
      ++count;
      if (cqe->user_data == kEnd) {
        if (cqe->res > 0) exit(0);
      } else if (cqe->user_data != kAccept) {
        sent(io_uring_cqe_get_data(cqe), cqe->res);
      } else {
        if ((cqe->flags & IORING_CQE_F_MORE) == 0) accept_many(listener);
        if (cqe->res < 0) continue;
        struct connection* connection = calloc(1, sizeof(*connection));
        server_require(connection != NULL, "calloc");
        connection->socket = cqe->res;
        send_message(connection);
      }
    }
    io_uring_cq_advance(&ring, count);
  }
}
