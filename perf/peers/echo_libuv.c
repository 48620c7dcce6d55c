// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An echo server on libuv, as its guide has it: uv_read_start with an allocation a read, uv_write of the same
// memory, which its callback frees.
#include <uv.h>

#include "perf/support/server.h"

typedef struct {
  uv_write_t request;
  uv_buf_t data;
} write_request;

static void allocate(uv_handle_t* handle, size_t suggested_bytes, uv_buf_t* data) {
  (void)handle;
  data->base = malloc(suggested_bytes);
  data->len = data->base != NULL ? suggested_bytes : 0;
}

static void on_close(uv_handle_t* handle) {
  free(handle);
}

static void on_written(uv_write_t* request, int status) {
  (void)status;
  write_request* written = (write_request*)request;
  free(written->data.base);
  free(written);
}

static void on_read(uv_stream_t* client, ssize_t bytes, const uv_buf_t* data) {
  if (bytes > 0) {
    write_request* writing = malloc(sizeof(*writing));
    server_require(writing != NULL, "malloc");
    writing->data = uv_buf_init(data->base, (unsigned)bytes);
    if (uv_write(&writing->request, client, &writing->data, 1, on_written) == 0) return;
    free(writing);
  }
  free(data->base);
  if (bytes < 0) uv_close((uv_handle_t*)client, on_close);
}

static void on_connection(uv_stream_t* server, int status) {
  if (status < 0) return;
  uv_tcp_t* client = malloc(sizeof(*client));
  server_require(client != NULL, "malloc");
  uv_tcp_init(server->loop, client);
  if (uv_accept(server, (uv_stream_t*)client) == 0) {
    uv_tcp_nodelay(client, 1);
    uv_read_start((uv_stream_t*)client, allocate, on_read);
  } else {
    uv_close((uv_handle_t*)client, on_close);
  }
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  server_allow_descriptors();
  const int listener = server_listen(endpoint, SOCK_NONBLOCK);
  uv_loop_t* loop = uv_default_loop();
  uv_tcp_t server;
  uv_tcp_init(loop, &server);
  server_require(uv_tcp_open(&server, listener) == 0, "uv_tcp_open");
  server_require(uv_listen((uv_stream_t*)&server, 1024, on_connection) == 0, "uv_listen");
  server_ready(listener);
  return uv_run(loop, UV_RUN_DEFAULT);
}
