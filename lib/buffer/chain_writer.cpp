// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/chain_writer.hpp"

#include <algorithm>

namespace linkspan {

std::span<std::byte> ChainWriter::reserve(std::size_t size) {
  if (error_) return {};
  if (block_.size() < size || !block_) {
    block_ = allocator_.allocate(std::max(size, options_.block_bytes));
    if (!block_) {
      error_ = make_error_code(errc::pool_exhausted);
      return {};
    }
  }
  return block_.writable();
}

void ChainWriter::commit(std::size_t size) {
  chain_.append_joined(block_.freeze(size));
}

void ChainWriter::write(std::span<const std::byte> bytes) {
  const CopyPlace place =
      bytes.size() < options_.reference_threshold_bytes ? CopyPlace::below_threshold : options_.place;
  while (!bytes.empty()) {
    const std::span<std::byte> to = reserve(1);
    if (to.empty()) return;
    const std::size_t part = std::min(to.size(), bytes.size());
    copy_bytes(to.data(), bytes.data(), part, place);
    commit(part);
    bytes = bytes.subspan(part);
  }
}

void ChainWriter::write_varint(std::uint64_t value) {
  constexpr std::size_t kVarintMaxBytes = 10;
  const std::span<std::byte> to = reserve(kVarintMaxBytes);
  if (to.empty()) return;
  std::size_t size = 0;
  for (; value >= 0x80; value >>= 7) to[size++] = static_cast<std::byte>(value | 0x80);
  to[size++] = static_cast<std::byte>(value);
  commit(size);
}

void ChainWriter::append(Slice slice) {
  if (error_) return;
  if (slice.size() >= options_.reference_threshold_bytes) {
    chain_.append(std::move(slice));
  } else {
    write(slice.bytes());
  }
}

void ChainWriter::append(Chain&& chain) {
  if (error_) return;
  if (std::ranges::all_of(chain.begin(), chain.end(), [this](const Slice& slice) {
        return slice.size() >= options_.reference_threshold_bytes;
      })) {
    chain_.append(std::move(chain));
    return;
  }
  while (!chain.empty()) append(chain.pop_front());
}

}  // namespace linkspan
