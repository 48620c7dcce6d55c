// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/chain.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::chain_of;
using linkspan::test::Releases;

namespace {

static_assert(sizeof(Chain) == (kBufferDebug ? 184 : 120));
static_assert(!std::is_copy_constructible_v<Chain> && !std::is_copy_assignable_v<Chain>);
static_assert(std::is_nothrow_move_constructible_v<Chain> && std::is_nothrow_move_assignable_v<Chain>);
static_assert(std::is_same_v<decltype(*std::declval<Chain&>().begin()), const Slice&>);
static_assert(std::is_same_v<decltype(std::declval<Chain&>()[0]), const Slice&>);

constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz";

std::vector<std::string> pieces(const Chain& chain) {
  std::vector<std::string> found;
  for (const Slice& slice : chain) found.emplace_back(slice.view());
  return found;
}

}  // namespace

TEST_CASE("an empty chain has no slices and no bytes") {
  const Chain chain;
  CHECK(chain.empty());
  CHECK(chain.size() == 0);
  CHECK(chain.slice_count() == 0);
  CHECK(chain.begin() == chain.end());
  CHECK(chain == std::string_view());
  CHECK(chain.to_string().empty());
  CHECK(chain.flatten().empty());
}

TEST_CASE("a chain holds slices in order and drops empty ones") {
  Chain chain(Slice::copy("b"));
  chain.append(Slice());
  chain.append(Slice::copy("cd"));
  chain.prepend(Slice::copy("a"));
  chain.prepend(Slice());
  chain.append(Chain());
  chain.prepend(Chain());
  CHECK(pieces(chain) == std::vector<std::string>{"a", "b", "cd"});
  CHECK(chain.size() == 4);
  CHECK(chain.front().view() == "a");
  CHECK(chain.back().view() == "cd");
  CHECK(Chain(Slice()).empty());
}

TEST_CASE("an empty slice's memory is released as it is dropped") {
  Releases releases;
  Chain chain;
  chain.append(releases.slice(""));
  chain.prepend(releases.slice(""));
  chain.append_joined(releases.slice(""));
  CHECK(releases.alive() == 0);
}

TEST_CASE("the ring keeps its order when it wraps around and grows, from every start") {
  Releases releases;
  for (std::size_t start = 0; start < 4; ++start) {
    for (std::size_t prepended = 0; prepended < 9; ++prepended) {
      Chain chain;
      for (std::size_t i = 0; i < start; ++i) chain.append(releases.slice("-"));
      for (std::size_t i = 0; i < start; ++i) static_cast<void>(chain.pop_front());
      std::string expected;
      for (std::size_t i = 0; i < prepended; ++i) {
        chain.prepend(releases.slice(kAlphabet.substr(i, 1)));
        expected.insert(0, kAlphabet.substr(i, 1));
      }
      for (std::size_t i = 10; i < kAlphabet.size(); ++i) {
        chain.append(releases.slice(kAlphabet.substr(i, 1)));
        expected += kAlphabet[i];
        REQUIRE(chain == expected);
      }
      while (!chain.empty()) {
        REQUIRE(chain.pop_front().view() == expected.substr(0, 1));
        expected.erase(0, 1);
      }
    }
  }
  CHECK(releases.alive() == 0);
}

TEST_CASE("a moved chain leaves an empty one that works") {
  Releases releases;
  for (const std::size_t slices : {1u, 4u, 5u, 20u}) {
    Chain chain;
    for (std::size_t i = 0; i < slices; ++i) chain.append(releases.slice("x"));
    Chain moved = std::move(chain);
    CHECK(chain.empty());
    CHECK(chain.size() == 0);
    CHECK(moved.size() == slices);
    chain.append(releases.slice("new"));
    CHECK(chain == "new");
    chain = std::move(moved);
    CHECK(chain.size() == slices);
    Chain& same = chain;
    chain = std::move(same);
    CHECK(chain.size() == slices);
  }
  CHECK(releases.alive() == 0);
}

TEST_CASE("appending to an empty chain steals the ring") {
  Chain long_one = chain_of(kAlphabet, 1);
  const Slice* where = &long_one[0];
  Chain chain;
  chain.append(std::move(long_one));
  CHECK(&chain[0] == where);
  CHECK(long_one.empty());
  CHECK(chain == kAlphabet);
}

