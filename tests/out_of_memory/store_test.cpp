// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Operations of a map with each of their allocations failing: they say so, and nothing has changed or leaked.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "linkspan/store/off_heap_map.hpp"
#include "out_of_memory/failing_allocations.hpp"

using namespace linkspan;
using linkspan::test::fail_each_allocation;

namespace {

std::unique_ptr<OffHeapMap> open_map() {
  OffHeapMapOptions options;
  options.max_bytes = std::size_t{16} << 20;
  options.shards = 1;
  return OffHeapMap::open(options).value_or_throw();
}

}  // namespace

TEST_CASE("a map that cannot be made is refused") {
  std::unique_ptr<OffHeapMap> map;
  const std::size_t allocations = fail_each_allocation(
      [&] {
        auto opened = OffHeapMap::open();
        if (opened) map = std::move(opened).value();
      },
      [&](bool failed) { CHECK((map == nullptr) == failed); });
  CHECK(allocations != 0);
}

TEST_CASE("what a map has no memory for is refused, stays the caller's, and changes nothing") {
  const std::string large(50'000, 'l');
  const std::string long_key(10'000, 'k');
  const auto map = open_map();
  for (const std::string& key : {std::string("key"), long_key}) {
    for (const std::string& text : {std::string("small"), large}) {
      for (const bool adopts : {false, true}) {
        map->clear();
        Chain value;
        std::error_code error;
        const std::uint64_t used = map->statistics().used_bytes;
        const auto reset = [&] {
          map->clear();
          value = Chain(Slice::copy(text));
        };
        reset();
        fail_each_allocation(
            [&] { error = adopts ? map->adopt(key, std::move(value)) : map->put(key, std::move(value)); },
            [&](bool failed) {
              CHECK(error == (failed ? make_error_code(store_errc::out_of_memory) : std::error_code()));
              CHECK(value.size() == (failed ? text.size() : 0));
              CHECK(map->contains(key) == !failed);
              if (failed) CHECK(map->statistics().used_bytes <= used + 10'000);  // a segment of the index
              if (failed) CHECK(map->statistics().pinned_bytes == 0);
            });
        CHECK(map->get(key)->bytes == text);
      }
    }
  }
}

TEST_CASE("an index that cannot grow holds what it has, and goes on when there is memory again") {
  const auto map = open_map();
  int number = 0;
  const auto fill = [&] {
    for (; number < 2000; ++number) {
      if (map->put("key" + std::to_string(number), "v")) throw std::bad_alloc();
    }
  };
  fail_each_allocation(fill, [&](bool) {
    CHECK(map->statistics().entries == static_cast<std::uint64_t>(number));
    for (int i = 0; i < number; ++i) REQUIRE(map->contains("key" + std::to_string(i)));
  });
  CHECK(number == 2000);
}
