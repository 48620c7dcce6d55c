// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/chain_writer.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "linkspan/buffer/block_pool.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::chain_of;
using linkspan::test::Releases;

namespace {

// Refuses everything from the given call on.
class LimitedAllocator final : public BlockAllocator {
 public:
  explicit LimitedAllocator(int calls) : calls_(calls) {}
  Block allocate(std::size_t size) noexcept override {
    return calls_-- > 0 ? heap_allocator().allocate(size) : Block();
  }

 private:
  int calls_;
};

}  // namespace

TEST_CASE("small pieces become one slice and are counted as below the threshold") {
  const CopyScope scope;
  ChainWriter writer(heap_allocator());
  writer.write("GET ");
  writer.append(Slice::immortal("/index"));
  writer.append(chain_of(" HTTP", 1));
  CHECK(writer.size() == 15);
  const Chain chain = writer.take();
  CHECK(chain == "GET /index HTTP");
  CHECK(chain.slice_count() == 1);
  CHECK(scope.copied()[CopyPlace::below_threshold] == 15);
  CHECK(writer.size() == 0);
}

TEST_CASE("from the threshold on, slices are referenced; below it they are copied") {
  ChainWriterOptions options;
  options.reference_threshold_bytes = 8;
  ChainWriter writer(heap_allocator(), options);
  const Slice large = Slice::copy("12345678");
  const CopyScope scope;
  writer.append(large);
  CHECK(scope.copied().total() == 0);
  writer.append(large.slice(0, 7));
  CHECK(scope.copied()[CopyPlace::below_threshold] == 7);
  const Chain chain = writer.take();
  CHECK(chain == "123456781234567");
  CHECK(chain[0].data() == large.data());
  CHECK(chain[1].data() != large.data());
}

TEST_CASE("a chain of large slices moves as it is") {
  ChainWriterOptions options;
  options.reference_threshold_bytes = 2;
  ChainWriter writer(heap_allocator(), options);
  Chain chain = chain_of("aabbcc", 2);
  const std::byte* first = chain[0].data();
  writer.append(std::move(chain));
  CHECK(chain.empty());
  CHECK(writer.take()[0].data() == first);
}

TEST_CASE("copies of large pieces are counted at the place that the options name") {
  ChainWriterOptions options;
  options.place = CopyPlace::marshal;
  const CopyScope scope;
  ChainWriter writer(heap_allocator(), options);
  const std::string text(10'000, 'm');
  writer.write(text);
  CHECK(scope.copied()[CopyPlace::marshal] == text.size());
  CHECK(writer.take() == text);
}

TEST_CASE("integers and varints have the bytes of their formats") {
  ChainWriter writer(heap_allocator());
  writer.write_big_endian(std::uint32_t{0x01020304});
  writer.write_little_endian(std::uint16_t{0x0506});
  writer.write_big_endian(std::uint8_t{7});
  writer.write_varint(300);
  writer.write_varint(0);
  CHECK(writer.take() == std::string_view("\x01\x02\x03\x04\x06\x05\x07\xac\x02\x00", 10));
}

TEST_CASE("reserve and commit write in place, also nothing at all") {
  ChainWriter writer(heap_allocator());
  const std::span<std::byte> first = writer.reserve(10);
  REQUIRE(first.size() >= 10);
  first[0] = std::byte{'a'};
  writer.commit(1);
  static_cast<void>(writer.reserve(1));
  writer.commit(0);
  const std::span<std::byte> second = writer.reserve(5000);
  REQUIRE(second.size() >= 5000);
  second[0] = std::byte{'b'};
  writer.commit(1);
  CHECK(writer.take() == "ab");
}

TEST_CASE("mixing copies and references keeps every byte in order") {
  std::mt19937 generator(7);
  BlockPool pool;
  Releases releases;
  {
    ChainWriterOptions options;
    options.reference_threshold_bytes = 64;
    options.block_bytes = 200;
    ChainWriter writer(pool, options);
    std::string expected;
    Chain whole;
    for (int step = 0; step < 5000; ++step) {
      const std::string text(generator() % 150, static_cast<char>('a' + step % 26));
      expected += text;
      switch (generator() % 5) {
        case 0: writer.write(text); break;
        case 1: writer.append(releases.slice(text)); break;
        case 2: {
          Chain chain = chain_of(text, 70);
          chain.append(releases.slice("tail"));
          expected += "tail";
          writer.append(std::move(chain));
          break;
        }
        case 3:
          writer.append(releases.slice(text));
          writer.write_big_endian(std::uint16_t{0x4142});
          expected += "AB";
          break;
        default:
          writer.write(text);
          whole.append(writer.take());
          break;
      }
    }
    CHECK_FALSE(writer.error());
    whole.append(writer.take());
    CHECK(whole == expected);
  }
  CHECK(releases.alive() == 0);
  CHECK(pool.statistics().live_bytes == 0);
}

TEST_CASE("once the allocator has refused, the error stays and what follows is ignored") {
  LimitedAllocator allocator(1);
  ChainWriterOptions options;
  options.block_bytes = 4;
  options.reference_threshold_bytes = 6;
  ChainWriter writer(allocator, options);
  writer.write("abcd");
  CHECK_FALSE(writer.error());
  writer.write("e");
  CHECK(writer.error() == errc::pool_exhausted);
  writer.append(Slice::immortal("a large slice"));
  writer.append(Chain(Slice::immortal("a large chain")));
  writer.write_varint(1);
  writer.write_big_endian(std::uint32_t{1});
  CHECK(writer.reserve(1).empty());
  CHECK(writer.error() == errc::pool_exhausted);
  CHECK(writer.take() == "abcd");
}
