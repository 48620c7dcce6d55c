// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Compression with each allocation failing in turn: zlib's and zstd's own, and ours.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "linkspan/codec/compression.hpp"
#include "out_of_memory/failing_allocations.hpp"

using namespace linkspan;
using linkspan::test::FailingMalloc;

namespace {

constexpr CompressionAlgorithm kAlgorithms[] = {CompressionAlgorithm::zlib, CompressionAlgorithm::gzip,
                                                CompressionAlgorithm::zstd};
constexpr std::size_t kNoBound = std::size_t{1} << 30;

CompressionOptions options_of(CompressionAlgorithm algorithm) {
  CompressionOptions options;
  options.algorithm = algorithm;
  return options;
}

const std::string& text() {
  static const std::string bytes = [] {
    std::string made;
    while (made.size() < 100'000) made += std::to_string(made.size() * 7919);
    return made;
  }();
  return bytes;
}

Chain whole(std::string_view bytes) {
  return Chain(Slice::immortal(bytes));
}

}  // namespace

TEST_CASE("a library that gets no memory is an error, and works when there is memory again") {
  if (!FailingMalloc::kThere) return;
  for (const CompressionAlgorithm algorithm : kAlgorithms) {
    const std::string frame = Compressor(options_of(algorithm))
                                  .compress(whole(text()), heap_allocator())
                                  .value_or_throw()
                                  .to_string();
    for (const bool compress : {true, false}) {
      const auto attempt = [&](Compressor& compressor) {
        return compress ? compressor.compress(whole(text()), heap_allocator())
                        : compressor.decompress(whole(frame), heap_allocator());
      };
      std::size_t failures = 0;
      for (std::size_t allowed = 0;; ++allowed) {
        Compressor compressor(options_of(algorithm));
        bool failed = false;
        {
          const FailingMalloc failing(allowed);
          const Result<Chain> result = attempt(compressor);
          failed = failing.failed();
          CHECK(result.ok() == !failed);
          if (!result) CHECK(result.error().code == errc::pool_exhausted);
        }
        CHECK(attempt(compressor).ok());
        if (!failed) break;
        ++failures;
      }
      CHECK(failures != 0);
    }
  }
}

TEST_CASE("a chain or a context that gets no memory is std::bad_alloc, and nothing is broken") {
  for (const CompressionAlgorithm algorithm : kAlgorithms) {
    const std::string large(300'000, 'x');  // becomes more slices than a chain has room for
    const std::string frame = Compressor(options_of(algorithm))
                                  .compress(whole(large), heap_allocator())
                                  .value_or_throw()
                                  .to_string();
    Compressor compressor(options_of(algorithm));
    Chain back;
    const std::size_t allocations = test::fail_each_allocation(
        [&] {
          const Result<Chain> result = compressor.decompress(whole(frame), heap_allocator());
          if (result) back = result.value().share();
        },
        [](bool) {});
    CHECK(allocations != 0);
    CHECK(back == large);
  }
}

TEST_CASE("a context is made for the first frame, and used for all others") {
  if (!FailingMalloc::kThere) return;
  for (const CompressionAlgorithm algorithm : kAlgorithms) {
    Compressor compressor(options_of(algorithm));
    for (int i = 0; i < 3; ++i) {
      const FailingMalloc counting(kNoBound);
      for (int j = 0; j < 50; ++j) {
        const Chain frame = compressor.compress(whole(text()), heap_allocator()).value_or_throw();
        CHECK(compressor.decompress(frame, heap_allocator()).ok());
      }
      CHECK((counting.calls() == 0) == (i != 0));
    }
  }
}
