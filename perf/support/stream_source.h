// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Where the senders of the benchmark `stream` take their messages from, the same for all of them.
//
//     --bytes=N        of a message, a multiple of 4096
//     --slices=K       that it consists of
//     --source=hot     the same memory again and again
//              cold    slices from all over 256 MiB, out of order
//              block   the same in order
//              file    ranges of a file of 256 MiB, in the page cache
//     --copy           the slices are copied into one buffer first, which is sent instead
#ifndef LINKSPAN_PERF_STREAM_SOURCE_H
#define LINKSPAN_PERF_STREAM_SOURCE_H

#include <stddef.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kSlicesMost = 256 };

struct stream_source {
  char* memory;  // for ever
  size_t memory_bytes;
  int file;  // -1: memory it is
  size_t bytes;
  unsigned slices;
  int copy;
  unsigned* order;  // of the pieces of a large memory; NULL: hot
  size_t next;      // piece, or range of the file
};

void stream_source_open(struct stream_source* source, int argc, char** argv);
// The slices of the next message.
void stream_source_slices(struct stream_source* source, struct iovec* slices);
// The offset of the next message in the file.
size_t stream_source_offset(struct stream_source* source);

#ifdef __cplusplus
}
#endif

#endif
