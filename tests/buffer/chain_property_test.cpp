// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Random sequences of operations on chains against std::string.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>

#include "buffer/chain_world.hpp"
#include "support/sanitized.hpp"

using namespace linkspan;
using linkspan::test::ChainWorld;

namespace {

class RandomChoices {
 public:
  explicit RandomChoices(std::uint32_t seed) : generator_(seed) {}
  std::size_t below(std::size_t bound) { return generator_() % bound; }

 private:
  std::mt19937 generator_;
};

constexpr bool kLess = test::kSanitized || kBufferDebug;

void run_sequences(std::uint32_t sequences, std::size_t operations_max) {
  RandomChoices choices(sequences);
  ChainWorld world(choices);
  for (std::uint32_t sequence = 0; sequence < sequences; ++sequence) {
    world.start();
    for (std::size_t i = 1 + choices.below(operations_max); i != 0; --i) {
      if (!world.step()) FAIL("sequence " << sequence << ", " << i << " operations before its end");
    }
    if (!world.clear()) FAIL("memory of sequence " << sequence << " was not given back");
  }
  CHECK(sequences != 0);
}

}  // namespace

TEST_CASE("a million short sequences do to chains what they do to strings, and give all memory back") {
  run_sequences(kLess ? 30'000 : 1'000'000, 16);
}

TEST_CASE("long sequences do to chains what they do to strings, and give all memory back") {
  run_sequences(kLess ? 5 : 50, 4'000);
}
