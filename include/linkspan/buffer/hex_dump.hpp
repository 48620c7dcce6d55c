// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// hex_dump: bytes as text, for logs and failed tests: offset, sixteen bytes in hexadecimal, the same in
// ASCII.
// Not for: parsing, or data that must not be in a log.
// Cost: a string of about five characters a byte shown.
// Threads: any.
#pragma once

#include <cstddef>
#include <string>

#include "linkspan/buffer/chain.hpp"

namespace linkspan {

/// The first `max_bytes` of `chain`, and how many more there are. Every line ends with '\n'.
[[nodiscard]] LINKSPAN_API std::string hex_dump(const Chain& chain, std::size_t max_bytes = 256);
[[nodiscard]] inline std::string hex_dump(const Slice& slice, std::size_t max_bytes = 256) {
  return hex_dump(Chain(slice), max_bytes);
}

}  // namespace linkspan
