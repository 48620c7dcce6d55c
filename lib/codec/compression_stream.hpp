// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// One direction of one algorithm: what Compressor knows of the libraries.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan::detail {

class CompressionStream {
 public:
  CompressionStream() = default;
  CompressionStream(const CompressionStream&) = delete;
  CompressionStream& operator=(const CompressionStream&) = delete;
  virtual ~CompressionStream();

  /// All of `frame` will be given to step(). Whatever was begun before is forgotten.
  [[nodiscard]] virtual Status begin(const Chain& frame) = 0;
  /// Takes bytes off the front of `in`, and of `out`, which is not empty, those that it has filled. `last`:
  /// nothing follows `in`. True: the end of the compressed data.
  [[nodiscard]] virtual Result<bool> step(std::span<const std::byte>& in, std::span<std::byte>& out,
                                          bool last) = 0;
};

/// zlib or gzip.
[[nodiscard]] std::unique_ptr<CompressionStream> make_deflate(bool gzip, int level);
[[nodiscard]] std::unique_ptr<CompressionStream> make_inflate(bool gzip);
[[nodiscard]] std::unique_ptr<CompressionStream> make_zstd_compress(int level);
[[nodiscard]] std::unique_ptr<CompressionStream> make_zstd_decompress(std::size_t max_window_bytes);

[[nodiscard]] inline Error no_memory(const char* library) {
  return {errc::pool_exhausted, std::string("no memory for ") + library};
}
[[nodiscard]] inline Error malformed(std::string what) {
  return {errc::malformed, "a frame cannot be decompressed: " + std::move(what)};
}

}  // namespace linkspan::detail
