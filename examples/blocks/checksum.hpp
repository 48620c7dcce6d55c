// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The checksum of blocks: CRC-32 as in RFC 1952, slice by slice.
#pragma once

#include <cstdint>

#include "linkspan/buffer/checksum.hpp"

namespace linkspan::blocks {

/// `checksum` is that of what came before; 0 at the beginning.
inline std::uint32_t crc32_update(std::uint32_t checksum, const Slice& slice) {
  return crc32(slice.bytes(), checksum);
}

inline std::uint32_t crc32_update(std::uint32_t checksum, const Chain& chain) {
  return linkspan::checksum(ChecksumKind::crc32, chain, checksum);
}

}  // namespace linkspan::blocks