TEST_CASE("appending and prepending a chain moves its slices, and their bytes stay where they are") {
  for (std::size_t first = 0; first < 10; ++first) {
    for (std::size_t second = 0; second < 10; ++second) {
      Chain a = chain_of(kAlphabet.substr(0, first), 1);
      Chain b = chain_of(kAlphabet.substr(first, second), 1);
      std::vector<const std::byte*> where;
      for (const Slice& slice : a) where.push_back(slice.data());
      for (const Slice& slice : b) where.push_back(slice.data());
      const bool prepend = (first + second) % 2 == 0;
      if (prepend) {
        b.prepend(std::move(a));
      } else {
        a.append(std::move(b));
      }
      const Chain& both = prepend ? b : a;
      const Chain& none = prepend ? a : b;
      REQUIRE(both == kAlphabet.substr(0, first + second));
      REQUIRE(std::ranges::equal(both.begin(), both.end(), where.begin(), where.end(), {}, &Slice::data));
      REQUIRE(none.empty());
      REQUIRE(none.size() == 0);
    }
  }
}

TEST_CASE("slices are joined only where append_joined is asked to, and only neighbours") {
  const Slice memory = Slice::copy("abcdef");
  Chain chain;
  chain.append(memory.slice(0, 2));
  chain.append(memory.slice(2, 2));
  CHECK(chain.slice_count() == 2);
  chain.append_joined(memory.slice(4, 2));
  chain.append_joined(memory.slice(0, 1));
  chain.append_joined(Slice());
  CHECK(pieces(chain) == std::vector<std::string>{"ab", "cdef", "a"});
  CHECK(chain.size() == 7);
}

TEST_CASE("splitting cuts at every byte and shares at most one slice") {
  for (const std::size_t piece : {1u, 3u, 5u, 26u}) {
    for (std::size_t size = 0; size <= kAlphabet.size(); ++size) {
      Chain back = chain_of(kAlphabet, piece);
      const std::size_t slices = back.slice_count();
      const Chain front = back.split_front(size);
      REQUIRE(front == kAlphabet.substr(0, size));
      REQUIRE(back == kAlphabet.substr(size));
      REQUIRE(front.size() == size);
      REQUIRE(back.size() == kAlphabet.size() - size);
      REQUIRE(front.slice_count() + back.slice_count() <= slices + 1);
    }
  }
}

TEST_CASE("dropping from both ends releases what is gone, and nothing else") {
  Releases releases;
  Chain chain;
  for (int i = 0; i < 10; ++i) chain.append(releases.slice("0123456789"));
  chain.drop_front(0);
  chain.drop_back(0);
  chain.drop_front(15);
  CHECK(releases.released() == 1);
  chain.drop_back(10);
  CHECK(releases.released() == 2);
  chain.drop_back(5);
  CHECK(releases.released() == 2);
  CHECK(chain.size() == 70);
  CHECK(chain.front().view() == "56789");
  CHECK(chain.back().view() == "01234");
  chain.drop_front(5);
  CHECK(releases.released() == 3);
  chain.drop_back(65);
  CHECK(chain.empty());
  CHECK(releases.alive() == 0);
}

TEST_CASE("a completion that runs while a chain lets go may use that chain") {
  struct Drop {
    const char* name;
    void (*run)(Chain&);
  };
  for (const Drop& drop : {Drop{"drop_front", [](Chain& chain) { chain.drop_front(4); }},
                           Drop{"drop_back", [](Chain& chain) { chain.drop_back(4); }},
                           Drop{"clear", [](Chain& chain) { chain.clear(); }}}) {
    CAPTURE(std::string_view(drop.name));
    Chain chain;
    std::size_t bytes_seen = 0;
    std::size_t bytes_promised = 0;
    for (int i = 0; i < 4; ++i) {
      chain.append(Slice::borrow(std::as_bytes(std::span(kAlphabet.substr(0, 1))), [&] {
        bytes_promised += chain.size();
        bytes_seen += chain.to_string().size();
      }));
    }
    drop.run(chain);
    CHECK(chain.empty());
    CHECK(bytes_promised == 3 + 2 + 1);
    CHECK(bytes_seen == 3 + 2 + 1);
  }
}

TEST_CASE("a completion that runs while a chain is dropped from may append to it") {
  Chain chain;
  chain.append(Slice::borrow(std::as_bytes(std::span(kAlphabet)), [&chain] {
    for (int i = 0; i < 10; ++i) chain.append(Slice::immortal("x"));
  }));
  chain.append(Slice::immortal("!"));
  chain.drop_front(kAlphabet.size());
  CHECK(chain == "!xxxxxxxxxx");
}

