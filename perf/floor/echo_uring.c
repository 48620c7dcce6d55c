// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of io_uring: an echo server of one thread on multishot accept and receive, a ring of buffers, and
// DEFER_TASKRUN; with --registered the sockets live in the ring's file table. What was received is sent from
// the buffer it came in. One send of a connection is in flight at a time, as sends that are not linked may
// overtake each other; a connection whose receive ended because no buffer was free waits for one.
#include <errno.h>
#include <liburing.h>

#include "perf/support/server.h"

enum {
  kEntries = 4096,
  kCompletions = 16384,
  kBuffers = 1024,  // a power of two
  kBufferBytes = 16 * 1024,
  kConnections = 32768,
  kGroup = 0,
};

enum operation { kAccept, kReceive, kSend, kClose, kEnd };

struct connection {
  int first;  // buffers to send, linked by buffers[].next; -1: none
  int last;
  int next_starved;
  unsigned sent;  // of the first
  char sending;
  char receiving;
  char starved;
  char closing;
};

static struct {
  unsigned size;
  int next;
} buffers[kBuffers];

static struct io_uring ring;
static struct io_uring_buf_ring* pool;
static char* memory;
static struct connection* connections;  // by descriptor, or by index in the file table
static int starved_first = -1;
static int free_buffers;
static int registered;
static unsigned char fixed_file;  // IOSQE_FIXED_FILE when registered

static struct io_uring_sqe* entry(void) {
  struct io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  if (sqe == NULL) {
    io_uring_submit(&ring);
    sqe = io_uring_get_sqe(&ring);
  }
  server_require(sqe != NULL, "no entry");
  return sqe;
}

static void name(struct io_uring_sqe* sqe, enum operation operation, int socket) {
  sqe->user_data = (uint64_t)operation << 32 | (uint32_t)socket;
}

static void receive(int socket) {
  struct io_uring_sqe* sqe = entry();
  io_uring_prep_recv_multishot(sqe, socket, NULL, 0, 0);
  name(sqe, kReceive, socket);
  sqe->flags |= IOSQE_BUFFER_SELECT | fixed_file;
  sqe->buf_group = kGroup;
  connections[socket].receiving = 1;
}

static void send_first(int socket) {
  struct connection* connection = &connections[socket];
  const int buffer = connection->first;
  struct io_uring_sqe* sqe = entry();
  io_uring_prep_send(sqe, socket, memory + (size_t)buffer * kBufferBytes + connection->sent,
                     buffers[buffer].size - connection->sent, MSG_NOSIGNAL | MSG_WAITALL);
  name(sqe, kSend, socket);
  sqe->flags |= fixed_file;
  connection->sending = 1;
}

static void close_when_quiet(int socket) {
  struct connection* connection = &connections[socket];
  if (connection->sending || connection->receiving || connection->starved) return;
  struct io_uring_sqe* sqe = entry();
  if (registered) {
    io_uring_prep_close_direct(sqe, (unsigned)socket);
  } else {
    io_uring_prep_close(sqe, socket);
  }
  name(sqe, kClose, socket);
}

static void give_back(int buffer) {
  io_uring_buf_ring_add(pool, memory + (size_t)buffer * kBufferBytes, kBufferBytes, (unsigned short)buffer,
                        io_uring_buf_ring_mask(kBuffers), 0);
  io_uring_buf_ring_advance(pool, 1);
  ++free_buffers;
  if (starved_first < 0) return;
  const int socket = starved_first;
  starved_first = connections[socket].next_starved;
  connections[socket].starved = 0;
  if (connections[socket].closing) {
    close_when_quiet(socket);
  } else {
    receive(socket);
  }
}

static void drop(int socket) {
  struct connection* connection = &connections[socket];
  connection->closing = 1;
  while (connection->first >= 0 && !connection->sending) {
    const int buffer = connection->first;
    connection->first = buffers[buffer].next;
    give_back(buffer);
  }
  close_when_quiet(socket);
}

static void accepted(int socket) {
  server_require(socket < kConnections, "too many connections");
  connections[socket] = (struct connection){.first = -1, .last = -1};
  receive(socket);
}

