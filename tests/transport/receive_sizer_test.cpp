// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// How much memory a stream receives into, and what becomes of a block that was received into.
#include "lib/transport/receive_sizer.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "linkspan/buffer/block_pool.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kSmallBytes = blocks_of(ReceiveClass::small).bytes;
constexpr std::size_t kMediumBytes = blocks_of(ReceiveClass::medium).bytes;
constexpr std::size_t kBulkBytes = blocks_of(ReceiveClass::bulk).bytes;

ReceiveSizer in_class(ReceiveClass receive_class) {
  ReceiveSizer sizer;
  while (sizer.receive_class() != receive_class) sizer.received(1, true);
  return sizer;
}

// Receives of `bytes` until the class changes; 0 when it does not.
unsigned receives_until_change(ReceiveSizer sizer, std::size_t bytes) {
  const ReceiveClass before = sizer.receive_class();
  for (unsigned count = 1; count <= 1000; ++count) {
    sizer.received(bytes, false);
    if (sizer.receive_class() != before) return count;
  }
  return 0;
}

}  // namespace

TEST_CASE("a stream starts small and grows by one class with each block that it fills") {
  ReceiveSizer sizer;
  CHECK(sizer.receive_class() == ReceiveClass::small);
  sizer.received(kSmallBytes, true);
  CHECK(sizer.receive_class() == ReceiveClass::medium);
  sizer.received(kMediumBytes, true);
  CHECK(sizer.receive_class() == ReceiveClass::bulk);
  sizer.received(kBulkBytes, true);
  CHECK(sizer.receive_class() == ReceiveClass::bulk);
}

TEST_CASE("a block that is not filled does not make a stream grow") {
  ReceiveSizer sizer;
  for (int i = 0; i < 1000; ++i) sizer.received(kSmallBytes - 1, false);
  CHECK(sizer.receive_class() == ReceiveClass::small);
  CHECK(receives_until_change(in_class(ReceiveClass::medium), kMediumBytes - 1) == 0);
}

TEST_CASE("several receives in a row that would have left room in the class below make a stream shrink") {
  CHECK(receives_until_change(in_class(ReceiveClass::bulk), kMediumBytes - 1) == ReceiveSizer::kPatience);
  CHECK(receives_until_change(in_class(ReceiveClass::medium), kSmallBytes - 1) == ReceiveSizer::kPatience);
  // Ones that would have filled it would make the stream grow again.
  CHECK(receives_until_change(in_class(ReceiveClass::bulk), kMediumBytes) == 0);
  CHECK(receives_until_change(in_class(ReceiveClass::medium), kSmallBytes) == 0);
}

TEST_CASE("shrinking goes class by class") {
  ReceiveSizer sizer = in_class(ReceiveClass::bulk);
  for (unsigned i = 0; i < ReceiveSizer::kPatience; ++i) sizer.received(1, false);
  CHECK(sizer.receive_class() == ReceiveClass::medium);
  CHECK(receives_until_change(sizer, 1) == ReceiveSizer::kPatience);
}

TEST_CASE("a large receive now and then keeps a stream in its class") {
  ReceiveSizer sizer = in_class(ReceiveClass::bulk);
  for (int round = 0; round < 100; ++round) {
    for (unsigned i = 0; i + 1 < ReceiveSizer::kPatience; ++i) sizer.received(64, false);
    sizer.received(kMediumBytes, round % 2 == 0);
    REQUIRE(sizer.receive_class() == ReceiveClass::bulk);
  }
}

TEST_CASE("a reset makes a stream start small again") {
  ReceiveSizer sizer = in_class(ReceiveClass::bulk);
  sizer.reset();
  CHECK(sizer.receive_class() == ReceiveClass::small);
}

TEST_CASE("a receive that fits into a small block keeps no more than one alive, whatever it came in") {
  BlockPool pool;
  for (const ReceiveClass receive_class : {ReceiveClass::small, ReceiveClass::medium, ReceiveClass::bulk}) {
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{512}, std::size_t{513}, kSmallBytes - 1, kSmallBytes}) {
      CAPTURE(size);
      Block block = pool.allocate(blocks_of(receive_class).bytes);
      std::memset(block.data(), 'x', size);
      const Slice slice = take_received(block, size, receive_class, pool);
      CHECK(slice.view() == std::string(size, 'x'));
      CHECK(slice.pinned_size() <= kSmallBytes);
      CHECK(slice.pinned_size() <= std::max<std::size_t>(512, 8 * size));
    }
  }
}

TEST_CASE(
    "what is copied out of a block leaves it whole; what is handed over leaves a useful rest or nothing") {
  BlockPool pool;
  Block block = pool.allocate(kBulkBytes);
  const CopyScope scope;
  static_cast<void>(take_received(block, kSmallBytes, ReceiveClass::bulk, pool));
  CHECK(block.size() == kBulkBytes);
  CHECK(scope.copied()[CopyPlace::receive] == kSmallBytes);

  static_cast<void>(take_received(block, kSmallBytes + 1, ReceiveClass::bulk, pool));
  CHECK(block.size() == kBulkBytes - kSmallBytes - 1);
  static_cast<void>(take_received(block, block.size() - blocks_of(ReceiveClass::bulk).least_bytes,
                                  ReceiveClass::bulk, pool));
  CHECK(block.size() == blocks_of(ReceiveClass::bulk).least_bytes);
  static_cast<void>(take_received(block, kSmallBytes + 1, ReceiveClass::bulk, pool));
  CHECK_FALSE(block);
  CHECK(scope.copied()[CopyPlace::receive] == kSmallBytes);
}

TEST_CASE("a receive that cannot be copied out, as the pool is exhausted, is handed over with its block") {
  BlockPoolOptions options;
  options.budget_bytes = kMediumBytes;
  BlockPool pool(options);
  Block block = pool.allocate(kMediumBytes);
  const std::byte* data = block.data();
  const Slice slice = take_received(block, 10, ReceiveClass::medium, pool);
  CHECK(slice.data() == data);
  CHECK(slice.size() == 10);
  CHECK(block.size() == kMediumBytes - 10);
}

}  // namespace linkspan
