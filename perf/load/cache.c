// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Gets and sets of a cache, in Redis's protocol or memcached's: all keys in turn, each with a value of the
// same size. What is got was set before.
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/load/load.h"

enum { kFewBytes = 8 << 20, kMostKeys = 1000, kExtraBytes = 128 };

struct text {
  char* bytes;
  size_t size;
};

// Copies of a message for each key, and then from the front again.
struct messages {
  char* bytes;
  size_t each;
  size_t period;
};

static size_t put(struct text* to, const char* bytes, size_t size) {
  memcpy(to->bytes + to->size, bytes, size);
  return to->size += size;
}

static void put_text(struct text* to, const char* text) {
  put(to, text, strlen(text));
}

static void write_set(const struct options* options, struct text* to, size_t key, const char* value) {
  char header[kExtraBytes];
  if (options->memcached) {
    snprintf(header, sizeof(header), "set key:%012zu 0 0 %zu\r\n", key, options->bytes);
  } else {
    snprintf(header, sizeof(header), "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012zu\r\n$%zu\r\n", key, options->bytes);
  }
  put_text(to, header);
  put(to, value, options->bytes);
  put_text(to, "\r\n");
}

static void write_get(const struct options* options, struct text* to, size_t key) {
  char header[kExtraBytes];
  const char* format = options->memcached ? "get key:%012zu\r\n" : "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012zu\r\n";
  snprintf(header, sizeof(header), format, key);
  put_text(to, header);
}

static void write_value(const struct options* options, struct text* to, size_t key, const char* value) {
  char header[kExtraBytes];
  if (options->memcached) {
    snprintf(header, sizeof(header), "VALUE key:%012zu 0 %zu\r\n", key, options->bytes);
  } else {
    snprintf(header, sizeof(header), "$%zu\r\n", options->bytes);
  }
  put_text(to, header);
  put(to, value, options->bytes);
  put_text(to, options->memcached ? "\r\nEND\r\n" : "\r\n");
}

enum kind { kSet, kStored, kGet, kValue };

static struct messages make(const struct options* options, size_t keys, enum kind kind, const char* value,
                            size_t behind) {
  const size_t value_bytes = kind == kSet || kind == kValue ? options->bytes : 0;
  struct text all = {malloc(keys * (value_bytes + kExtraBytes) + behind), 0};
  require(all.bytes != NULL, "malloc");
  for (size_t key = 0; key < keys; ++key) {
    switch (kind) {
      case kSet: write_set(options, &all, key, value); break;
      case kStored: put_text(&all, options->memcached ? "STORED\r\n" : "+OK\r\n"); break;
      case kGet: write_get(options, &all, key); break;
      case kValue: write_value(options, &all, key, value); break;
    }
  }
  for (size_t i = 0; i < behind; ++i) all.bytes[all.size + i] = all.bytes[i];
  return (struct messages){all.bytes, all.size / keys, all.size};
}

// Each key once, one after the other.
static void set_all(const struct options* options, size_t keys, const char* value) {
  const struct messages sets = make(options, keys, kSet, value, 0);
  const struct messages stored = make(options, 1, kStored, value, 0);
  const int socket = connect_to(options->endpoint, 0);
  char reply[kExtraBytes];
  for (size_t key = 0; key < keys; ++key) {
    const char* set = sets.bytes + key * sets.each;
    for (size_t sent = 0; sent < sets.each;) {
      const ssize_t size = send(socket, set + sent, sets.each - sent, MSG_NOSIGNAL);
      require(size > 0, "send");
      sent += (size_t)size;
    }
    const ssize_t size = recv(socket, reply, stored.each, MSG_WAITALL);
    require(size == (ssize_t)stored.each && memcmp(reply, stored.bytes, stored.each) == 0, "a set");
  }
  close(socket);
  free(sets.bytes);
  free(stored.bytes);
}

int run_cache(const struct options* options) {
  size_t keys = options->keys;
  if (keys == 0) keys = kFewBytes / options->bytes;
  if (options->keys == 0 && keys > kMostKeys) keys = kMostKeys;
  if (keys == 0) keys = 1;
  const char* value = make_pattern(options->bytes);
  if (!options->sets) set_all(options, keys, value);
  const size_t message_most = (options->sets ? options->bytes : 0) + kExtraBytes;
  const struct messages requests =
      make(options, keys, options->sets ? kSet : kGet, value, (size_t)options->pipeline * message_most);
  const struct messages replies = make(options, keys, options->sets ? kStored : kValue, value, kReceiveBytes);
  const struct exchange exchange = {requests.bytes, requests.each, requests.period,
                                    replies.bytes,  replies.each,  replies.period};
  return run_exchange(options, &exchange);
}
