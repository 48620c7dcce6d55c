// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Cursor: reads a Chain front to back across slice borders: integers, varints, searches, sub-chains that
// share. A read that does not fit returns nothing and leaves the position alone, so a decoder can try again
// later.
// Not for: writing (ChainWriter).
// Cost: 32 bytes; a read inside one slice touches no other. take() shares memory.
// Threads: none; the chain must not change while the cursor is used.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "linkspan/buffer/chain.hpp"

namespace linkspan {

class Cursor {
 public:
  /// `chain` has to outlive the cursor and stay unchanged.
  explicit Cursor(const Chain& chain) noexcept : chain_(&chain) {}

  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return chain_->size() - position_; }

  /// Nothing when fewer bytes than T has are left. Signed integers are two's complement.
  template <std::integral T>
  [[nodiscard]] std::optional<T> read_big_endian() noexcept {
    return read_integer<std::endian::big, T>();
  }
  template <std::integral T>
  [[nodiscard]] std::optional<T> read_little_endian() noexcept {
    return read_integer<std::endian::little, T>();
  }

  enum class VarintStatus { ok, incomplete, malformed };
  struct Varint {
    VarintStatus status;
    std::uint64_t value;
  };
  /// Base-128 varint (Protocol Buffers encoding): malformed when it has more than 10 bytes or more than 64
  /// bits. Only `ok` moves the cursor.
  [[nodiscard]] LINKSPAN_API Varint read_varint() noexcept;
  struct Zigzag {
    VarintStatus status;
    std::int64_t value;
  };
  /// A signed varint in zigzag order: 0, -1, 1, -2, ... (Protocol Buffers sint64).
  [[nodiscard]] Zigzag read_zigzag() noexcept {
    const Varint varint = read_varint();
    return {varint.status, static_cast<std::int64_t>((varint.value >> 1) ^ (0 - (varint.value & 1)))};
  }

  /// Distance from here to the next `byte`, if there is one.
  [[nodiscard]] LINKSPAN_API std::optional<std::size_t> find(std::byte byte) const noexcept;
  /// Distance to the next byte that is one of `bytes`.
  [[nodiscard]] LINKSPAN_API std::optional<std::size_t> find_any_of(std::string_view bytes) const noexcept;
  /// Distance to the next occurrence of `sequence`, which may lie across slices; 0 for an empty one. Up to
  /// sequence.size() steps a byte in the worst case: for delimiters, which are short.
  [[nodiscard]] LINKSPAN_API std::optional<std::size_t> find(std::string_view sequence) const noexcept;
  /// Whether the bytes from here on begin with `text`.
  [[nodiscard]] LINKSPAN_API bool starts_with(std::string_view text) const noexcept;

  /// The next `size` bytes as a chain that shares memory; asserts that they are there.
  [[nodiscard]] LINKSPAN_API Chain take(std::size_t size);
  /// Copies (CopyPlace::user); asserts that the bytes are there.
  LINKSPAN_API void copy_to(std::span<std::byte> to) noexcept;
  LINKSPAN_API void skip(std::size_t size) noexcept;

  /// The bytes from here to the end of the current slice; empty at the end of the chain.
  [[nodiscard]] LINKSPAN_API std::span<const std::byte> contiguous() const noexcept;

 private:
  template <std::endian Order, class T>
  [[nodiscard]] std::optional<T> read_integer() noexcept {
    if (remaining() < sizeof(T)) return std::nullopt;
    std::array<std::byte, sizeof(T)> gathered;
    const std::byte* bytes = (*chain_)[slice_].data() + offset_;
    if ((*chain_)[slice_].size() - offset_ < sizeof(T)) {
      Cursor ahead = *this;
      for (std::byte& byte : gathered) byte = ahead.next_byte();
      bytes = gathered.data();
    }
    std::make_unsigned_t<T> value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const std::size_t shift = 8 * (Order == std::endian::big ? sizeof(T) - 1 - i : i);
      value |= static_cast<std::make_unsigned_t<T>>(static_cast<std::make_unsigned_t<T>>(bytes[i]) << shift);
    }
    skip(sizeof(T));
    return static_cast<T>(value);
  }
  template <class Search>
  [[nodiscard]] std::optional<std::size_t> find_in_slices(Search search) const noexcept;
  [[nodiscard]] std::byte next_byte() noexcept {
    const std::byte byte = (*chain_)[slice_].data()[offset_];
    skip(1);
    return byte;
  }

  const Chain* chain_;
  std::size_t position_ = 0;
  std::uint32_t slice_ = 0;  // the slice that the next byte is in; slice_count() at the end
  std::size_t offset_ = 0;   // its offset in that slice
};

static_assert(sizeof(Cursor) == 32);

}  // namespace linkspan
