// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/payloads.hpp"

#include <doctest/doctest.h>

#include <set>

using namespace linkspan;

TEST_CASE("a ticket stands for its payload, until that is taken") {
  Payloads payloads;
  const std::string one = payloads.add(Chain(Slice::immortal("one")));
  const std::string two = payloads.add(Chain(Slice::immortal("second")));
  CHECK(one != two);
  CHECK(payloads.count() == 2);
  CHECK(payloads.size_bytes() == 9);
  REQUIRE(payloads.find(two) != nullptr);
  CHECK(*payloads.find(two) == "second");
  CHECK(payloads.take(two) == "second");
  CHECK(payloads.take(two).empty());
  CHECK(payloads.size_bytes() == 3);
  Payloads moved = std::move(payloads);
  CHECK(moved.take(one) == "one");
}

TEST_CASE("an empty payload is an empty value") {
  Payloads payloads;
  CHECK(payloads.add(Chain()).empty());
  CHECK(payloads.count() == 0);
  CHECK(payloads.take("").empty());
}

TEST_CASE("what is no ticket is the payload itself, copied and counted") {
  Payloads payloads;
  const std::string ticket = payloads.add(Chain(Slice::immortal("payload")));
  Payloads others;
  CHECK(others.find(ticket) == nullptr);
  const std::string foreign = others.add(Chain(Slice::immortal("other")));
  CHECK(payloads.find(foreign) == nullptr);
  std::string beyond = ticket;
  beyond.back() = '\x01';
  CHECK(payloads.find(beyond) == nullptr);
  CHECK(payloads.find(ticket + "x") == nullptr);
  const CopyScope scope;
  CHECK(payloads.take(foreign) == foreign);
  CHECK(payloads.take("small") == "small");
  CHECK(scope.copied()[CopyPlace::below_threshold] == foreign.size() + 5);
}

TEST_CASE("tickets of different messages differ") {
  std::set<std::string> seen;
  for (int i = 0; i < 10'000; ++i) {
    Payloads payloads;
    seen.insert(payloads.add(Chain(Slice::immortal("x"))));
  }
  CHECK(seen.size() == 10'000);
}
