// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The input chooses operations on chains, which have to do what they do to strings.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "buffer/chain_world.hpp"

namespace {

// Choices from bytes; 0 once they are used up.
class InputChoices {
 public:
  explicit InputChoices(std::span<const std::uint8_t> input) : input_(input) {}

  [[nodiscard]] bool empty() const { return input_.empty(); }
  std::size_t below(std::size_t bound) {
    std::size_t value = 0;
    for (std::size_t range = 1; range < bound && !input_.empty(); range *= 256) {
      value = value * 256 + input_.front();
      input_ = input_.subspan(1);
    }
    return value % bound;
  }

 private:
  std::span<const std::uint8_t> input_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  InputChoices choices({data, size});
  linkspan::test::ChainWorld world(choices);
  while (!choices.empty()) {
    if (!world.step()) std::abort();
  }
  if (!world.clear()) std::abort();
  return 0;
}
