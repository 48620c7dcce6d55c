// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Requests and their replies: each connection keeps `pipeline` messages in flight, sends another one for each
// that was answered, and compares what comes with what has to. In an echo that is what was sent.
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/load/load.h"

struct connection {
  int socket;
  int waiting_to_send;   // for EPOLLOUT
  uint64_t to_start;     // messages, when their number is given
  uint64_t send_offset;  // in the stream
  uint64_t send_end;     // bytes of all messages that have been started
  uint64_t receive_offset;
  uint64_t completed;
  uint64_t* started_ns;  // of message m: started_ns[m % pipeline]
};

struct worker {
  const struct options* options;
  pthread_t thread;
  int epoll;
  struct connection* connections;
  int count;
  uint64_t unfinished;  // messages, when their number is given
  uint64_t begin_ns;    // of what counts
  uint64_t end_ns;
  uint64_t requests;
  struct histogram latencies;
};

static struct exchange exchange;

static void flush(struct worker* worker, struct connection* connection) {
  while (connection->send_offset < connection->send_end) {
    const size_t size = connection->send_end - connection->send_offset;
    const ssize_t sent =
        send(connection->socket, exchange.requests + connection->send_offset % exchange.request_period, size,
             MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) break;
    require(sent > 0, "send");
    connection->send_offset += (uint64_t)sent;
  }
  const int wait = connection->send_offset < connection->send_end;
  if (wait == connection->waiting_to_send) return;
  connection->waiting_to_send = wait;
  struct epoll_event event = {.events = EPOLLIN | (wait ? EPOLLOUT : 0), .data.ptr = connection};
  require(epoll_ctl(worker->epoll, EPOLL_CTL_MOD, connection->socket, &event) == 0, "epoll_ctl");
}

static void start(struct worker* worker, struct connection* connection, uint64_t count, uint64_t now) {
  const struct options* options = worker->options;
  if (options->messages != 0) {
    if (count > connection->to_start) count = connection->to_start;
    connection->to_start -= count;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t message = connection->send_end / exchange.request_bytes + i;
    connection->started_ns[message % (uint64_t)options->pipeline] = now;
  }
  connection->send_end += count * exchange.request_bytes;
  flush(worker, connection);
}

static void receive(struct worker* worker, struct connection* connection) {
  char buffer[kReceiveBytes];
  const struct options* options = worker->options;
  const ssize_t received = recv(connection->socket, buffer, sizeof(buffer), MSG_DONTWAIT);
  if (received < 0 && errno == EAGAIN) return;
  require(received > 0, "recv");
  if (memcmp(buffer, exchange.replies + connection->receive_offset % exchange.reply_period,
             (size_t)received) != 0) {
    fprintf(stderr, "load: what came back is not what should\n");
    exit(1);
  }
  connection->receive_offset += (uint64_t)received;
  const uint64_t completed = connection->receive_offset / exchange.reply_bytes - connection->completed;
  if (completed == 0) return;
  const uint64_t now = now_ns();
  const int counts = options->messages != 0 || (now >= worker->begin_ns && now < worker->end_ns);
  for (uint64_t i = 0; i < completed; ++i, ++connection->completed) {
    if (!counts) continue;
    const uint64_t slot = connection->completed % (uint64_t)options->pipeline;
    histogram_add(&worker->latencies, now - connection->started_ns[slot]);
    ++worker->requests;
  }
  if (options->messages != 0) worker->unfinished -= completed;
  start(worker, connection, completed, now);
}

static int goes_on(const struct worker* worker) {
  return worker->options->messages != 0 ? worker->unfinished > 0 : now_ns() < worker->end_ns;
}

static void* work(void* context) {
  struct worker* worker = context;
  for (int i = 0; i < worker->count; ++i) {
    start(worker, &worker->connections[i], (uint64_t)worker->options->pipeline, now_ns());
  }
  while (goes_on(worker)) {
    if (worker->options->busy) {  // one system call a look, not two
      for (int i = 0; i < worker->count; ++i) {
        if (worker->connections[i].waiting_to_send) flush(worker, &worker->connections[i]);
        receive(worker, &worker->connections[i]);
      }
      continue;
    }
    struct epoll_event events[256];
    const int count = epoll_wait(worker->epoll, events, 256, 100);
    for (int i = 0; i < count; ++i) {
      struct connection* connection = events[i].data.ptr;
      if ((events[i].events & EPOLLOUT) != 0) flush(worker, connection);
      if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0) receive(worker, connection);
    }
  }
  return NULL;
}

static void open_connections(struct worker* worker) {
  const struct options* options = worker->options;
  worker->epoll = epoll_create1(EPOLL_CLOEXEC);
  worker->connections = calloc((size_t)worker->count, sizeof(*worker->connections));
  require(worker->epoll >= 0 && worker->connections != NULL, "epoll");
  for (int i = 0; i < worker->count; ++i) {
    struct connection* connection = &worker->connections[i];
    connection->started_ns = calloc((size_t)options->pipeline, sizeof(uint64_t));
    require(connection->started_ns != NULL, "calloc");
    connection->socket = connect_to(options->endpoint, 0);
    set_nonblocking(connection->socket);
    connection->to_start = options->messages / (uint64_t)options->connections;
    worker->unfinished += connection->to_start;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    require(epoll_ctl(worker->epoll, EPOLL_CTL_ADD, connection->socket, &event) == 0, "epoll_ctl");
  }
}

int run_echo(const struct options* options) {
  const size_t in_flight = (size_t)options->pipeline * options->bytes;
  const char* pattern = make_pattern(in_flight > kReceiveBytes ? in_flight : kReceiveBytes);
  const struct exchange echo = {pattern, options->bytes, kPatternPeriod,
                                pattern, options->bytes, kPatternPeriod};
  return run_exchange(options, &echo);
}

int run_exchange(const struct options* options, const struct exchange* what) {
  const int threads = options->threads < options->connections ? options->threads : options->connections;
  exchange = *what;
  struct worker* workers = calloc((size_t)threads, sizeof(*workers));
  require(workers != NULL, "calloc");
  for (int i = 0; i < threads; ++i) {
    workers[i].options = options;
    workers[i].count = options->connections / threads + (i < options->connections % threads);
    open_connections(&workers[i]);
  }
  const uint64_t begin = now_ns() + (uint64_t)(options->warm_up * 1e9);
  const uint64_t end = begin + (uint64_t)(options->seconds * 1e9);
  for (int i = 0; i < threads; ++i) {
    workers[i].begin_ns = begin;
    workers[i].end_ns = end;
    errno = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    require(errno == 0, "pthread_create");
  }
  uint64_t cpu = 0;
  uint64_t wall = 0;
  if (options->messages == 0) {
    sleep_until(begin);
    cpu = cpu_ns(options->server);
    wall = now_ns();
    sleep_until(end);
    cpu = cpu_ns(options->server) - cpu;
    wall = now_ns() - wall;
  }
  struct worker all = {.requests = 0};
  for (int i = 0; i < threads; ++i) {
    pthread_join(workers[i].thread, NULL);
    all.requests += workers[i].requests;
    histogram_merge(&all.latencies, &workers[i].latencies);
  }
  printf("{\"requests\": %llu, \"seconds\": %.9f, \"cpu_ns\": %llu, \"cpu_wall_ns\": %llu, ",
         (unsigned long long)all.requests, options->seconds, (unsigned long long)cpu,
         (unsigned long long)wall);
  histogram_print(&all.latencies);
  printf(", \"congestion_control\": \"%s\"}\n", congestion_control(workers[0].connections[0].socket));
  return 0;
}
