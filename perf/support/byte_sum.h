// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A sum over all bytes of a stream that does not depend on where the stream is cut: the cheapest way to have
// read them, for rows that say `summed`, and a check that they are the right ones.
#ifndef LINKSPAN_PERF_BYTE_SUM_H
#define LINKSPAN_PERF_BYTE_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { kSumWord = 8 };

struct byte_sum {
  uint64_t total;     // of words of 8 bytes
  unsigned position;  // in such a word
};

static inline const char* byte_sum_some(struct byte_sum* sum, const char* at, size_t size) {
  for (; size > 0; --size, ++at) {
    unsigned char byte;
    memcpy(&byte, at, 1);
    const uint64_t word = byte;
    sum->total += word << (8 * sum->position);
    sum->position = (sum->position + 1) % kSumWord;
  }
  return at;
}

static inline void byte_sum_add(struct byte_sum* sum, const char* memory, size_t size) {
  const size_t to_word = (kSumWord - sum->position) % kSumWord;
  const size_t first = size < to_word ? size : to_word;
  const char* at = byte_sum_some(sum, memory, first);
  const size_t words = (size - first) / kSumWord;
  uint64_t total = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    memcpy(&word, at + i * kSumWord, sizeof(word));
    total += word;
  }
  sum->total += total;
  byte_sum_some(sum, at + words * kSumWord, (size - first) % kSumWord);
}

#endif
