// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Connections that have echoed one message and then do nothing. Each line of standard input says how many
// there shall be; it is answered when they are there, and the end of the input ends everything.
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "perf/load/load.h"

int run_idle(const struct options* options) {
  const char* message = make_pattern(options->bytes);
  char* buffer = malloc(options->bytes);
  require(buffer != NULL, "malloc");
  int last = -1;
  char line[32];
  for (int open = 0; fgets(line, sizeof(line), stdin) != NULL;) {
    for (const int wanted = atoi(line); open < wanted; ++open) {
      last = connect_to(options->endpoint, 0);
      require(send(last, message, options->bytes, MSG_NOSIGNAL) == (ssize_t)options->bytes, "send");
      require(recv(last, buffer, options->bytes, MSG_WAITALL) == (ssize_t)options->bytes, "recv");
      require(memcmp(buffer, message, options->bytes) == 0, "what came back differs from what was sent");
    }
    printf("{\"connections\": %d, \"congestion_control\": \"%s\"}\n", open, congestion_control(last));
    fflush(stdout);
  }
  return 0;
}
