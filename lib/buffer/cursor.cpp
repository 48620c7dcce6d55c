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

// Calls `search` with the bytes from here on, slice by slice, until it has found something in one of them.
template <class Search>
std::optional<std::size_t> Cursor::find_in_slices(Search search) const noexcept {
  Cursor ahead = *this;
  for (; ahead.slice_ != chain_->slice_count(); ahead.skip(ahead.contiguous().size())) {
    const std::span<const std::byte> part = ahead.contiguous();
    const std::size_t found =
        search(ahead, std::string_view(reinterpret_cast<const char*>(part.data()), part.size()));
    if (found != std::string_view::npos) return ahead.position_ - position_ + found;
  }
  return std::nullopt;
}

std::optional<std::size_t> Cursor::find(std::byte byte) const noexcept {
  return find_in_slices(
      [byte](const Cursor&, std::string_view part) { return part.find(static_cast<char>(byte)); });
}

std::optional<std::size_t> Cursor::find_any_of(std::string_view bytes) const noexcept {
  std::array<bool, 256> wanted{};
  for (const char byte : bytes) wanted[static_cast<unsigned char>(byte)] = true;
  return find_in_slices([&wanted](const Cursor&, std::string_view part) {
    const auto hit =
        std::ranges::find_if(part, [&](char byte) { return wanted[static_cast<unsigned char>(byte)]; });
    return hit == part.end() ? std::string_view::npos : static_cast<std::size_t>(hit - part.begin());
  });
}

std::optional<std::size_t> Cursor::find(std::string_view sequence) const noexcept {
  if (sequence.empty()) return 0;
  return find_in_slices([sequence](const Cursor& here, std::string_view part) {
    std::size_t found = part.find(sequence);
    if (found != std::string_view::npos) return found;
    // It may begin in this slice and end in another one.
    found = part.size() < sequence.size() ? 0 : part.size() - sequence.size() + 1;
    for (found = part.find(sequence.front(), found); found != std::string_view::npos;
         found = part.find(sequence.front(), found + 1)) {
      Cursor candidate = here;
      candidate.skip(found);
      if (candidate.starts_with(sequence)) return found;
    }
    return found;
  });
}

bool Cursor::starts_with(std::string_view text) const noexcept {
  if (text.size() > remaining()) return false;
  Cursor ahead = *this;
  while (!text.empty()) {
    const std::size_t part = std::min(text.size(), ahead.contiguous().size());
    if (std::memcmp(text.data(), ahead.contiguous().data(), part) != 0) return false;
    text.remove_prefix(part);
    ahead.skip(part);
  }
  return true;
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
