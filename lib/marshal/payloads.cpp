// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/payloads.hpp"

#include <cstdint>
#include <cstring>
#include <random>

#include "lib/base/split_mix.hpp"
#include "linkspan/buffer/copy_ledger.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kIndexBytes = sizeof(std::uint32_t);

std::uint64_t draw() {
  thread_local std::uint64_t state = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }();
  return split_mix(state);
}

}  // namespace

std::string Payloads::add(Chain&& payload) {
  static_assert(kNonceBytes + kIndexBytes == kTicketBytes);
  if (payload.empty()) return {};
  if (chains_.empty()) {
    const std::array<std::uint64_t, 2> drawn = {draw(), draw()};
    std::memcpy(nonce_.data(), drawn.data(), nonce_.size());  // tidy: moves handles, not bytes
  }
  const auto index = static_cast<std::uint32_t>(chains_.size());
  chains_.push_back(std::move(payload));
  std::string ticket(nonce_.data(), nonce_.size());
  ticket.append(reinterpret_cast<const char*>(&index), kIndexBytes);
  return ticket;
}

std::optional<std::size_t> Payloads::index_of(std::string_view ticket) const noexcept {
  if (ticket.size() != kTicketBytes || !ticket.starts_with({nonce_.data(), nonce_.size()}))
    return std::nullopt;
  std::uint32_t index = 0;
  std::memcpy(&index, ticket.data() + kNonceBytes, kIndexBytes);  // tidy: moves handles, not bytes
  if (index >= chains_.size()) return std::nullopt;
  return index;
}

const Chain* Payloads::find(std::string_view value) const noexcept {
  const std::optional<std::size_t> index = index_of(value);
  return index ? &chains_[*index] : nullptr;
}

Chain Payloads::take(std::string_view value) {
  if (const std::optional<std::size_t> index = index_of(value)) return std::move(chains_[*index]);
  if (value.empty()) return {};
  count_copied(value.size(), CopyPlace::below_threshold);
  return Chain(Slice::adopt(std::string(value)));
}

std::size_t Payloads::size_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const Chain& chain : chains_) bytes += chain.size();
  return bytes;
}

}  // namespace linkspan
