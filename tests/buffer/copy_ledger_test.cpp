// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/copy_ledger.hpp"

#include <doctest/doctest.h>

#include <array>
#include <set>
#include <string_view>
#include <thread>

using namespace linkspan;

namespace {

void copy_some(std::size_t size, CopyPlace place) {
  static constexpr std::array<char, 100> kFrom{};
  std::array<char, 100> to;
  copy_bytes(to.data(), kFrom.data(), size, place);
}

}  // namespace

TEST_CASE("a copy is counted on its thread and at its place") {
  const CopyCounts before = CopyLedger::this_thread().counts();
  const CopyScope scope;
  copy_some(10, CopyPlace::receive);
  copy_some(5, CopyPlace::framing);
  copy_some(0, CopyPlace::write);
  const CopyCounts here = CopyLedger::this_thread().counts() - before;
  CHECK(here[CopyPlace::receive] == 10);
  CHECK(here[CopyPlace::framing] == 5);
  CHECK(here.total() == 15);
  CHECK(scope.copied().total() == 15);
}

TEST_CASE("threads count for themselves, and those that have ended stay in the total") {
  const CopyCounts before = CopyLedger::this_thread().counts();
  const CopyScope scope;
  CopyCounts there;
  std::thread([&there] {
    copy_some(100, CopyPlace::user);
    there = CopyLedger::this_thread().counts();
  }).join();
  CHECK(there[CopyPlace::user] == 100);
  CHECK((CopyLedger::this_thread().counts() - before).total() == 0);
  CHECK(scope.copied()[CopyPlace::user] == 100);
}

TEST_CASE("places have names of their own") {
  std::set<std::string_view> names;
  for (std::size_t place = 0; place < kCopyPlaces; ++place)
    names.insert(to_string(static_cast<CopyPlace>(place)));
  CHECK(names.size() == kCopyPlaces);
  CHECK(names.count("unknown") == 0);
}
