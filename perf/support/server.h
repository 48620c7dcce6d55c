// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the servers of the network benchmarks have in common, in C so that the floors and the peers can use
// it: one command line, a listening socket made in the same way, and the same end.
//
//     SERVER [--name=value ...] PORT | unix:PATH       (TCP on 127.0.0.1; port 0 asks for a free one)
//
// A server prints "listening on PORT" (or on unix:PATH) and ends on SIGTERM, or when its standard input is a
// pipe that is closed: so it never outlives the one who started it.
#ifndef LINKSPAN_PERF_SERVER_H
#define LINKSPAN_PERF_SERVER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static inline void server_require(int holds, const char* what) {
  if (holds) return;
  perror(what);
  exit(1);
}

static inline void server_on_signal(int number) {
  (void)number;
  _exit(0);
}

// Ends the process as said above. Call before threads start.
static inline void server_end_with_parent(void) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, server_on_signal);
  struct stat about;
  if (fstat(STDIN_FILENO, &about) != 0 || !S_ISFIFO(about.st_mode)) return;
  server_require(fcntl(STDIN_FILENO, F_SETOWN, getpid()) == 0, "F_SETOWN");
  server_require(fcntl(STDIN_FILENO, F_SETSIG, SIGTERM) == 0, "F_SETSIG");
  server_require(fcntl(STDIN_FILENO, F_SETFL, O_ASYNC) == 0, "O_ASYNC");
  struct pollfd closed_already = {STDIN_FILENO, 0, 0};
  if (poll(&closed_already, 1, 0) == 1) _exit(0);
}

// The value of an option, or `otherwise`.
static inline const char* server_option(int argc, char** argv, const char* name, const char* otherwise) {
  const size_t length = strlen(name);
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
        argv[i][2 + length] == '=') {
      return argv[i] + 2 + length + 1;
    }
  }
  return otherwise;
}

static inline int server_option_set(int argc, char** argv, const char* name) {
  const size_t length = strlen(name);
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "--", 2) != 0 || strncmp(argv[i] + 2, name, length) != 0) continue;
    if (argv[i][2 + length] == '\0') return 1;
    if (argv[i][2 + length] != '=') continue;
    fprintf(stderr, "--%s takes no value\n", name);
    exit(2);
  }
  return 0;
}

// The endpoint; anything but one argument without dashes is an error.
static inline const char* server_endpoint(int argc, char** argv) {
  const char* found = argc > 1 ? argv[argc - 1] : "--";
  if (strncmp(found, "--", 2) != 0) return found;
  fprintf(stderr, "usage: %s [--name=value ...] PORT|unix:PATH\n", argv[0]);
  exit(2);
}

static inline void server_allow_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

union server_address {
  struct sockaddr any;
  struct sockaddr_in tcp;
  struct sockaddr_un local;
};

// Listens. Accepted connections inherit TCP_NODELAY (Linux). `flags`: SOCK_NONBLOCK or 0.
static inline int server_listen(const char* endpoint, int flags) {
  const int is_unix = strncmp(endpoint, "unix:", 5) == 0;
  const int listener = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  server_require(listener >= 0, "socket");
  union server_address name;
  memset(&name, 0, sizeof(name));
  socklen_t size = sizeof(name.tcp);
  if (is_unix) {
    name.local.sun_family = AF_UNIX;
    snprintf(name.local.sun_path, sizeof(name.local.sun_path), "%s", endpoint + 5);
    size = sizeof(name.local);
    unlink(name.local.sun_path);
  } else {
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    name.tcp.sin_family = AF_INET;
    const uint16_t port = strtoul(endpoint, NULL, 10);
    name.tcp.sin_port = htons(port);
    name.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  server_require(bind(listener, &name.any, size) == 0, "bind");
  server_require(listen(listener, 1024) == 0, "listen");
  return listener;
}

// Says where it listens, once everything is ready.
static inline void server_ready(int listener) {
  union server_address name;
  socklen_t size = sizeof(name);
  server_require(getsockname(listener, &name.any, &size) == 0, "getsockname");
  if (name.any.sa_family == AF_UNIX) {
    printf("listening on unix:%s\n", name.local.sun_path);
  } else {
    printf("listening on %d\n", ntohs(name.tcp.sin_port));
  }
  fflush(stdout);
}

#endif
