// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Chunk: a part of a long stream of bytes, which knows its place in it and, if asked for, its checksum. What
// BufferedWriter cuts streams into, and ChunkCodec frames.
// Not for: messages that mean something by themselves.
// Cost: a Chain and 16 bytes.
// Threads: a value, for one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/checksum.hpp"

namespace linkspan {

struct Chunk {
  std::uint64_t offset = 0;  ///< of its first byte in the stream
  Chain bytes{};
  ChecksumKind checksum_kind = ChecksumKind::none;
  std::uint32_t checksum = 0;  ///< of the bytes; 0 without one

  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes.size(); }
  [[nodiscard]] std::uint64_t end() const noexcept { return offset + bytes.size(); }
  /// A second one over the same memory.
  [[nodiscard]] Chunk share() const { return {offset, bytes.share(), checksum_kind, checksum}; }
  /// The checksum is that of the bytes, or there is none.
  [[nodiscard]] bool intact() const noexcept { return linkspan::checksum(checksum_kind, bytes) == checksum; }
};

}  // namespace linkspan
