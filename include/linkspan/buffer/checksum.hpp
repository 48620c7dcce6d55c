// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// CRC-32 (RFC 1952, zlib's) and CRC-32C (RFC 3720, Castagnoli's) of memory and of chains.
// Not for: protection against somebody who changes bytes on purpose.
// Cost: with PCLMUL, found when the program starts, some 10 GB/s and more out of the cache; otherwise tables,
// some 1.5 GB/s. Nothing is copied or put together.
// Threads: any; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "linkspan/buffer/chain.hpp"

namespace linkspan {

enum class ChecksumKind : std::uint8_t { none = 0, crc32 = 1, crc32c = 2 };

[[nodiscard]] LINKSPAN_API std::string_view to_string(ChecksumKind kind) noexcept;

/// `before` is the checksum of the bytes in front of these; 0 at the beginning.
[[nodiscard]] LINKSPAN_API std::uint32_t crc32(std::span<const std::byte> bytes,
                                               std::uint32_t before = 0) noexcept;
[[nodiscard]] LINKSPAN_API std::uint32_t crc32c(std::span<const std::byte> bytes,
                                                std::uint32_t before = 0) noexcept;

/// The one that `kind` names; 0 for none.
[[nodiscard]] LINKSPAN_API std::uint32_t checksum(ChecksumKind kind, std::span<const std::byte> bytes,
                                                  std::uint32_t before = 0) noexcept;
[[nodiscard]] LINKSPAN_API std::uint32_t checksum(ChecksumKind kind, const Chain& chain,
                                                  std::uint32_t before = 0) noexcept;

}  // namespace linkspan
