// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/compression.hpp"

#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>

#include "lib/codec/compression_stream.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kBlockLeastBytes = 4096;
constexpr std::size_t kBlockMostBytes = std::size_t{256} << 10;
constexpr std::size_t kWindowLeastBytes = 1024;
constexpr std::size_t kWindowMostBytes = std::size_t{128} << 20;

struct Levels {
  int least;
  int most;
  int usual;
};

Levels levels_of(CompressionAlgorithm algorithm) {
  switch (algorithm) {
    case CompressionAlgorithm::zlib:
    case CompressionAlgorithm::gzip: return {0, 9, 6};
    case CompressionAlgorithm::zstd: return {-7, 19, 3};
  }
  throw Exception(Error(errc::invalid_argument, "compression: an algorithm that there is not"));
}

}  // namespace

detail::CompressionStream::~CompressionStream() = default;

Compressor::Compressor(const CompressionOptions& options) : options_(options) {
  const Levels levels = levels_of(options.algorithm);
  if (!options_.level) options_.level = levels.usual;
  if (*options_.level < levels.least || *options_.level > levels.most) {
    throw Exception(Error(errc::invalid_argument, "compression: the level is not within " +
                                                      std::to_string(levels.least) + " and " +
                                                      std::to_string(levels.most)));
  }
  if (!std::has_single_bit(options.max_window_bytes) || options.max_window_bytes < kWindowLeastBytes ||
      options.max_window_bytes > kWindowMostBytes) {
    throw Exception(Error(errc::invalid_argument,
                          "compression: max_window_bytes is no power of two of 1 KiB to 128 MiB"));
  }
}

Compressor::~Compressor() = default;

Result<Chain> Compressor::compress(const Chain& frame, BlockAllocator& allocator, std::size_t max_bytes) {
  Result<Chain> compressed = run(Direction::compress, frame, allocator, max_bytes);
  drop_large_block();
  return compressed;
}

Result<Chain> Compressor::decompress(const Chain& frame, BlockAllocator& allocator) {
  Result<Chain> decompressed = run(Direction::decompress, frame, allocator, options_.max_frame_bytes);
  drop_large_block();
  return decompressed;
}

detail::CompressionStream& Compressor::stream(Direction direction) {
  auto& stream = direction == Direction::compress ? compress_ : decompress_;
  if (stream) return *stream;
  const bool gzip = options_.algorithm == CompressionAlgorithm::gzip;
  if (options_.algorithm == CompressionAlgorithm::zstd) {
    stream = direction == Direction::compress ? detail::make_zstd_compress(*options_.level)
                                              : detail::make_zstd_decompress(options_.max_window_bytes);
  } else {
    stream = direction == Direction::compress ? detail::make_deflate(gzip, *options_.level)
                                              : detail::make_inflate(gzip);
  }
  return *stream;
}

Result<Chain> Compressor::run(Direction direction, const Chain& frame, BlockAllocator& allocator,
                              std::size_t most) {
  detail::CompressionStream& library = stream(direction);
  if (const Status begun = library.begin(frame); !begun) return begun.error();

  Chain out;
  std::span<const std::byte> in;
  for (std::size_t next_slice = 0;;) {
    if (in.empty() && next_slice != frame.slice_count()) in = frame[next_slice++].bytes();
    const bool last = next_slice == frame.slice_count();
    // What goes beyond the limit is seen by its first byte, which has no place.
    std::byte beyond{};
    std::span<std::byte> room(&beyond, 1);
    if (out.size() != most) {
      if (!block_) {
        block_ = allocator.allocate(std::clamp(out.size(), kBlockLeastBytes, kBlockMostBytes));
        if (!block_) return Error(errc::pool_exhausted, "no block for what becomes of a frame");
      }
      room = block_.writable().first(std::min(block_.size(), most - out.size()));
    }
    const std::size_t room_bytes = room.size();
    const std::size_t in_bytes = in.size();
    const Result<bool> ended = library.step(in, room, last);
    if (!ended) return ended.error();
    const std::size_t made_bytes = room_bytes - room.size();
    if (made_bytes != 0 && out.size() == most) {
      return Error(errc::limit_exceeded,
                   direction == Direction::decompress
                       ? "a frame decompresses to more than max_frame_bytes, " + std::to_string(most)
                       : "a frame compresses to more than " + std::to_string(most) + " bytes");
    }
    out.append_joined(block_.freeze(made_bytes));
    if (ended.value()) {
      if (!in.empty() || !last) return detail::malformed("there are bytes behind its end");
      break;
    }
    if (last && in.empty() && !room.empty()) return Error(errc::truncated, "a compressed frame ends early");
    if (made_bytes == 0 && in.size() == in_bytes && !room.empty()) return detail::malformed("it has no end");
  }
  return out;
}

// It would be pinned by the few bytes of small frames, or kept by a channel that rests.
void Compressor::drop_large_block() noexcept {
  if (block_.size() > kBlockLeastBytes) block_.reset();
}

}  // namespace linkspan
