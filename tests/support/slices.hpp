// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Slices that count their releases, and chains cut into pieces.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/slice.hpp"

namespace linkspan::test {

/// Memory that counts how many of its slices' storages are alive; safe from any thread.
class Releases {
 public:
  /// A copy of `text` whose memory is counted until its last slice is gone.
  [[nodiscard]] Slice slice(std::string_view text) {
    auto owner = std::make_shared<const std::string>(text);
    made_.fetch_add(1);
    const auto bytes = std::as_bytes(std::span(*owner));
    return Slice::adopt(bytes, [this, owner = std::move(owner)] { released_.fetch_add(1); });
  }

  [[nodiscard]] int made() const { return made_.load(); }
  [[nodiscard]] int released() const { return released_.load(); }
  [[nodiscard]] int alive() const { return made() - released(); }

 private:
  std::atomic<int> made_{0};
  std::atomic<int> released_{0};
};

/// `text` as a chain of slices of `piece` bytes each (the last may be shorter), with memory of their own.
[[nodiscard]] inline Chain chain_of(std::string_view text, std::size_t piece) {
  Chain chain;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    chain.append(Slice::copy(text.substr(0, piece)));
  }
  return chain;
}

}  // namespace linkspan::test
