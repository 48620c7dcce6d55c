// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// hiredis-client PORT: sets, gets and counts with hiredis, one by one and pipelined, and ends with 0 if all
// replies are right.
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "hiredis-client: %s\n", what);
  exit(1);
}

static redisReply* next_reply(redisContext* context) {
  void* reply = NULL;
  check(redisGetReply(context, &reply) == REDIS_OK, context->errstr);
  return reply;
}

static void expect_status(redisReply* reply, const char* text) {
  check(reply != NULL && reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, text) == 0, text);
  freeReplyObject(reply);
}

static void expect_string(redisReply* reply, const char* bytes, size_t size) {
  check(reply != NULL && reply->type == REDIS_REPLY_STRING && reply->len == size &&
            memcmp(reply->str, bytes, size) == 0,
        "a value is another one");
  freeReplyObject(reply);
}

int main(int argc, char** argv) {
  check(argc == 2, "usage: hiredis-client PORT");
  redisContext* context = redisConnect("127.0.0.1", atoi(argv[1]));
  check(context != NULL && context->err == 0, "no connection");

  const size_t sizes[] = {0, 1, 3000, 100000, (size_t)3 << 20};
  for (size_t i = 0; i != sizeof(sizes) / sizeof(sizes[0]); ++i) {
    char* value = malloc(sizes[i] + 1);
    check(value != NULL, "no memory");
    for (size_t at = 0; at != sizes[i]; ++at) value[at] = (char)(at * 31 + i);
    expect_status(redisCommand(context, "SET value:%d %b", (int)i, value, sizes[i]), "OK");
    expect_string(redisCommand(context, "GET value:%d", (int)i), value, sizes[i]);
    free(value);
  }

  const int count = 10000;
  for (int i = 0; i != count; ++i) {
    redisAppendCommand(context, "SET k:%d %d", i, i);
    redisAppendCommand(context, "GET k:%d", i);
    redisAppendCommand(context, "INCR counter");
  }
  for (int i = 0; i != count; ++i) {
    char text[16];
    const int size = snprintf(text, sizeof(text), "%d", i);
    expect_status(next_reply(context), "OK");
    expect_string(next_reply(context), text, (size_t)size);
    redisReply* number = next_reply(context);
    check(number->type == REDIS_REPLY_INTEGER && number->integer == i + 1, "a count is another one");
    freeReplyObject(number);
  }

  redisReply* reply = redisCommand(context, "MGET k:1 none k:2");
  check(reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
            reply->element[1]->type == REDIS_REPLY_NIL && strcmp(reply->element[2]->str, "2") == 0,
        "MGET");
  freeReplyObject(reply);
  reply = redisCommand(context, "NOSUCH");
  check(reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "ERR unknown command", 19) == 0, "NOSUCH");
  freeReplyObject(reply);
  expect_status(redisCommand(context, "QUIT"), "OK");
  redisFree(context);
  return 0;
}
