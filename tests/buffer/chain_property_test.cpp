// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Random sequences of operations on chains against std::string.
#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>

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

// What went wrong first; empty when nothing did.
std::string run_sequences(std::uint32_t sequences, std::size_t operations_max) {
  RandomChoices choices(sequences);
  ChainWorld world(choices);
  for (std::uint32_t sequence = 0; sequence < sequences; ++sequence) {
    const std::string name = "sequence " + std::to_string(sequence);
    world.start();
    for (std::size_t i = 1 + choices.below(operations_max); i != 0; --i) {
      if (!world.step()) return name + ", " + std::to_string(i) + " operations before its end";
    }
    if (!world.clear()) return name + " did not give its memory back";
  }
  return {};
}

}  // namespace

TEST_CASE("a million short sequences do to chains what they do to strings, and give all memory back") {
  CHECK(run_sequences(kLess ? 30'000 : 1'000'000, 16) == "");
}

TEST_CASE("long sequences do to chains what they do to strings, and give all memory back") {
  CHECK(run_sequences(kLess ? 5 : 50, 4'000) == "");
}
