// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/cursor.hpp"

#include <algorithm>
#include <cstring>

namespace linkspan {

void Cursor::skip(std::size_t size) noexcept {
  LINKSPAN_ASSERT(size <= remaining(), "skipped bytes are inside the chain");
  position_ += size;
  offset_ += size;
  while (slice_ < chain_->slice_count() && offset_ >= (*chain_)[slice_].size()) {
    offset_ -= (*chain_)[slice_].size();
    ++slice_;
  }
}

std::span<const std::byte> Cursor::contiguous() const noexcept {
  if (slice_ == chain_->slice_count()) return {};
  return (*chain_)[slice_].bytes().subspan(offset_);
}

Cursor::Varint Cursor::read_varint() noexcept {
  constexpr unsigned kLastShift = 63;
  Cursor ahead = *this;
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift <= kLastShift; shift += 7) {
    if (ahead.remaining() == 0) return {VarintStatus::incomplete, 0};
    const auto byte = static_cast<std::uint64_t>(ahead.next_byte());
    if (shift == kLastShift && byte > 1) break;  // beyond 64 bits, or an eleventh byte announced
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      *this = ahead;
      return {VarintStatus::ok, value};
    }
  }
  return {VarintStatus::malformed, 0};
}

std::optional<std::size_t> Cursor::find(std::byte byte) const noexcept {
  std::size_t distance = 0;
  std::size_t offset = offset_;
  for (std::size_t i = slice_; i < chain_->slice_count(); ++i) {
    const std::span<const std::byte> part = (*chain_)[i].bytes().subspan(offset);
    const void* hit = std::memchr(part.data(), static_cast<int>(byte), part.size());
    if (hit != nullptr) {
      return distance + static_cast<std::size_t>(static_cast<const std::byte*>(hit) - part.data());
    }
    distance += part.size();
    offset = 0;
  }
  return std::nullopt;
}

Chain Cursor::take(std::size_t size) {
  LINKSPAN_ASSERT(size <= remaining(), "taken bytes are inside the chain");
  Cursor ahead = *this;
  Chain taken;
  while (taken.size() != size) {
    const std::size_t part = std::min(size - taken.size(), ahead.contiguous().size());
    taken.append((*chain_)[ahead.slice_].slice(ahead.offset_, part));
    ahead.skip(part);
  }
  *this = ahead;
  return taken;
}

void Cursor::copy_to(std::span<std::byte> to) noexcept {
  LINKSPAN_ASSERT(to.size() <= remaining(), "copied bytes are inside the chain");
  while (!to.empty()) {
    const std::size_t part = std::min(to.size(), contiguous().size());
    copy_bytes(to.data(), contiguous().data(), part, CopyPlace::user);
    skip(part);
    to = to.subspan(part);
  }
}

}  // namespace linkspan
