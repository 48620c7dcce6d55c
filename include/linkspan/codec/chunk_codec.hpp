// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ChunkCodec: chunks of a stream as frames, each with its place in the stream and perhaps a checksum, which
// the receiving side compares. A frame is a header of 16 bytes and the chunk's bytes: their number in 4
// bytes, 1 byte that names the kind of checksum, the offset in 7, the checksum in 4; all in network order.
// ChunkFramer makes the frames, also without a channel.
// Not for: services that have a format of their own; BufferedWriter sends with any ChunkSend.
// Cost: by reference nothing is copied but the header's 16 bytes. The other ways to make a frame, one memcpy
// and the 4 KiB bounce of a published system, are there to be compared with (`perf/run chunk-framing`).
// Threads: a handler: the loop's thread only; a framer belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "linkspan/buffer/chunk.hpp"
#include "linkspan/codec/frame_codec.hpp"
#include "linkspan/codec/frame_headers.hpp"

namespace linkspan {

/// How the bytes of a chunk get into a frame. The bytes are the same.
enum class ChunkFraming {
  reference,  ///< they stay where they are
  copy,       ///< one memcpy into a block that holds the whole frame
  bounce,     ///< in pieces of 4 KiB through a buffer on the stack into such a block: two copies
};

inline constexpr std::size_t kChunkHeaderBytes = 16;

class LINKSPAN_API ChunkFramer {
 public:
  static constexpr std::uint64_t kOffsetMost = (std::uint64_t{1} << 56) - 1;

  explicit ChunkFramer(ChunkFraming framing = ChunkFraming::reference) noexcept : framing_(framing) {}

  /// The frame of a chunk of at most 2^32 - 1 bytes and an offset of at most kOffsetMost; empty when
  /// `allocator` refuses a block.
  [[nodiscard]] Chain frame(Chunk&& chunk, BlockAllocator& allocator);

 private:
  ChunkFraming framing_;
  FrameHeaders headers_;
};

struct ChunkCodecOptions {
  std::size_t max_chunk_bytes = std::size_t{16} << 20;  ///< in both directions; 2^32 - 1 at most
  ChunkFraming framing = ChunkFraming::reference;
  bool verify = true;  ///< false: checksums of received chunks are passed on, and nobody compares them

  ChunkCodecOptions() = default;
};

/// Errors that it passes on: limit_exceeded, malformed (a kind of checksum that it does not know, a checksum
/// that does not match), truncated (the peer ended in a frame), pool_exhausted (no block; that chunk is
/// dropped).
class LINKSPAN_API ChunkCodec final : public FrameCodecOf<Chunk> {
 public:
  explicit ChunkCodec(ChunkCodecOptions options = {}) noexcept;
  ~ChunkCodec() override;

  void on_write(Chunk&& chunk) override;

 private:
  FrameStep next(const Chain& input) override;
  void pass_frame(Chain&& frame) override;

  ChunkCodecOptions options_;
  ChunkFramer framer_;
  Chunk found_;  // by next(), without its bytes
};

}  // namespace linkspan
