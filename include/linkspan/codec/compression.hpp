// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Compressor: makes a chain that is compressed with zlib, gzip or zstd of a chain, and back. Part of the
// library linkspan-compression. The handlers that use it are in compression_codec.hpp.
// Not for: data that has no bound: a frame is compressed at once, and its bytes are in memory.
// Cost: what the algorithm costs, on the thread that calls. In a virtual machine decompressing JSON took 1 ms
// (zstd) to 3 ms (zlib) for each MiB that came out, and 4 to 15 ms the first time, with all that is new then;
// compressing 3 ms with zstd and 20 with zlib at their usual levels.
// So 64 MiB, the default of max_frame_bytes, may stop a loop for 100 ms and more: set what messages need.
// Contexts are made on first use, reused, and on the heap, beyond any pool's budget: 0.3 MiB to compress with
// zlib and 0.05 to decompress, 3.5 with zstd at level 3 (far more at high levels), and to decompress up to
// max_window_bytes.
// Threads: none; a Compressor belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

namespace detail {
class CompressionStream;
}

/// The numbers are those of CompressionCodec on the wire.
enum class CompressionAlgorithm : std::uint8_t {
  zlib = 1,  ///< RFC 1950, what HTTP and gRPC call "deflate"
  gzip = 2,  ///< RFC 1952
  zstd = 3,  ///< RFC 8878
};

struct CompressionOptions {
  CompressionAlgorithm algorithm = CompressionAlgorithm::zstd;
  /// zlib and gzip: 0 to 9, 6 when none is given; zstd: -7 to 19, 3 when none is given.
  std::optional<int> level{};
  /// Of one frame that is not compressed, in both directions. Decompressing stops with an error as soon as
  /// more comes out, and never has more than this in memory.
  std::size_t max_frame_bytes = std::size_t{64} << 20;
  /// zstd: a frame that wants more of what came before to be kept is refused. A power of two, of 1 KiB to 128
  /// MiB. The levels above need no more than the default, which is what RFC 8878 tells everybody to accept.
  std::size_t max_window_bytes = std::size_t{8} << 20;
  /// For the handlers: a smaller frame is sent as it is.
  std::size_t min_compressed_bytes = 512;
  /// For the handlers: when so much was decompressed without a break, reading pauses until the next tick.
  /// Less than a frame stops nothing in the middle of that frame.
  std::size_t tick_bytes = std::size_t{1} << 20;

  CompressionOptions() = default;
};

/// What comes out lies in blocks of the allocator, which begin with 4 KiB and grow with the frame, up to 256
/// KiB; small frames share them. pool_exhausted: the allocator, or the library, got no memory. After an error
/// the next frame may be tried.
class LINKSPAN_API Compressor {
 public:
  /// Throws Exception (invalid_argument) for options that cannot be.
  explicit Compressor(const CompressionOptions& options);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  /// limit_exceeded: more than `max_bytes` would come out.
  [[nodiscard]] Result<Chain> compress(const Chain& frame, BlockAllocator& allocator,
                                       std::size_t max_bytes = std::numeric_limits<std::size_t>::max());

  /// `frame` is one zlib stream, one member of gzip, or one frame of zstd: nothing less, and nothing behind
  /// it. limit_exceeded: more than max_frame_bytes, or a window beyond max_window_bytes. truncated: it ends
  /// early. unavailable: it needs a dictionary. malformed: everything else, a checksum that is wrong among
  /// it.
  [[nodiscard]] Result<Chain> decompress(const Chain& frame, BlockAllocator& allocator);

  [[nodiscard]] const CompressionOptions& options() const noexcept { return options_; }

 private:
  enum class Direction { compress, decompress };
  [[nodiscard]] Result<Chain> run(Direction direction, const Chain& frame, BlockAllocator& allocator,
                                  std::size_t most);
  [[nodiscard]] detail::CompressionStream& stream(Direction direction);
  void drop_large_block() noexcept;

  CompressionOptions options_;
  std::unique_ptr<detail::CompressionStream> compress_;  // the library's contexts
  std::unique_ptr<detail::CompressionStream> decompress_;
  Block block_;  // what is left of a small one, for the next frame
};

}  // namespace linkspan
