// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The load generator: plain C on raw epoll, so that it shares no code with any of the servers. One file a
// kind of load; this is what they have in common.
#ifndef LINKSPAN_PERF_LOAD_H
#define LINKSPAN_PERF_LOAD_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct options {
  const char* endpoint;  // a port of 127.0.0.1, or unix:PATH
  int connections;
  int pipeline;            // messages in flight on a connection
  size_t bytes;            // of a message
  double seconds;          // measured, after
  double warm_up;          // seconds that are not
  uint64_t warm_up_bytes;  // stream and write: nor are these, if they take longer
  uint64_t messages;       // not 0: exactly so many in all connections, instead of a time
  int threads;             // echo
  pid_t server;            // whose processor time is measured; 0: nobody's
  int busy;                // polls instead of sleeping
  int verify;              // stream: compares what comes; echo always does
  int summed;              // stream: reads every byte that comes
  int sets;                // cache: sets values, instead of getting them
  int memcached;           // cache: speaks memcached's protocol, instead of Redis's
  size_t keys;             // cache; 0: as many as make a few MiB
};

// What goes to and fro: message m is `request_bytes` of the endless repetition of `requests`, and so is
// its reply. Each buffer goes on behind its period, for as much as is in flight or received at a time.
struct exchange {
  const char* requests;
  size_t request_bytes;
  size_t request_period;  // bytes
  const char* replies;
  size_t reply_bytes;
  size_t reply_period;
};

int run_exchange(const struct options* options, const struct exchange* exchange);
int run_echo(const struct options* options);
int run_cache(const struct options* options);
int run_stream(const struct options* options);
int run_write(const struct options* options);
int run_connect(const struct options* options);
int run_idle(const struct options* options);

void require(int holds, const char* what);
uint64_t now_ns(void);
void sleep_until(uint64_t ns);

// Processor time that all threads of a process have used; exact, unlike the ticks of /proc/PID/stat.
uint64_t cpu_ns(pid_t process);

// Connected, blocking. `source`: the last bytes of 127.x.x.x to connect from, as a port range is soon used up
// by connections that come and go; 0: as the system likes.
int connect_to(const char* endpoint, unsigned source);
void set_nonblocking(int socket);
// What the system gave a connection: "cubic"; "none" on unix sockets.
const char* congestion_control(int socket);

// Byte i of what a connection sends is pattern[i % kPatternPeriod], so that any part can be compared.
enum { kPatternPeriod = 251, kReceiveBytes = 64 * 1024 };
char* make_pattern(size_t bytes);

// Counts of latencies in classes that are at most 1/128 wide.
struct histogram {
  uint64_t counts[64 * 128];
  uint64_t total;
};
void histogram_add(struct histogram* histogram, uint64_t ns);
void histogram_merge(struct histogram* into, const struct histogram* from);
// The class below which a share of all lies: its middle.
double histogram_percentile(const struct histogram* histogram, double percent);
// "p50_ns": ..., "p99_ns": ..., "p99.9_ns": ...
void histogram_print(const struct histogram* histogram);

#endif
