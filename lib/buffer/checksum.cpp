// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Both CRCs are reflected: the lowest bit of a byte is the highest power of x. With carry-less multiplication
// four times 16 bytes are folded at once, as in Intel's "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ"; the 16 bytes that are left, and short input, go through tables.
#include "lib/buffer/checksum.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace linkspan {
namespace {

constexpr std::uint32_t kReflectedCrc32 = 0xEDB88320;
constexpr std::uint32_t kReflectedCrc32c = 0x82F63B78;

// --- tables: eight bytes at a time ------------------------------------------------------------------------

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables(std::uint32_t polynomial) {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? polynomial : 0);
    tables[0][byte] = state;
  }
  for (std::size_t table = 1; table < tables.size(); ++table) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t state = tables[table - 1][byte];
      tables[table][byte] = (state >> 8) ^ tables[0][state & 0xFF];
    }
  }
  return tables;
}

template <std::uint32_t kPolynomial>
std::uint32_t by_tables(std::uint32_t state, const std::byte* data, std::size_t size) noexcept {
  static constexpr Tables kTables = make_tables(kPolynomial);
  if constexpr (std::endian::native == std::endian::little) {
    for (; size >= 8; data += 8, size -= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, data, sizeof(word));  // tidy: moves handles, not bytes
      word ^= state;
      state = 0;
      for (std::size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][(word >> (8 * i)) & 0xFF];
    }
  }
  for (; size != 0; ++data, --size) {
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<std::uint32_t>(*data)) & 0xFF];
  }
  return state;
}

// --- carry-less multiplication ----------------------------------------------------------------------------

#if defined(__x86_64__)

// x to the power of `exponent`, modulo the polynomial, as the multiplication of reflected numbers needs it.
constexpr std::uint64_t power(std::uint32_t polynomial, unsigned exponent) {
  std::uint32_t value = 0x80000000;  // 1
  for (; exponent != 0; --exponent) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
  return std::uint64_t{value} << 1;
}

// What 128 bits become when `by` follows `bits` later.
[[gnu::target("pclmul,sse4.1")]] inline __m128i fold(__m128i value, __m128i factors, __m128i by) noexcept {
  const __m128i low = _mm_clmulepi64_si128(value, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), by);
}

[[gnu::target("pclmul,sse4.1")]] inline __m128i load(const std::byte* data) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

constexpr std::size_t kFoldedAtOnceBytes = 64;

template <std::uint32_t kPolynomial>
[[gnu::target("pclmul,sse4.1")]] std::uint32_t by_multiplication(std::uint32_t state, const std::byte* data,
                                                                 std::size_t size) noexcept {
  constexpr std::uint64_t kFarLow = power(kPolynomial, 4 * 128 + 32);
  constexpr std::uint64_t kFarHigh = power(kPolynomial, 4 * 128 - 32);
  constexpr std::uint64_t kNearLow = power(kPolynomial, 128 + 32);
  constexpr std::uint64_t kNearHigh = power(kPolynomial, 128 - 32);
  if (size < 2 * kFoldedAtOnceBytes) return by_tables<kPolynomial>(state, data, size);
  const __m128i far = _mm_set_epi64x(static_cast<long long>(kFarHigh), static_cast<long long>(kFarLow));
  const __m128i near = _mm_set_epi64x(static_cast<long long>(kNearHigh), static_cast<long long>(kNearLow));
  __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128(static_cast<int>(state)));
  __m128i b = load(data + 16);
  __m128i c = load(data + 32);
  __m128i d = load(data + 48);
  data += kFoldedAtOnceBytes;
  size -= kFoldedAtOnceBytes;
  for (; size >= kFoldedAtOnceBytes; data += kFoldedAtOnceBytes, size -= kFoldedAtOnceBytes) {
    a = fold(a, far, load(data));
    b = fold(b, far, load(data + 16));
    c = fold(c, far, load(data + 32));
    d = fold(d, far, load(data + 48));
  }
  a = fold(fold(fold(a, near, b), near, c), near, d);
  for (; size >= 16; data += 16, size -= 16) a = fold(a, near, load(data));
  // Those 16 bytes stand for all before them.
  alignas(16) std::array<std::byte, 16> rest;
  _mm_store_si128(reinterpret_cast<__m128i*>(rest.data()), a);
  return by_tables<kPolynomial>(by_tables<kPolynomial>(0, rest.data(), rest.size()), data, size);
}

#endif

template <std::uint32_t kPolynomial>
std::uint32_t crc(std::uint32_t before, std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
  static const bool fast = detail::has_carryless_multiplication();
  if (fast) return ~by_multiplication<kPolynomial>(~before, bytes.data(), bytes.size());
#endif
  return ~by_tables<kPolynomial>(~before, bytes.data(), bytes.size());
}

}  // namespace

namespace detail {

std::uint32_t crc_by_tables(ChecksumKind kind, std::uint32_t state, const std::byte* data,
                            std::size_t size) noexcept {
  return kind == ChecksumKind::crc32 ? by_tables<kReflectedCrc32>(state, data, size)
                                     : by_tables<kReflectedCrc32c>(state, data, size);
}

bool has_carryless_multiplication() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
#else
  return false;
#endif
}

std::uint32_t crc_by_multiplication(ChecksumKind kind, std::uint32_t state, const std::byte* data,
                                    std::size_t size) noexcept {
#if defined(__x86_64__)
  return kind == ChecksumKind::crc32 ? by_multiplication<kReflectedCrc32>(state, data, size)
                                     : by_multiplication<kReflectedCrc32c>(state, data, size);
#else
  return crc_by_tables(kind, state, data, size);
#endif
}

}  // namespace detail

std::string_view to_string(ChecksumKind kind) noexcept {
  switch (kind) {
    case ChecksumKind::none: return "none";
    case ChecksumKind::crc32: return "crc32";
    case ChecksumKind::crc32c: return "crc32c";
  }
  return "unknown";
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return crc<kReflectedCrc32>(before, bytes);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return crc<kReflectedCrc32c>(before, bytes);
}

std::uint32_t checksum(ChecksumKind kind, std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  switch (kind) {
    case ChecksumKind::none: return 0;
    case ChecksumKind::crc32: return crc32(bytes, before);
    case ChecksumKind::crc32c: return crc32c(bytes, before);
  }
  return 0;
}

std::uint32_t checksum(ChecksumKind kind, const Chain& chain, std::uint32_t before) noexcept {
  for (const Slice& slice : chain) before = checksum(kind, slice.bytes(), before);
  return kind == ChecksumKind::none ? 0 : before;
}

}  // namespace linkspan
