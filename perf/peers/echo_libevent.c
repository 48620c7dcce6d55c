// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An echo server on libevent, as its book has it: bufferevents, and evbuffer_add_buffer, which moves the
// bytes from input to output without a copy.
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "perf/support/server.h"

static void on_read(struct bufferevent* connection, void* context) {
  (void)context;
  evbuffer_add_buffer(bufferevent_get_output(connection), bufferevent_get_input(connection));
}

static void on_event(struct bufferevent* connection, short events, void* context) {
  (void)context;
  if ((events & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) != 0) bufferevent_free(connection);
}

static void on_accept(struct evconnlistener* listener, evutil_socket_t socket, struct sockaddr* address,
                      int size, void* context) {
  (void)address;
  (void)size;
  (void)context;
  struct event_base* base = evconnlistener_get_base(listener);
  struct bufferevent* connection = bufferevent_socket_new(base, socket, BEV_OPT_CLOSE_ON_FREE);
  server_require(connection != NULL, "bufferevent_socket_new");
  bufferevent_setcb(connection, on_read, NULL, on_event, NULL);
  bufferevent_enable(connection, EV_READ | EV_WRITE);
}

int main(int argc, char** argv) {
  const char* endpoint = server_endpoint(argc, argv);
  server_end_with_parent();
  server_allow_descriptors();
  const int socket = server_listen(endpoint, SOCK_NONBLOCK);
  struct event_base* base = event_base_new();
  server_require(base != NULL, "event_base_new");
  struct evconnlistener* listener =
      evconnlistener_new(base, on_accept, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, socket);
  server_require(listener != NULL, "evconnlistener_new");
  server_ready(socket);
  return event_base_dispatch(base);
}
