// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Operations on chains, chosen one by one, each done to a std::string too. The property test draws the
// choices from a generator, the fuzz target from its input.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/buffer/cursor.hpp"
#include "support/slices.hpp"

namespace linkspan::test {

/// `Choices` has `std::size_t below(std::size_t bound)`: a number below bound, which is not 0.
template <class Choices>
class ChainWorld {
 public:
  static constexpr std::size_t kMaxBytes = 4000;

  explicit ChainWorld(Choices& choices) : choices_(choices) {}

  /// Fills the chains with pieces of all kinds.
  void start() {
    for (Pair& pair : pairs_) {
      for (std::size_t i = below(8); i != 0; --i) pair.chain.append(piece(pair.text, pair.text.size()));
    }
  }

  /// One operation, then everything it touched is compared. False: a chain is not what its string is.
  [[nodiscard]] bool step() {
    const std::size_t index = below(pairs_.size());
    Pair& one = pairs_[index];
    Pair& other = pairs_[(index + 1 + below(pairs_.size() - 1)) % pairs_.size()];
    operate(one, other);
    if (one.text.size() > kMaxBytes) {
      one.chain.clear();
      one.text.clear();
    }
    check(one);
    check(other);
    return matches_;
  }

  /// Lets all chains go. False: some memory was not given back.
  [[nodiscard]] bool clear() {
    for (Pair& pair : pairs_) {
      pair.chain.clear();
      pair.text.clear();
    }
    immortal_.clear();
    return releases_.alive() == 0 && pool_.statistics().live_bytes == 0;
  }

 private:
  struct Pair {
    Chain chain;
    std::string text;
  };

  void operate(Pair& one, Pair& other) {
    std::string& text = one.text;
    switch (below(20)) {
      case 0:
      case 1: one.chain.append(piece(text, text.size())); break;
      case 2: one.chain.prepend(piece(text, 0)); break;
      case 3:
        one.chain.append(std::move(other.chain));
        text += std::exchange(other.text, {});
        break;
      case 4:
        one.chain.prepend(std::move(other.chain));
        text.insert(0, std::exchange(other.text, {}));
        break;
      case 5: {
        const std::size_t size = below(text.size() + 1);
        other.chain = one.chain.split_front(size);
        other.text = text.substr(0, size);
        text.erase(0, size);
        break;
      }
      case 6: {
        const std::size_t size = below(text.size() + 1);
        one.chain.drop_front(size);
        text.erase(0, size);
        break;
      }
      case 7: {
        const std::size_t size = below(text.size() + 1);
        one.chain.drop_back(size);
        text.resize(text.size() - size);
        break;
      }
      case 8: {
        const auto [offset, size] = some_range(text);
        other.chain = one.chain.share(offset, size);
        other.text = text.substr(offset, size);
        break;
      }
      case 9:
        if (!one.chain.empty()) {
          const Slice front = one.chain.pop_front();
          expect(text.starts_with(front.view()));
          text.erase(0, front.size());
        }
        break;
      case 10: {
        Slice flat = one.chain.flatten();
        const std::size_t cut = below(flat.size() + 1);
        other.chain = Chain(flat.split_front(cut));
        other.chain.append_joined(std::move(flat));
        other.text = text;
        break;
      }
      case 11: std::swap(one, other); break;
      case 12: export_iovec(one); break;
      case 13: read(one); break;
      case 14: expect((one.chain == other.chain) == (text == other.text)); break;
      case 15: {
        const std::size_t offset = below(text.size() + 1);
        if (below(2) == 0) {
          one.chain.insert(offset, piece(text, offset));
        } else {
          one.chain.insert(offset, std::move(other.chain));
          text.insert(offset, std::exchange(other.text, {}));
        }
        break;
      }
      case 16: {
        const auto [offset, size] = some_range(text);
        other.chain = one.chain.cut(offset, size);
        other.text = text.substr(offset, size);
        text.erase(offset, size);
        break;
      }
      case 17: change(one); break;
      case 18: {
        const std::size_t pinned = one.chain.pinned_size();
        const std::size_t freed = one.chain.compact(1 + below(4), pool_);
        expect(one.chain.pinned_size() + freed == pinned);
        break;
      }
      default: write(one); break;
    }
  }

  std::size_t below(std::size_t bound) { return choices_.below(bound); }
  void expect(bool holds) { matches_ = matches_ && holds; }

  std::pair<std::size_t, std::size_t> some_range(const std::string& text) {
    const std::size_t offset = below(text.size() + 1);
    return {offset, below(text.size() - offset + 1)};
  }
  std::string some_text() {
    std::string text(below(40), '\0');
    for (char& c : text) c = static_cast<char>('a' + below(4));
    return text;
  }

