// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ChainWriter: the output stream that builds a Chain. Small pieces are written into blocks, large ones are
// appended by reference, in any order. Pieces below the threshold are copied, because a reference costs more
// than their copy (kReferenceThreshold); the copies are counted.
// Not for: data that is a Chain already (Chain::append).
// Cost: one block of `block_bytes` at a time from the allocator; neighbouring small writes become one slice.
// Threads: none; a writer belongs to one thread.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "linkspan/base/error.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/copy_ledger.hpp"

namespace linkspan {

/// Pieces of at least this many bytes are referenced by default. On Linux 6.18 gathering beat copying from
/// between 1 and 2 KiB a slice, in cache and out of it (`perf/run gather`; figures in docs/ARCHITECTURE.md).
inline constexpr std::size_t kReferenceThreshold = 2048;

struct ChainWriterOptions {
  std::size_t reference_threshold_bytes = kReferenceThreshold;  ///< 0 references all
  std::size_t block_bytes = 4096;     ///< size of the blocks that small pieces go to
  CopyPlace place = CopyPlace::user;  ///< what copies of pieces above the threshold are counted as
};

class ChainWriter {
 public:
  /// `allocator` has to outlive the writer, not what was written.
  explicit ChainWriter(BlockAllocator& allocator, ChainWriterOptions options = {}) noexcept
      : allocator_(allocator), options_(options) {}

  /// Copies `bytes`.
  LINKSPAN_API void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Signed integers are two's complement.
  template <std::integral T>
  void write_big_endian(T value) {
    write_integer<std::endian::big>(value);
  }
  template <std::integral T>
  void write_little_endian(T value) {
    write_integer<std::endian::little>(value);
  }
  /// Base-128 varint, least significant group first (Protocol Buffers encoding).
  LINKSPAN_API void write_varint(std::uint64_t value);
  /// A signed varint in zigzag order: 0, -1, 1, -2, ... (Protocol Buffers sint64).
  void write_zigzag(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    write_varint((bits << 1) ^ (0 - (bits >> 63)));
  }

  /// References, or copies what is below the threshold.
  LINKSPAN_API void append(Slice slice);
  LINKSPAN_API void append(Chain&& chain);

  /// Writable memory of at least `size` bytes, at most what is left in the block; empty when the allocator
  /// refused. Valid until the next call. commit() then says how many bytes were written.
  [[nodiscard]] LINKSPAN_API std::span<std::byte> reserve(std::size_t size);
  LINKSPAN_API void commit(std::size_t size);

  /// Bytes written so far.
  [[nodiscard]] std::size_t size() const noexcept { return chain_.size(); }

  /// errc::pool_exhausted once the allocator has refused; everything after that is ignored.
  [[nodiscard]] std::error_code error() const noexcept { return error_; }

  /// What was written; the writer starts again, with what is left of its block.
  [[nodiscard]] Chain take() noexcept { return std::move(chain_); }

  [[nodiscard]] const ChainWriterOptions& options() const noexcept { return options_; }

 private:
  template <std::endian Order, std::integral T>
  void write_integer(T value) {
    const std::span<std::byte> to = reserve(sizeof(T));
    if (to.empty()) return;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const std::size_t shift = 8 * (Order == std::endian::big ? sizeof(T) - 1 - i : i);
      to[i] = static_cast<std::byte>(static_cast<std::make_unsigned_t<T>>(value) >> shift);
    }
    commit(sizeof(T));
  }

  BlockAllocator& allocator_;
  ChainWriterOptions options_;
  Chain chain_;
  Block block_;  // its writable rest follows chain_.back() when the last piece was a small one
  std::error_code error_;
};

}  // namespace linkspan
