// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Numbers by chance from a seed: splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
// Generators", 2014). Equal seeds give equal numbers, on every platform.
#pragma once

#include <cstdint>

namespace linkspan {

[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t bits) noexcept {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return bits ^ (bits >> 31);
}

/// The next number; `state` starts as the seed.
[[nodiscard]] constexpr std::uint64_t split_mix(std::uint64_t& state) noexcept {
  state += 0x9E3779B97F4A7C15;
  return mix_bits(state);
}

}  // namespace linkspan
