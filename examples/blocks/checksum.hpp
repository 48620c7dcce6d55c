// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The checksum of blocks: CRC-32 as in RFC 1952, by zlib, slice by slice.
#pragma once

#include <zlib.h>

#include <cstdint>

#include "linkspan/buffer/chain.hpp"

namespace linkspan::blocks {

/// `checksum` is that of what came before; 0 at the beginning.
inline std::uint32_t crc32_update(std::uint32_t checksum, const Slice& slice) {
  return static_cast<std::uint32_t>(
      ::crc32_z(checksum, reinterpret_cast<const unsigned char*>(slice.data()), slice.size()));
}

inline std::uint32_t crc32_update(std::uint32_t checksum, const Chain& chain) {
  for (const Slice& slice : chain) checksum = crc32_update(checksum, slice);
  return checksum;
}

}  // namespace linkspan::blocks