  // A slice of memory of some kind; its bytes are put into `text` at `offset`.
  Slice piece(std::string& text, std::size_t offset) {
    const std::string bytes = some_text();
    text.insert(offset, bytes);
    switch (below(5)) {
      case 0: return Slice::adopt(std::string(bytes));
      case 1: return Slice::immortal(immortal_.emplace_back(bytes));
      case 2: {
        Block block = pool_.allocate(bytes.size() + 20);
        block.drop_front(below(20));
        for (std::size_t i = 0; i < bytes.size(); ++i) block.data()[i] = static_cast<std::byte>(bytes[i]);
        return std::move(block).freeze_all(bytes.size());
      }
      default: return releases_.slice(bytes);
    }
  }

  // Small pieces and references, integers too, through a writer.
  void write(Pair& pair) {
    ChainWriter writer(pool_, {.reference_threshold_bytes = below(40), .block_bytes = 1 + below(600)});
    for (std::size_t i = below(6); i != 0; --i) {
      switch (below(4)) {
        case 0: {
          const std::string text = some_text();
          writer.write(text);
          pair.text += text;
          break;
        }
        case 1: {
          std::string text;
          writer.append(piece(text, 0));
          pair.text += text;
          break;
        }
        case 2: {
          const auto value = static_cast<std::int16_t>(below(65536) - 32768);
          const auto bits = static_cast<std::uint16_t>(value);
          writer.write_big_endian(value);
          pair.text += static_cast<char>(bits >> 8);
          pair.text += static_cast<char>(bits & 255);
          break;
        }
        default: {
          const auto value = static_cast<std::int64_t>(below(200)) - 100;
          writer.write_zigzag(value);
          auto bits = static_cast<std::uint64_t>(value < 0 ? -2 * value - 1 : 2 * value);
          for (; bits >= 128; bits /= 128) pair.text += static_cast<char>(bits % 128 + 128);
          pair.text += static_cast<char>(bits);
          break;
        }
      }
    }
    pair.chain.append(writer.take());
  }

  // Changes bytes of the first slice, which nobody else may see, or puts some in front of it.
  void change(Pair& pair) {
    if (pair.chain.empty()) return;
    if (below(2) == 0) {
      const std::string front = some_text();
      const std::size_t headroom = pair.chain.front().headroom();
      const bool done = pair.chain.prepend_in_place(std::as_bytes(std::span(front)));
      expect(done == (front.size() <= headroom));
      if (done) pair.text.insert(0, front);
      return;
    }
    Block block = Block::make_unique(pair.chain.pop_front(), pool_);
    const std::size_t size = block.size();
    for (std::size_t i = 0; i < size; ++i) {
      pair.text[i] = static_cast<char>(pair.text[i] ^ 1);
      block.data()[i] ^= std::byte{1};
    }
    pair.chain.prepend(std::move(block).freeze_all(size));
  }

  void export_iovec(const Pair& pair) {
    std::array<iovec, 8> vectors{};
    const std::size_t max_bytes = below(pair.text.size() + 10);
    std::string text;
    const auto exported = pair.chain.export_iovec(std::span(vectors).first(below(9)), max_bytes);
    for (std::size_t i = 0; i < exported.count; ++i) {
      text.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
    }
    expect(text.size() == exported.bytes && exported.bytes <= max_bytes && pair.text.starts_with(text));
  }

  void read(const Pair& pair) {
    Cursor cursor(pair.chain);
    for (std::size_t position = 0; cursor.remaining() != 0;) {
      const std::string_view rest = std::string_view(pair.text).substr(position);
      const std::size_t size = 1 + below(rest.size());
      const std::string_view wanted = rest.substr(below(size), 1 + below(4));
      expect(cursor.find(static_cast<std::byte>(wanted.front())) == distance(rest.find(wanted.front())));
      expect(cursor.find(wanted) == distance(rest.find(wanted)));
      expect(cursor.find_any_of(wanted) == distance(rest.find_first_of(wanted)));
      expect(cursor.starts_with(wanted) == rest.starts_with(wanted));
      if (rest.size() >= 4) {
        Cursor ahead = cursor;
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(rest[i]);
        expect(ahead.read_big_endian<std::uint32_t>() == value);
      }
      expect(cursor.take(size) == rest.substr(0, size));
      position += size;
      expect(cursor.position() == position);
    }
  }
  static std::optional<std::size_t> distance(std::size_t found) {
    return found == std::string_view::npos ? std::nullopt : std::optional(found);
  }

  void check(const Pair& pair) {
    std::size_t bytes = 0;
    for (const Slice& slice : pair.chain) {
      expect(!slice.empty());
      bytes += slice.size();
    }
    expect(bytes == pair.chain.size() && pair.chain == pair.text);
  }

  Choices& choices_;
  Releases releases_;
  BlockPool pool_;
  std::deque<std::string> immortal_;  // outlives the chains
  std::array<Pair, 4> pairs_;
  bool matches_ = true;
};

}  // namespace linkspan::test
