// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
// Random sequences of operations on chains against std::string.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/cursor.hpp"
#include "support/sanitized.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::Releases;

namespace {

constexpr int kOperations = test::kSanitized ? 20'000 : 200'000;
constexpr std::size_t kMaxBytes = 4000;

// A few chains, each beside the string that it has to equal.
class World {
 public:
  explicit World(std::uint32_t seed) : generator_(seed) {}

  void step() {
    const std::size_t index = below(pairs_.size());
    Pair& one = pairs_[index];
    Pair& other = pairs_[(index + 1 + below(pairs_.size() - 1)) % pairs_.size()];
    switch (below(16)) {
      case 0:
      case 1: append(one); break;
      case 2: prepend(one); break;
      case 3:
        one.chain.append(std::move(other.chain));
        one.text += std::exchange(other.text, {});
        break;
      case 4:
        one.chain.prepend(std::move(other.chain));
        one.text.insert(0, std::exchange(other.text, {}));
        break;
      case 5: {
        const std::size_t size = below(one.text.size() + 1);
        other.chain = one.chain.split_front(size);
        other.text = one.text.substr(0, size);
        one.text.erase(0, size);
        break;
      }
      case 6: {
        const std::size_t size = below(one.text.size() + 1);
        one.chain.drop_front(size);
        one.text.erase(0, size);
        break;
      }
      case 7: {
        const std::size_t size = below(one.text.size() + 1);
        one.chain.drop_back(size);
        one.text.resize(one.text.size() - size);
        break;
      }
      case 8: {
        const std::size_t offset = below(one.text.size() + 1);
        const std::size_t size = below(one.text.size() - offset + 1);
        other.chain = one.chain.share(offset, size);
        other.text = one.text.substr(offset, size);
        break;
      }
      case 9:
        if (!one.chain.empty()) {
          const Slice front = one.chain.pop_front();
          matches_ = matches_ && one.text.starts_with(front.view());
          one.text.erase(0, front.size());
        }
        break;
      case 10: {
        Slice flat = one.chain.flatten();
        const std::size_t cut = below(flat.size() + 1);
        other.chain = Chain(flat.split_front(cut));
        other.chain.append_joined(std::move(flat));
        other.text = one.text;
        break;
      }
      case 11: std::swap(one, other); break;
      case 12: export_iovec(one); break;
      case 13: read(one); break;
      case 14: matches_ = matches_ && (one.chain == other.chain) == (one.text == other.text); break;
      default: append_joined(one); break;
    }
    if (one.text.size() > kMaxBytes) {
      one.chain.clear();
      one.text.clear();
    }
    check(one);
    check(other);
  }

  [[nodiscard]] bool matches() const { return matches_; }
  [[nodiscard]] const Releases& releases() const { return releases_; }
  void clear() {
    for (Pair& pair : pairs_) pair.chain.clear();
  }

 private:
  struct Pair {
    Chain chain;
    std::string text;
  };

  std::size_t below(std::size_t bound) { return generator_() % bound; }

  std::string some_text() {
    std::string text(below(40), '\0');
    for (char& c : text) c = static_cast<char>('a' + below(26));
    return text;
  }
  void append(Pair& pair) {
    const std::string text = some_text();
    pair.chain.append(releases_.slice(text));
    pair.text += text;
  }
  void prepend(Pair& pair) {
    const std::string text = some_text();
    pair.chain.prepend(releases_.slice(text));
    pair.text.insert(0, text);
  }
  void append_joined(Pair& pair) {
    const std::string text = some_text();
    const Slice memory = releases_.slice(text);
    const std::size_t cut = below(text.size() + 1);
    pair.chain.append_joined(memory.slice(0, cut));
    pair.chain.append_joined(memory.slice(cut, text.size() - cut));
    pair.text += text;
  }
  void export_iovec(const Pair& pair) {
    std::array<iovec, 8> vectors{};
    const std::size_t max_bytes = below(pair.text.size() + 10);
    std::string text;
    const auto exported = pair.chain.export_iovec(std::span(vectors).first(below(9)), max_bytes);
    for (std::size_t i = 0; i < exported.count; ++i) {
      text.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
    }
    matches_ = matches_ && text.size() == exported.bytes && exported.bytes <= max_bytes &&
               pair.text.starts_with(text);
  }
  void read(const Pair& pair) {
    Cursor cursor(pair.chain);
    std::size_t position = 0;
    while (cursor.remaining() != 0) {
      const std::size_t size = 1 + below(cursor.remaining());
      const auto byte = static_cast<std::byte>(pair.text[position + size - 1]);
      const std::size_t found = pair.text.find(static_cast<char>(byte), position);
      matches_ = matches_ && cursor.find(byte) == found - position;
      matches_ = matches_ && cursor.take(size) == std::string_view(pair.text).substr(position, size);
      position += size;
      matches_ = matches_ && cursor.position() == position;
    }
  }
  void check(const Pair& pair) {
    std::size_t bytes = 0;
    for (const Slice& slice : pair.chain) {
      matches_ = matches_ && !slice.empty();
      bytes += slice.size();
    }
    matches_ = matches_ && bytes == pair.chain.size() && pair.chain == pair.text;
  }

  std::mt19937 generator_;
  Releases releases_;
  std::array<Pair, 4> pairs_;
  bool matches_ = true;
};

}  // namespace

TEST_CASE("chains do what strings do, whatever the order of operations, and release everything") {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u}) {
    CAPTURE(seed);
    World world(seed);
    for (int i = 0; i < kOperations / 4; ++i) {
      CAPTURE(i);
      world.step();
      REQUIRE(world.matches());
    }
    world.clear();
    CHECK(world.releases().made() > kOperations / 100);
    CHECK(world.releases().alive() == 0);
  }
}
