// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Bytes that may be compressed, at once and in pieces: what comes out is the same, within the limit, and can
// be compressed again. The first byte chooses the algorithm, the second the size of the pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "linkspan/buffer/heap_allocator.hpp"
#include "linkspan/codec/compression.hpp"

using namespace linkspan;

namespace {

constexpr std::size_t kFrameMostBytes = 16 * 1024;
constexpr std::size_t kWindowMostBytes = 64 * 1024;

Chain cut(std::string_view bytes, std::size_t piece) {
  Chain chain;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), piece))) {
    chain.append(Slice::immortal(bytes.substr(0, piece)));
  }
  return chain;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  CompressionOptions options;
  options.algorithm = static_cast<CompressionAlgorithm>(1 + data[0] % 3);
  options.max_frame_bytes = kFrameMostBytes;
  options.max_window_bytes = kWindowMostBytes;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);

  HeapAllocator memory;
  Compressor compressor(options);  // for all: a frame leaves nothing behind for the next one
  const auto whole = compressor.decompress(cut(bytes, bytes.size()), memory);
  const auto pieces = compressor.decompress(cut(bytes, 1 + data[1] % 32), memory);
  require(whole.ok() == pieces.ok());
  require(memory.statistics().high_water_bytes <= 4 * kFrameMostBytes);
  if (!whole) return 0;  // of several faults another one may be told
  const std::string text = whole.value().to_string();
  require(text.size() <= kFrameMostBytes && pieces.value() == text);
  const auto again = compressor.compress(whole.value(), memory);
  require(again.ok() && compressor.decompress(again.value(), memory).value_or_throw() == text);
  return 0;
}
