// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/chunk_codec.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/buffer/cursor.hpp"

namespace linkspan {
namespace {

using Header = std::array<std::byte, kChunkHeaderBytes>;

void put(Header& header, std::size_t at, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = 0; i < bytes; ++i) {
    header[at + i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
  }
}

Header header_of(const Chunk& chunk) {
  Header header;
  put(header, 0, 4, chunk.bytes.size());
  put(header, 4, 1, static_cast<std::uint64_t>(chunk.checksum_kind));
  put(header, 5, 7, chunk.offset);
  put(header, 12, 4, chunk.checksum);
  return header;
}

// Two copies; the first one is into memory that stays in the cache.
void bounce(std::byte* to, std::span<const std::byte> from) {
  std::array<std::byte, 4096> buffer;
  while (!from.empty()) {
    const std::size_t size = std::min(from.size(), buffer.size());
    copy_bytes(buffer.data(), from.data(), size, CopyPlace::framing);
    copy_bytes(to, buffer.data(), size, CopyPlace::framing);
    to += size;
    from = from.subspan(size);
  }
}

std::string above_limit(std::size_t bytes, std::size_t most) {
  return "a chunk of " + std::to_string(bytes) + " bytes is above max_chunk_bytes, " + std::to_string(most);
}

}  // namespace

Chain ChunkFramer::frame(Chunk&& chunk, BlockAllocator& allocator) {
  LINKSPAN_ASSERT(
      chunk.bytes.size() <= std::numeric_limits<std::uint32_t>::max() && chunk.offset <= kOffsetMost,
      "a chunk's size and offset fit its header");
  const Header header = header_of(chunk);
  if (framing_ == ChunkFraming::reference) {
    Chain frame = std::move(chunk.bytes);
    if (!headers_.prepend(header, frame, allocator)) return {};
    return frame;
  }
  const std::size_t size = header.size() + chunk.bytes.size();
  Block block = allocator.allocate(size);
  if (!block) return {};
  std::byte* to = block.data();
  for (const std::byte byte : header) *to++ = byte;  // not payload: the ledger does not count it
  for (const Slice& slice : chunk.bytes) {
    if (framing_ == ChunkFraming::bounce) {
      bounce(to, slice.bytes());
    } else {
      copy_bytes(to, slice.data(), slice.size(), CopyPlace::framing);
    }
    to += slice.size();
  }
  return Chain(std::move(block).freeze_all(size));
}

ChunkCodec::ChunkCodec(ChunkCodecOptions options) noexcept : options_(options), framer_(options.framing) {}
ChunkCodec::~ChunkCodec() = default;

FrameStep ChunkCodec::next(const Chain& input) {
  Cursor cursor(input);
  const auto size = cursor.read_big_endian<std::uint32_t>();
  if (!size) return FrameStep::wait(4);
  if (*size > options_.max_chunk_bytes) {
    return FrameStep::error(errc::limit_exceeded, above_limit(*size, options_.max_chunk_bytes));
  }
  const auto place = cursor.read_big_endian<std::uint64_t>();
  const auto sum = cursor.read_big_endian<std::uint32_t>();
  if (!place || !sum) return FrameStep::wait(kChunkHeaderBytes);
  const std::uint64_t kind = *place >> 56;
  if (kind > static_cast<std::uint64_t>(ChecksumKind::crc32c)) {
    return FrameStep::error(errc::malformed, "a chunk has a checksum of kind " + std::to_string(kind));
  }
  found_.checksum_kind = static_cast<ChecksumKind>(kind);
  found_.offset = *place & ChunkFramer::kOffsetMost;
  found_.checksum = *sum;
  return FrameStep::frame(kChunkHeaderBytes + *size, kChunkHeaderBytes);
}

void ChunkCodec::pass_frame(Chain&& frame) {
  Chunk chunk{found_.offset, std::move(frame), found_.checksum_kind, found_.checksum};
  if (options_.verify && !chunk.intact()) {
    pass_error(make_error_code(errc::malformed),
               "the checksum of the chunk at " + std::to_string(chunk.offset) + " does not match its bytes");
    return;
  }
  pass(std::move(chunk));
}

void ChunkCodec::on_write(Chunk&& chunk) {
  const std::size_t size = chunk.bytes.size();
  const std::size_t most =
      std::min<std::size_t>(options_.max_chunk_bytes, std::numeric_limits<std::uint32_t>::max());
  if (size > most) return pass_error(make_error_code(errc::limit_exceeded), above_limit(size, most));
  if (chunk.offset > ChunkFramer::kOffsetMost) {
    return pass_error(make_error_code(errc::limit_exceeded), "a chunk's offset is above 2^56 - 1");
  }
  Chain frame = framer_.frame(std::move(chunk), channel().loop().pool());
  if (frame.empty()) {
    return pass_error(make_error_code(errc::pool_exhausted), "no block for the frame of a chunk");
  }
  write(std::move(frame));
}

}  // namespace linkspan
