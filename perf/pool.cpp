// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BlockPool against malloc. perf/support/allocators.hpp says what is measured; perf/peers/jemalloc.cpp and
// perf/peers/mimalloc.cpp are programs of their own, as each of them takes the place of malloc.
#include <cstdlib>

#include "linkspan/buffer/block_pool.hpp"
#include "perf/support/allocators.hpp"

namespace linkspan::perf {
namespace {

struct Pool {
  using Memory = Block;

  Block allocate(std::size_t bytes) { return pool.allocate(bytes); }
  static std::byte* first_byte(Block& block) { return block.data(); }

  BlockPool pool;
};

// What it costs to hand memory over.
std::byte the_same_byte;
void* the_same(std::size_t) {
  return &the_same_byte;
}
void forget(void*) {}

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  add_allocator_cases<Pool>("linkspan");
  add_allocator_cases<HeapFunctions<std::malloc, std::free>>("malloc");
  add_across_case<HeapFunctions<the_same, forget>>("no allocation");
  return run(argc, argv);
}
