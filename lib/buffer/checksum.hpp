// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The two ways to compute a CRC, for tests to compare. Both take and return the inverted state, as the loop
// of the textbook has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linkspan/buffer/checksum.hpp"

namespace linkspan::detail {

[[nodiscard]] std::uint32_t crc_by_tables(ChecksumKind kind, std::uint32_t state, const std::byte* data,
                                          std::size_t size) noexcept;

/// Whether this processor multiplies without carries; if not, the next one must not be called.
[[nodiscard]] bool has_carryless_multiplication() noexcept;
[[nodiscard]] std::uint32_t crc_by_multiplication(ChecksumKind kind, std::uint32_t state,
                                                  const std::byte* data, std::size_t size) noexcept;

}  // namespace linkspan::detail
