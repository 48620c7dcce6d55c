// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/block.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "support/sanitized.hpp"

#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/copy_ledger.hpp"

using namespace linkspan;

namespace {

static_assert(sizeof(Block) == (kBufferDebug ? 40 : 24));
static_assert(!std::is_copy_constructible_v<Block> && !std::is_copy_assignable_v<Block>);
static_assert(std::is_nothrow_move_constructible_v<Block>);
// Freezing everything consumes the block.
template <class T>
concept FreezesAllInPlace = requires(T& block) {
  block.freeze_all(1);
};
static_assert(!FreezesAllInPlace<Block>);

// Counts the blocks whose memory is not given back.
struct CountingStorage final : Storage {
  CountingStorage(std::size_t capacity, int& alive_in)
      : Storage(nullptr, capacity, Access::writable,
                [](Storage* self) noexcept {
                  auto* storage = static_cast<CountingStorage*>(self);
                  --storage->alive;
                  delete storage;
                }),
        alive(alive_in),
        bytes(capacity, '.') {
    set_data(reinterpret_cast<const std::byte*>(bytes.data()));
    ++alive;
  }
  int& alive;
  std::string bytes;
};

Block counted_block(std::size_t size, int& alive) {
  return Block(*new CountingStorage(size, alive));
}

void fill(Block& block, char with) {
  for (std::byte& byte : block.writable()) byte = static_cast<std::byte>(with);
}

}  // namespace

TEST_CASE("freezing the front leaves the rest writable") {
  int alive = 0;
  Block block = counted_block(10, alive);
  fill(block, 'a');
  Slice first = block.freeze(4);
  CHECK(block.size() == 6);
  CHECK(static_cast<bool>(block));
  fill(block, 'b');
  Slice second = block.freeze(6);
  CHECK_FALSE(static_cast<bool>(block));
  CHECK(block.size() == 0);
  CHECK(block.data() == nullptr);
  CHECK(first.view() == "aaaa");
  CHECK(second.view() == "bbbbbb");
  CHECK(first.join(second));
  first = Slice();
  CHECK(alive == 1);
  second = Slice();
  CHECK(alive == 0);
}

TEST_CASE("freezing nothing gives an empty slice and leaves the block as it was") {
  int alive = 0;
  Block block = counted_block(10, alive);
  CHECK(block.freeze(0).empty());
  CHECK(alive == 1);
  CHECK(block.size() == 10);
  fill(block, 'x');
  CHECK(block.freeze(10).view() == "xxxxxxxxxx");
  CHECK(alive == 0);
  CHECK(block.freeze(0).empty());
}

TEST_CASE("freezing all gives up what was not written") {
  int alive = 0;
  Block block = counted_block(10, alive);
  fill(block, 'y');
  const Slice slice = std::move(block).freeze_all(3);
  CHECK(slice.view() == "yyy");
  CHECK(slice.pinned_size() == 10);
  CHECK_FALSE(static_cast<bool>(block));
  CHECK(block.size() == 0);
}

TEST_CASE("a block gives its memory back when it is destroyed, reset or replaced") {
  int alive = 0;
  {
    Block block = counted_block(1, alive);
    Block other = counted_block(2, alive);
    CHECK(alive == 2);
    block = std::move(other);
    CHECK(alive == 1);
    CHECK_FALSE(static_cast<bool>(other));
    CHECK(block.size() == 2);
    block.reset();
    CHECK(alive == 0);
    block = counted_block(3, alive);
  }
  CHECK(alive == 0);
}

TEST_CASE("heap memory is aligned for every type, and an impossible size is refused") {
  Block block = heap_allocator().allocate(100);
  CHECK(block.size() == 100);
  CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % alignof(std::max_align_t) == 0);
  fill(block, 'z');
  CHECK_FALSE(static_cast<bool>(heap_allocator().allocate(std::numeric_limits<std::size_t>::max())));
  if (!test::kSanitized) {  // a sanitizer's malloc stops the program instead of refusing
    CHECK_FALSE(static_cast<bool>(heap_allocator().allocate(std::numeric_limits<std::size_t>::max() / 4)));
  }
}

TEST_CASE("make_unique takes over memory that nobody else holds") {
  int alive = 0;
  Block block = counted_block(10, alive);
  fill(block, 'a');
  Slice slice = std::move(block).freeze_all(10).slice(2, 5);
  const std::byte* where = slice.data();
  const CopyScope scope;
  block = Block::make_unique(std::move(slice));
  CHECK(slice.empty());
  CHECK(block.data() == where);
  CHECK(block.size() == 5);
  CHECK(block.headroom() == 2);
  block.extend_front(2);
  CHECK(block.size() == 7);
  fill(block, 'b');
  CHECK(std::move(block).freeze_all(7).view() == "bbbbbbb");
  CHECK(scope.copied().total() == 0);
  CHECK(alive == 0);
}

TEST_CASE("make_unique copies what is shared, adopted read-only or immortal, and the ledger says so") {
  int alive = 0;
  Block source = counted_block(10, alive);
  fill(source, 'a');
  const Slice shared = std::move(source).freeze_all(10);
  const std::string memory = "borrowed";
  for (const Slice& slice :
       {shared, Slice::immortal("immortal"), Slice::borrow(std::as_bytes(std::span(memory)), [] {})}) {
    const std::string before(slice.view());
    Slice given = slice;
    const CopyScope scope;
    Block block = Block::make_unique(std::move(given));
    CHECK(scope.copied()[CopyPlace::unshare] == before.size());
    CHECK(block.size() == before.size());
    fill(block, 'x');
    CHECK(slice.view() == before);
    CHECK(given.empty());
  }
  CHECK(memory == "borrowed");
}

TEST_CASE("make_unique leaves the slice alone when the allocator refuses") {
  BlockPool full({.budget_bytes = 100});
  const Slice other = Slice::copy("bytes");
  Slice slice = other;
  CHECK_FALSE(static_cast<bool>(Block::make_unique(std::move(slice), full)));
  CHECK(slice.view() == "bytes");
  Slice none;
  CHECK_FALSE(static_cast<bool>(Block::make_unique(std::move(none), full)));
}

TEST_CASE("a block has headroom while no slice of it is alive") {
  Block block = heap_allocator().allocate(10);
  CHECK(block.headroom() == 0);
  {
    const Slice front = block.freeze(4);
    CHECK(block.headroom() == 0);
  }
  CHECK(block.headroom() == 4);
  block.extend_front(4);
  CHECK(block.size() == 10);
  CHECK(Block().headroom() == 0);
}

TEST_CASE("a block over adopted memory is written in place, and gives it back once, with the last slice") {
  std::string memory(100, '.');
  int released = 0;
  const auto adopt = [&] {
    return Block::adopt(std::as_writable_bytes(std::span(memory)), [&released] { ++released; });
  };
  {
    Block block = adopt();
    CHECK(block.size() == 100);
    CHECK(block.data() == reinterpret_cast<std::byte*>(memory.data()));
    block.data()[0] = std::byte{'x'};
    const Slice front = block.freeze(1);
    block.reset();
    CHECK(released == 0);
    CHECK(front.view() == "x");
  }
  CHECK(released == 1);
  CHECK(memory[0] == 'x');
  Slice slice = adopt().freeze_all(50);
  const Block again = Block::make_unique(std::move(slice));
  CHECK(again.size() == 50);
  CHECK(released == 1);
}
