// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The block that the benchmark `block-read` moves: 256 MiB of the process's own, or a file of that size in
// the page cache, both made when they are first asked for. Their bytes are those of support/stream_bytes.h.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "perf/support/byte_sum.h"
#include "perf/support/freed_memory.hpp"
#include "perf/support/server.h"
#include "perf/support/stream_bytes.h"

namespace linkspan::perf {

inline constexpr std::size_t kBlockBytes = std::size_t{256} << 20;

inline std::span<char> map_block(int flags, int file) {
  void* const memory = mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, flags, file, 0);
  server_require(memory != MAP_FAILED, "mmap");
  return {static_cast<char*>(memory), kBlockBytes};
}

/// For ever, as is the next one.
inline std::span<char> block_in_memory() {
  static const std::span<char> block = [] {
    const std::span<char> made = map_block(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    stream_fill(made.data(), made.size());
    return made;
  }();
  return block;
}

inline int block_file() {
  static const int file = [] {
    const int made = memfd_create("block", MFD_CLOEXEC);
    server_require(made >= 0 && ftruncate(made, kBlockBytes) == 0, "memfd_create");
    const std::span<char> bytes = map_block(MAP_SHARED, made);
    stream_fill(bytes.data(), bytes.size());
    munmap(bytes.data(), bytes.size());
    return made;
  }();
  return file;
}

inline std::span<char> mapped_block() {
  static const std::span<char> block = map_block(MAP_SHARED | MAP_POPULATE, block_file());
  return block;
}

/// Of `bytes` of the block, whole periods of it.
inline std::uint64_t block_sum(std::size_t bytes) {
  static const std::uint64_t period = [] {
    char memory[kStreamPeriod];
    stream_fill(memory, sizeof(memory));
    byte_sum sum{};
    byte_sum_add(&sum, memory, sizeof(memory));
    return sum.total;
  }();
  return bytes / kStreamPeriod * period;
}

}  // namespace linkspan::perf
