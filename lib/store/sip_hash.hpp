// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): without the secret nobody
// can choose keys that meet in one place of a table.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace linkspan {

struct SipKey {
  std::uint64_t first;
  std::uint64_t second;
};

class SipHash {
 public:
  [[nodiscard]] static std::uint64_t of(std::string_view bytes, const SipKey& key) noexcept {
    SipHash hash(key);
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; at += 8, left -= 8) hash.add(load(at, 8));
    hash.add(load(at, left) | static_cast<std::uint64_t>(bytes.size()) << 56);
    hash.v2_ ^= 0xff;
    for (int i = 0; i < 3; ++i) hash.round();
    return hash.v0_ ^ hash.v1_ ^ hash.v2_ ^ hash.v3_;
  }

 private:
  explicit SipHash(const SipKey& key) noexcept
      : v0_(key.first ^ 0x736f6d6570736575),
        v1_(key.second ^ 0x646f72616e646f6d),
        v2_(key.first ^ 0x6c7967656e657261),
        v3_(key.second ^ 0x7465646279746573) {}

  // Little-endian everywhere; compilers make one load of it.
  static std::uint64_t load(const char* at, std::size_t size) noexcept {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < size; ++i) {
      word |= std::uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
    }
    return word;
  }

  void add(std::uint64_t word) noexcept {
    v3_ ^= word;
    round();
    v0_ ^= word;
  }

  void round() noexcept {
    v0_ += v1_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v3_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  std::uint64_t v0_;
  std::uint64_t v1_;
  std::uint64_t v2_;
  std::uint64_t v3_;
};

}  // namespace linkspan
