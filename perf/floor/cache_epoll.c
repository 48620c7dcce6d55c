// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The floor of the benchmark `cache`: GET and SET of Redis's protocol and nothing else of it, on epoll, in
// one thread. A value is kept as the reply that it will be, so that a GET finds one key and sends one piece
// of memory; small replies are gathered by copying, large values are received to where they stay.
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "perf/floor/epoll_serve.h"

enum {
  kInputBytes = 64 * 1024,
  kOutputBytes = 64 * 1024,
  kCopiedBytes = 4 * 1024,  // of a reply: larger ones are sent from where they are
  kKeyBytes = 1024,
  kValueBytes = 64 << 20,
  kBuckets = 1 << 20,
  kPage = 4096,
};

struct value {
  unsigned references;
  char* memory;
  size_t size;
  char* reply;  // in it, of `size` bytes: $N\r\n, N bytes, \r\n; the N begin at a page when they are many
};

struct entry {
  struct entry* next;
  struct value* value;
  size_t size;
  char key[];
};

struct connection {
  int socket;
  int waits_to_write;
  size_t input_size;
  size_t output_begin, output_end;
  struct value* sent;  // after the output, from `sent_offset` on; or NULL
  size_t sent_offset;
  struct entry* received_for;  // gets `received` when its reply is complete from `received_size`; or NULL
  struct value* received;
  size_t received_size;
  char input[kInputBytes];
  char output[kOutputBytes];
};

static struct entry* buckets[kBuckets];

static void drop(struct value* value) {
  if (value == NULL || --value->references > 0) return;
  free(value->memory);
  free(value);
}

// All but the N bytes are there.
static struct value* make_value(size_t bytes) {
  char header[32];
  const size_t header_size = (size_t)snprintf(header, sizeof(header), "$%zu\r\n", bytes);
  struct value* value = malloc(sizeof(*value));
  // The header ends where the page does: what is copied to the socket begins at a page of its own.
  const size_t before = bytes > kCopiedBytes ? kPage : header_size;
  char* memory = before == kPage ? aligned_alloc(kPage, (before + bytes + 2 + kPage - 1) / kPage * kPage)
                                 : malloc(before + bytes + 2);
  server_require(value != NULL && memory != NULL, "memory for a value");
  *value = (struct value){1, memory, header_size + bytes + 2, memory + before - header_size};
  memcpy(value->reply, header, header_size);
  memcpy(memory + before + bytes, "\r\n", 2);
  return value;
}

static struct entry* find(const char* key, size_t size, int make) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (size_t i = 0; i < size; ++i) hash = (hash ^ (unsigned char)key[i]) * 1099511628211u;
  struct entry** at = &buckets[(hash ^ hash >> 32) % kBuckets];
  for (; *at != NULL; at = &(*at)->next) {
    if ((*at)->size == size && memcmp((*at)->key, key, size) == 0) return *at;
  }
  if (!make) return NULL;
  *at = malloc(sizeof(**at) + size);
  server_require(*at != NULL, "memory for a key");
  **at = (struct entry){NULL, NULL, size};
  memcpy((*at)->key, key, size);
  return *at;
}

static void set(struct entry* entry, struct value* value) {
  drop(entry->value);
  entry->value = value;
}

static void close_connection(struct connection* connection) {
  close(connection->socket);
  drop(connection->sent);
  drop(connection->received);
  free(connection);
}