static void received(int socket, const struct io_uring_cqe* cqe) {
  struct connection* connection = &connections[socket];
  if ((cqe->flags & IORING_CQE_F_MORE) == 0) connection->receiving = 0;
  if (cqe->res > 0) {
    const int buffer = (int)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
    buffers[buffer].size = (unsigned)cqe->res;
    buffers[buffer].next = -1;
    --free_buffers;
    if (connection->first < 0) {
      connection->first = buffer;
    } else {
      buffers[connection->last].next = buffer;
    }
    connection->last = buffer;
    if (!connection->sending) send_first(socket);
    if (!connection->receiving) receive(socket);
  } else if (cqe->res == -ENOBUFS && free_buffers > 0) {
    receive(socket);
  } else if (cqe->res == -ENOBUFS) {
    connection->starved = 1;
    connection->next_starved = starved_first;
    starved_first = socket;
  } else {
    drop(socket);
  }
}

static void sent(int socket, int result) {
  struct connection* connection = &connections[socket];
  connection->sending = 0;
  if (result <= 0 || connection->closing) {
    drop(socket);
    return;
  }
  const int buffer = connection->first;
  connection->sent += (unsigned)result;
  if (connection->sent == buffers[buffer].size) {
    connection->first = buffers[buffer].next;
    connection->sent = 0;
    give_back(buffer);
  }
  if (connection->first >= 0) send_first(socket);
}

static void accept_many(int listener) {
  struct io_uring_sqe* sqe = entry();
  if (registered) {
    io_uring_prep_multishot_accept_direct(sqe, listener, NULL, NULL, 0);
  } else {
    io_uring_prep_multishot_accept(sqe, listener, NULL, NULL, SOCK_CLOEXEC);
  }
  name(sqe, kAccept, listener);
}

// The end of standard input ends this as a completion, too: valgrind holds signals back while a ring waits.
static void watch_input(void) {
  struct io_uring_sqe* sqe = entry();
  io_uring_prep_poll_add(sqe, STDIN_FILENO, POLLHUP);
  name(sqe, kEnd, STDIN_FILENO);
}

static void set_up(void) {
  struct io_uring_params parameters = {
      .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
      .cq_entries = kCompletions};
  int result = io_uring_queue_init_params(kEntries, &ring, &parameters);
  if (result == 0 && registered) result = io_uring_register_files_sparse(&ring, kConnections / 2);
  errno = -result;
  server_require(result == 0, "io_uring");
  io_uring_register_ring_fd(&ring);

  void* place = NULL;
  server_require(posix_memalign(&place, 4096, kBuffers * sizeof(struct io_uring_buf)) == 0,
                 "ring of buffers");
  pool = place;
  struct io_uring_buf_reg registration = {
      .ring_addr = (uint64_t)(uintptr_t)place, .ring_entries = kBuffers, .bgid = kGroup};
  errno = -io_uring_register_buf_ring(&ring, &registration, 0);
  server_require(errno == 0, "ring of buffers");
  io_uring_buf_ring_init(pool);
  memory = malloc((size_t)kBuffers * kBufferBytes);
  connections = calloc(kConnections, sizeof(*connections));
  server_require(memory != NULL && connections != NULL, "memory");
  for (int i = 0; i < kBuffers; ++i) give_back(i);
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  registered = server_option_set(argc, argv, "registered");
  fixed_file = registered ? IOSQE_FIXED_FILE : 0;
  server_end_with_parent();
  server_allow_descriptors();
  const int listener = server_listen(endpoint, 0);
  set_up();
  accept_many(listener);
  watch_input();
  io_uring_submit(&ring);
  server_ready(listener);
  for (;;) {
    io_uring_submit_and_wait(&ring, 1);
    unsigned head = 0;
    unsigned count = 0;
    struct io_uring_cqe* cqe = NULL;
    io_uring_for_each_cqe(&ring, head, cqe) {
      ++count;
      const int socket = (int)(uint32_t)cqe->user_data;
      switch ((enum operation)(cqe->user_data >> 32)) {
        case kAccept:
          if (cqe->res >= 0) accepted(cqe->res);
          if ((cqe->flags & IORING_CQE_F_MORE) == 0) accept_many(listener);
          break;
        case kReceive: received(socket, cqe); break;
        case kSend: sent(socket, cqe->res); break;
        case kClose: break;
        case kEnd:
          if (cqe->res > 0) exit(0);
          break;
      }
    }
    io_uring_cq_advance(&ring, count);
  }
}