TEST_CASE("sharing makes a second chain over the same memory") {
  Releases releases;
  {
    Chain chain;
    for (std::size_t i = 0; i < kAlphabet.size(); i += 5)
      chain.append(releases.slice(kAlphabet.substr(i, 5)));
    for (std::size_t offset = 0; offset <= kAlphabet.size(); ++offset) {
      for (std::size_t size = 0; size <= kAlphabet.size() - offset; ++size) {
        REQUIRE(chain.share(offset, size) == kAlphabet.substr(offset, size));
      }
    }
    const Chain all = chain.share();
    CHECK(all[0].data() == chain[0].data());
    chain.clear();
    CHECK(releases.released() == 0);
    CHECK(all == kAlphabet);
  }
  CHECK(releases.alive() == 0);
}

TEST_CASE("exporting to iovecs keeps both limits and cuts the last entry") {
  const Chain chain = chain_of(kAlphabet, 4);
  for (std::size_t entries = 0; entries <= 8; ++entries) {
    for (std::size_t max_bytes = 0; max_bytes <= kAlphabet.size() + 2; ++max_bytes) {
      std::array<iovec, 8> vectors{};
      const Chain::IovecExport exported = chain.export_iovec(std::span(vectors).first(entries), max_bytes);
      std::string text;
      for (std::size_t i = 0; i < exported.count; ++i) {
        REQUIRE(vectors[i].iov_len != 0);
        text.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
      }
      REQUIRE(text == kAlphabet.substr(0, std::min(entries * 4, max_bytes)));
      REQUIRE(exported.bytes == text.size());
    }
  }
  std::array<iovec, 8> vectors{};
  CHECK(chain.export_iovec(vectors).bytes == kAlphabet.size());
}

TEST_CASE("chains compare by their bytes, however they are cut") {
  for (const std::size_t piece : {1u, 2u, 7u, 26u}) {
    const Chain chain = chain_of(kAlphabet, piece);
    CHECK(chain == chain_of(kAlphabet, 3));
    CHECK(chain == kAlphabet);
    CHECK(chain != kAlphabet.substr(1));
    CHECK(chain != chain_of(kAlphabet.substr(1), 3));
    std::string other(kAlphabet);
    other.back() = 'Z';
    CHECK(chain != other);
    CHECK(chain != chain_of(other, 4));
    for (std::size_t size = 0; size <= kAlphabet.size(); ++size) {
      REQUIRE(chain.starts_with(kAlphabet.substr(0, size)));
      std::string wrong(kAlphabet.substr(0, size));
      if (!wrong.empty()) wrong.back() = '?';
      REQUIRE(chain.starts_with(wrong) == wrong.empty());
    }
    CHECK_FALSE(chain.starts_with(std::string(kAlphabet) + "!"));
  }
}

TEST_CASE("copies out of a chain are complete at every offset, and counted") {
  const Chain chain = chain_of(kAlphabet, 4);
  for (std::size_t offset = 0; offset <= kAlphabet.size(); ++offset) {
    for (std::size_t size = 0; size <= kAlphabet.size() - offset; ++size) {
      std::string text(size, '\0');
      chain.copy_to(std::as_writable_bytes(std::span(text)), offset);
      REQUIRE(text == kAlphabet.substr(offset, size));
    }
  }
  const CopyScope scope;
  CHECK(chain.to_string() == kAlphabet);
  CHECK(scope.copied()[CopyPlace::user] == kAlphabet.size());
}

TEST_CASE("flattening copies only when there are several slices") {
  const Chain one(Slice::copy(kAlphabet));
  const Chain several = chain_of(kAlphabet, 9);
  const CopyScope scope;
  CHECK(one.flatten().data() == one[0].data());
  CHECK(scope.copied().total() == 0);
  CHECK(several.flatten(CopyPlace::framing).view() == kAlphabet);
  CHECK(scope.copied()[CopyPlace::framing] == kAlphabet.size());
}

TEST_CASE("slices are inserted at every offset, and at most one slice is cut in two") {
  const std::string text = "0123456789";
  for (std::size_t offset = 0; offset <= text.size(); ++offset) {
    CAPTURE(offset);
    Chain chain = chain_of(text, 3);
    const std::size_t slices = chain.slice_count();
    Chain other;
    for (const char* piece : {"a", "b", "c", "d", "e", "f"})
      other.append(Slice::copy(std::string_view(piece)));
    chain.insert(offset, std::move(other));
    CHECK(other.empty());
    CHECK(chain == text.substr(0, offset) + "abcdef" + text.substr(offset));
    CHECK(chain.slice_count() <= slices + 7);
    chain.insert(offset, Slice::copy("-"));
    chain.insert(offset, Slice());
    chain.insert(offset, Chain());
    CHECK(chain == text.substr(0, offset) + "-abcdef" + text.substr(offset));
  }
}