// 1: everything is sent. 0: the socket takes no more. -1: it is closed.
static int flush_output(struct connection* connection) {
  for (;;) {
    struct iovec pieces[2];
    int count = 0;
    const size_t copied = connection->output_end - connection->output_begin;
    if (copied > 0) pieces[count++] = (struct iovec){connection->output + connection->output_begin, copied};
    if (connection->sent != NULL) {
      pieces[count++] = (struct iovec){connection->sent->reply + connection->sent_offset,
                                       connection->sent->size - connection->sent_offset};
    }
    if (count == 0) return 1;
    const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
    const ssize_t sent = sendmsg(connection->socket, &message, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN ? 0 : -1;
    const size_t of_output = (size_t)sent < copied ? (size_t)sent : copied;
    connection->output_begin += of_output;
    if (connection->output_begin == connection->output_end) {
      connection->output_begin = connection->output_end = 0;
    }
    if (connection->sent == NULL) continue;
    connection->sent_offset += (size_t)sent - of_output;
    if (connection->sent_offset < connection->sent->size) continue;
    drop(connection->sent);
    connection->sent = NULL;
  }
}

// There is room for kCopiedBytes.
static void reply(struct connection* connection, const char* bytes, size_t size) {
  memcpy(connection->output + connection->output_end, bytes, size);
  connection->output_end += size;
}

static int reply_value(struct connection* connection, struct value* value) {
  if (value == NULL || value->size <= kCopiedBytes) {
    reply(connection, value == NULL ? "$-1\r\n" : value->reply, value == NULL ? 5 : value->size);
    return 1;
  }
  connection->sent = value;
  ++value->references;
  connection->sent_offset = 0;
  return flush_output(connection);
}

// The number of a line that begins with `mark`, at most `most`: moves `at` behind it. -1: there is more to
// come. -2: that is no such line.
static long number(char** at, const char* end, char mark, long most) {
  char* now = *at;
  if (now == end) return -1;
  if (*now++ != mark) return -2;
  long found = 0;
  for (; now != end && *now >= '0' && *now <= '9'; ++now) {
    found = found * 10 + (*now - '0');
    if (found > most) return -2;
  }
  if (end - now < 2) return -1;
  if (now[0] != '\r' || now[1] != '\n') return -2;
  *at = now + 2;
  return found;
}

// One request from `at` on. 1: it is done, and `at` behind it. 0: there is more to come. -1: it is no
// request. *blocked: its reply is not sent yet.
static int serve_request(struct connection* connection, char** at, int* blocked) {
  char* now = *at;
  char* const end = connection->input + connection->input_size;
  const long words = number(&now, end, '*', 3);
  if (words == -1) return 0;
  const long name_size = words < 2 ? -2 : number(&now, end, '$', 3);
  if (name_size < 0) return name_size == -1 ? 0 : -1;
  if (end - now < name_size + 2) return 0;
  const int is_get = words == 2 && name_size == 3 && memcmp(now, "GET\r\n", 5) == 0;
  const int is_set = words == 3 && name_size == 3 && memcmp(now, "SET\r\n", 5) == 0;
  if (!is_get && !is_set) return -1;
  now += name_size + 2;
  const long key_size = number(&now, end, '$', kKeyBytes);
  if (key_size < 0) return key_size == -1 ? 0 : -1;
  char* const key = now;
  if (end - now < key_size + 2) return 0;
  now += key_size + 2;
  int replied = 1;
  if (is_get) {
    const struct entry* entry = find(key, (size_t)key_size, 0);
    replied = reply_value(connection, entry != NULL ? entry->value : NULL);
  } else {
    const long bytes = number(&now, end, '$', kValueBytes);
    if (bytes < 0) return bytes == -1 ? 0 : -1;
    const size_t whole = (size_t)bytes + 2;
    const size_t here = (size_t)(end - now) < whole ? (size_t)(end - now) : whole;
    if (here < whole && whole <= kCopiedBytes) return 0;
    struct value* value = make_value((size_t)bytes);
    char* const to = value->reply + value->size - whole;
    memcpy(to, now, here);
    now += here;
    struct entry* entry = find(key, (size_t)key_size, 1);
    if (here < whole) {
      connection->received_for = entry;
      connection->received = value;
      connection->received_size = value->size - whole + here;
      *at = now;
      return 1;
    }
    set(entry, value);
    reply(connection, "+OK\r\n", 5);
  }
  if (replied < 0) return -1;
  *blocked = replied == 0;
  *at = now;
  return 1;
}

// Everything that is there, and the replies. -1: the connection has to be closed.
static int serve_input(struct connection* connection) {
  char* at = connection->input;
  int found = 1;
  int blocked = 0;
  while (found == 1 && !blocked && connection->received == NULL) {
    if (connection->output_end + kCopiedBytes > kOutputBytes) {
      const int flushed = flush_output(connection);
      if (flushed < 0) return -1;
      blocked = flushed == 0;
    }
    if (!blocked) found = serve_request(connection, &at, &blocked);
  }
  if (found < 0) return -1;
  connection->input_size -= (size_t)(at - connection->input);
  memmove(connection->input, at, connection->input_size);
  const int flushed = blocked ? 0 : flush_output(connection);
  if (flushed < 0) return -1;
  if (connection->waits_to_write != !flushed) {
    connection->waits_to_write = !flushed;
    serve_watch(connection, connection->socket, EPOLL_CTL_MOD, flushed ? EPOLLIN : EPOLLOUT);
  }
  return 0;
}

static int receive(struct connection* connection) {
  struct value* const value = connection->received;
  char* const to =
      value != NULL ? value->reply + connection->received_size : connection->input + connection->input_size;
  const size_t room =
      value != NULL ? value->size - connection->received_size : kInputBytes - connection->input_size;
  const ssize_t size = recv(connection->socket, to, room, 0);
  if (size < 0 && errno == EAGAIN) return 0;
  if (size <= 0) return -1;
  if (value == NULL) {
    connection->input_size += (size_t)size;
    return serve_input(connection);
  }
  connection->received_size += (size_t)size;
  if (connection->received_size < value->size) return 0;
  connection->received = NULL;
  set(connection->received_for, value);
  reply(connection, "+OK\r\n", 5);
  return serve_input(connection);
}

static void ready(struct connection* connection) {
  int result = 0;
  if (connection->waits_to_write) {
    result = flush_output(connection);
    if (result == 1) result = serve_input(connection);
  } else {
    result = receive(connection);
  }
  if (result < 0) close_connection(connection);
}

static struct connection* accepted(int socket) {
  struct connection* connection = malloc(sizeof(*connection));
  if (connection == NULL) return NULL;
  memset(connection, 0, offsetof(struct connection, input));
  connection->socket = socket;
  return connection;
}

int main(int argc, char** argv) {
  server_end_with_parent();
  server_allow_descriptors();
  serve(server_endpoint(argc, argv), EPOLLIN, -1, accepted, ready);
}
