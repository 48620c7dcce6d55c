// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
//     load echo|stream|read|write|connect|idle|cache|fill [--name=value ...] ENDPOINT
//
// prints a line of JSON with what it has measured; perf/harness/servers.py makes samples of it. The options
// are the members of struct options.
#include "perf/load/load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void require(int holds, const char* what) {
  if (holds) return;
  perror(what);
  exit(1);
}

static uint64_t read_clock(clockid_t clock) {
  struct timespec time;
  require(clock_gettime(clock, &time) == 0, "clock_gettime");
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t now_ns(void) {
  return read_clock(CLOCK_MONOTONIC);
}

void sleep_until(uint64_t ns) {
  const struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
  }
}

uint64_t cpu_ns(pid_t process) {
  if (process == 0) return 0;
  clockid_t clock;
  errno = clock_getcpuclockid(process, &clock);
  require(errno == 0, "the server's processor time");
  return read_clock(clock);
}

int connect_to(const char* endpoint, unsigned source) {
  union {
    struct sockaddr any;
    struct sockaddr_in tcp;
    struct sockaddr_un local;
  } name;
  memset(&name, 0, sizeof(name));
  const int is_unix = strncmp(endpoint, "unix:", 5) == 0;
  socklen_t size = sizeof(name.tcp);
  const int found = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(found >= 0, "socket");
  if (is_unix) {
    name.local.sun_family = AF_UNIX;
    snprintf(name.local.sun_path, sizeof(name.local.sun_path), "%s", endpoint + 5);
    size = sizeof(name.local);
  } else {
    const int on = 1;
    setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    name.tcp.sin_family = AF_INET;
    if (source != 0) {
      setsockopt(found, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
      name.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK + source);
      require(bind(found, &name.any, size) == 0, "bind");
    }
    name.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.tcp.sin_port = htons((unsigned short)atoi(endpoint));
  }
  require(connect(found, &name.any, size) == 0, "connect");
  return found;
}

void set_nonblocking(int socket) {
  require(fcntl(socket, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
}

const char* congestion_control(int socket) {
  static char name[16];
  socklen_t size = sizeof(name);
  return getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 ? name : "none";
}

char* make_pattern(size_t bytes) {
  char* pattern = malloc(bytes + kPatternPeriod);
  require(pattern != NULL, "malloc");
  for (size_t i = 0; i < bytes + kPatternPeriod; ++i) pattern[i] = (char)(i % kPatternPeriod);
  return pattern;
}

// Values below 256 have a class each; beyond, 128 classes for each power of two.
void histogram_add(struct histogram* histogram, uint64_t ns) {
  unsigned shift = 0;
  while ((ns >> shift) >= 256) ++shift;
  ++histogram->counts[shift * 128 + (ns >> shift)];
  ++histogram->total;
}

void histogram_merge(struct histogram* into, const struct histogram* from) {
  for (size_t i = 0; i < sizeof(into->counts) / sizeof(*into->counts); ++i)
    into->counts[i] += from->counts[i];
  into->total += from->total;
}

double histogram_percentile(const struct histogram* histogram, double percent) {
  const double wanted = (double)histogram->total * percent / 100;
  uint64_t seen = 0;
  for (unsigned i = 0; i < sizeof(histogram->counts) / sizeof(*histogram->counts); ++i) {
    seen += histogram->counts[i];
    if (histogram->counts[i] == 0 || (double)seen < wanted) continue;
    const unsigned shift = i < 256 ? 0 : i / 128 - 1;
    return ((double)(i - shift * 128) + 0.5) * (double)((uint64_t)1 << shift);
  }
  return 0;
}

void histogram_print(const struct histogram* histogram) {
  printf("\"p50_ns\": %.0f, \"p99_ns\": %.0f, \"p99.9_ns\": %.0f", histogram_percentile(histogram, 50),
         histogram_percentile(histogram, 99), histogram_percentile(histogram, 99.9));
}

// The text after "--name=", or NULL.
static const char* value_of(const char* argument, const char* name) {
  const size_t length = strlen(name);
  const int same = strncmp(argument, "--", 2) == 0 && strncmp(argument + 2, name, length) == 0;
  return same && argument[2 + length] == '=' ? argument + 2 + length + 1 : NULL;
}

static int usage(const char* problem) {
  fprintf(stderr,
          "load: %s\nusage: load echo|stream|read|write|connect|idle|cache|fill [--name=value ...] "
          "PORT|unix:PATH\n",
          problem);
  return 2;
}

int main(int argc, char** argv) {
  if (argc < 3) return usage("needs a kind of load and an endpoint");
  struct options options = {.endpoint = argv[argc - 1],
                            .connections = 1,
                            .pipeline = 1,
                            .bytes = 64,
                            .seconds = 1,
                            .warm_up = 0.2,
                            .threads = 1};
  for (int i = 2; i < argc - 1; ++i) {
    const char* text = NULL;
    if ((text = value_of(argv[i], "connections")) != NULL) {
      options.connections = atoi(text);
    } else if ((text = value_of(argv[i], "pipeline")) != NULL) {
      options.pipeline = atoi(text);
    } else if ((text = value_of(argv[i], "bytes")) != NULL) {
      options.bytes = (size_t)atoll(text);
    } else if ((text = value_of(argv[i], "seconds")) != NULL) {
      options.seconds = atof(text);
    } else if ((text = value_of(argv[i], "warm-up")) != NULL) {
      options.warm_up = atof(text);
    } else if ((text = value_of(argv[i], "warm-up-bytes")) != NULL) {
      options.warm_up_bytes = (uint64_t)atoll(text);
    } else if ((text = value_of(argv[i], "messages")) != NULL) {
      options.messages = (uint64_t)atoll(text);
    } else if ((text = value_of(argv[i], "threads")) != NULL) {
      options.threads = atoi(text);
    } else if ((text = value_of(argv[i], "server")) != NULL) {
      options.server = atoi(text);
    } else if (value_of(argv[i], "source") != NULL) {
      // Of a block: its server knows.
    } else if ((text = value_of(argv[i], "command")) != NULL) {
      options.sets = strcmp(text, "set") == 0;
    } else if ((text = value_of(argv[i], "keys")) != NULL) {
      options.keys = (size_t)atoll(text);
    } else if (strcmp(argv[i], "--memcached") == 0) {
      options.memcached = 1;
    } else if (strcmp(argv[i], "--busy") == 0) {
      options.busy = 1;
    } else if (strcmp(argv[i], "--verify") == 0) {
      options.verify = 1;
    } else if (strcmp(argv[i], "--summed") == 0) {
      options.summed = 1;
    } else {
      return usage(argv[i]);
    }
  }
  if (options.connections < 1 || options.pipeline < 1 || options.bytes < 1 || options.threads < 1) {
    return usage("a number that is too small");
  }
  signal(SIGPIPE, SIG_IGN);
  struct rlimit limit;
  require(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (strcmp(argv[1], "echo") == 0) return run_echo(&options);
  // To read a block is to take what comes: its server sends without being asked.
  if (strcmp(argv[1], "stream") == 0 || strcmp(argv[1], "read") == 0) return run_stream(&options);
  if (strcmp(argv[1], "write") == 0) return run_write(&options);
  if (strcmp(argv[1], "connect") == 0) return run_connect(&options);
  if (strcmp(argv[1], "idle") == 0) return run_idle(&options);
  if (strcmp(argv[1], "cache") == 0 || strcmp(argv[1], "fill") == 0) return run_cache(&options);
  return usage(argv[1]);
}