TEST_CASE("every range can be cut out, and no byte is copied") {
  const std::string text = "0123456789";
  for (std::size_t offset = 0; offset <= text.size(); ++offset) {
    for (std::size_t size = 0; offset + size <= text.size(); ++size) {
      CAPTURE(offset);
      CAPTURE(size);
      Chain chain = chain_of(text, 3);
      const CopyScope scope;
      Chain taken = chain.cut(offset, size);
      CHECK(scope.copied().total() == 0);
      CHECK(taken == text.substr(offset, size));
      CHECK(chain == text.substr(0, offset) + text.substr(offset + size));
    }
  }
}

TEST_CASE("bytes go in front of a chain in place while its first slice has headroom") {
  Block block = heap_allocator().allocate(16);
  block.drop_front(4);
  block.data()[0] = std::byte{'x'};
  Chain chain(std::move(block).freeze_all(1));
  CHECK(chain.prepend_in_place(std::as_bytes(std::span("len:", 4))));
  CHECK(chain == "len:x");
  CHECK(chain.slice_count() == 1);
  CHECK_FALSE(chain.prepend_in_place(std::as_bytes(std::span("y", 1))));
  CHECK(chain == "len:x");
  CHECK_FALSE(Chain().prepend_in_place(std::as_bytes(std::span("y", 1))));
}

TEST_CASE("a few bytes that keep large blocks alive show in pinned_size, and compact lets the blocks go") {
  BlockPool pool;
  const auto few_bytes_of_a_block = [&pool](std::string_view text) {
    Block block = pool.allocate(256 * 1024);
    for (std::size_t i = 0; i < text.size(); ++i) block.data()[i] = static_cast<std::byte>(text[i]);
    return std::move(block).freeze_all(text.size());
  };
  Chain chain(few_bytes_of_a_block("one "));
  chain.append(few_bytes_of_a_block("two "));
  const Slice twice = few_bytes_of_a_block("three");
  chain.append(twice.slice(0, 2));
  chain.append(Slice::immortal("..."));
  chain.append(twice.slice(2, 3));
  chain.append(Slice::copy("a block that is in full use"));
  const std::string text = chain.to_string();
  const std::size_t used = sizeof("a block that is in full use") - 1;
  CHECK(chain.pinned_size() == 3 * 256 * 1024 + used);
  CHECK(pool.statistics().live_bytes == 3 * 256 * 1024);

  const CopyScope scope;
  CHECK(chain.compact() == 3 * 256 * 1024 - 13);
  CHECK(scope.copied()[CopyPlace::compact] == 13);
  CHECK(chain == text);
  CHECK(chain.pinned_size() == used + 13);
  CHECK(pool.statistics().live_bytes == 256 * 1024);  // `twice` holds it too
  CHECK(chain.compact() == 0);
}

TEST_CASE("a completion that runs while a chain is compacted may use that chain") {
  static constexpr std::array<std::byte, 1024> kLarge{};
  struct Completion {
    Chain& chain;
    std::vector<std::size_t>* seen;

    void operator()() {
      if (seen == nullptr) return;
      seen->push_back(chain.size());
      chain.append(Slice::borrow(kLarge, Completion{chain, nullptr}));  // where a released one was, perhaps
    }
  };
  Chain chain;
  std::vector<std::size_t> seen;
  for (int i = 0; i < 4; ++i) {
    chain.append(Slice::borrow(kLarge, Completion{chain, &seen}).slice(0, 3));
  }
  CHECK(chain.compact() == 4 * kLarge.size() - 4 * 3);
  CHECK(seen == std::vector<std::size_t>{12, 12 + 1024, 12 + 2048, 12 + 3072});
  CHECK(chain.size() == 12 + 4 * kLarge.size());
}

TEST_CASE("compact leaves alone what is used enough, what would not shrink, and everything when refused") {
  BlockPool pool;
  const auto chain_with = [&pool](std::size_t size) {
    Block block = pool.allocate(512);
    return Chain(std::move(block).freeze_all(size));
  };
  Chain used = chain_with(128);
  CHECK(used.compact(4) == 0);
  CHECK(used.compact(3) == 384);
  Chain odd(Slice::copy(std::string(1003, 'x')).slice(0, 250));
  CHECK(odd.compact(4) == 753);  // less than a quarter, however it is rounded
  Chain small = chain_with(1);
  CHECK(small.compact(4, pool) == 0);  // another block of 512 bytes would not help
  BlockPool full({.budget_bytes = 100});
  CHECK(small.compact(4, full) == 0);
  CHECK(small.size() == 1);
  CHECK(small.pinned_size() == 512);
  CHECK(Chain().compact() == 0);
}
