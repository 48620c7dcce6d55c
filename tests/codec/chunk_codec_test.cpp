// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/chunk_codec.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/frame_events.hpp"
#include "linkspan/buffer/heap_allocator.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

std::string random_text(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(generator());
  return text;
}

Chain in_pieces(std::string_view text, std::size_t piece) {
  Chain chain;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    chain.append(Slice::immortal(text.substr(0, piece)));
  }
  return chain;
}

// The naive path: everything put together by hand.
std::string naive_frame(std::uint64_t offset, std::string_view bytes, ChecksumKind kind) {
  std::string frame;
  const auto put = [&](std::uint64_t value, int width) {
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
      frame.push_back(static_cast<char>(value >> shift));
    }
  };
  put(bytes.size(), 4);
  put(static_cast<std::uint64_t>(kind), 1);
  put(offset, 7);
  put(checksum(kind, std::as_bytes(std::span(bytes))), 4);
  return frame.append(bytes);
}

Chunk chunk_of(std::uint64_t offset, Chain&& bytes, ChecksumKind kind) {
  Chunk chunk{offset, std::move(bytes), kind, 0};
  chunk.checksum = checksum(kind, chunk.bytes);
  return chunk;
}

// Chunks as chains: offset, a colon, and the bytes.
struct ChunkAsChain final : Codec<Chunk, Chain> {
  void on_read(Chunk&& chunk) override {
    chunk.bytes.prepend(Slice::copy(std::to_string(chunk.offset) + ":"));
    pass(std::move(chunk.bytes));
  }
  void on_write(Chain&& bytes) override {
    write(chunk_of(bytes.size(), std::move(bytes), ChecksumKind::crc32));
  }
};

MakeCodec chunks(const ChunkCodecOptions& options) {
  return [options](EmbeddedChannel& channel, std::unique_ptr<Events> last) {
    return channel.pipeline().append(std::make_unique<ChunkCodec>(options), std::make_unique<ChunkAsChain>(),
                                     std::move(last));
  };
}

ChunkCodecOptions at_most(std::size_t bytes) {
  ChunkCodecOptions options;
  options.max_chunk_bytes = bytes;
  return options;
}

}  // namespace

TEST_CASE("frames are the bytes of the naive path in every way and layout; copies are none, one or two") {
  const std::pair<ChunkFraming, std::uint64_t> ways[] = {
      {ChunkFraming::reference, 0}, {ChunkFraming::copy, 1}, {ChunkFraming::bounce, 2}};
  for (const auto& [framing, copies] : ways) {
    ChunkFramer framer(framing);
    for (const std::size_t size : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 100'000UL, 1UL << 20}) {
      for (const std::size_t piece : {std::size_t{7'001}, std::size_t{64} << 10, std::size_t{2} << 20}) {
        for (const ChecksumKind kind : {ChecksumKind::none, ChecksumKind::crc32, ChecksumKind::crc32c}) {
          const std::string text = random_text(size, 5);
          Chunk chunk = chunk_of(123'456'789'012, in_pieces(text, piece), kind);
          const CopyScope scope;
          const Chain frame = framer.frame(std::move(chunk), heap_allocator());
          CHECK(scope.copied()[CopyPlace::framing] == copies * size);
          CHECK(scope.copied().total() == copies * size);
          CHECK((frame == naive_frame(123'456'789'012, text, kind)));
        }
      }
    }
  }
}

TEST_CASE("a framer whose allocator refuses makes no frame") {
  HeapAllocator none(0);
  for (const ChunkFraming framing : {ChunkFraming::reference, ChunkFraming::copy, ChunkFraming::bounce}) {
    CHECK(ChunkFramer(framing).frame({0, Chain(Slice::immortal("x"))}, none).empty());
  }
}

TEST_CASE("chunks come out of their frames however these are split") {
  const std::string bytes = naive_frame(0, "abc", ChecksumKind::crc32) +
                            naive_frame(3, "", ChecksumKind::none) +
                            naive_frame(ChunkFramer::kOffsetMost, "d", ChecksumKind::crc32c);
  CHECK(events_of(chunks(at_most(3)), bytes) == "[0:abc][3:][72057594037927935:d]end");
  CHECK(sent(chunks(at_most(3)), {"abc", "d"}) ==
        naive_frame(3, "abc", ChecksumKind::crc32) + naive_frame(1, "d", ChecksumKind::crc32));
}

TEST_CASE("a chunk that is too large, of an unknown kind, damaged or cut short is an error") {
  const std::string good = naive_frame(7, "abc", ChecksumKind::crc32c);
  CHECK(events_of(chunks(at_most(2)), good.substr(0, 4)) == "a chunk of 3 bytes is above max_chunk_bytes, 2");
  CHECK(sent(chunks(at_most(2)), {"abc"}) == "a chunk of 3 bytes is above max_chunk_bytes, 2");
  std::string unknown = good;
  unknown[4] = 9;
  CHECK(events_of(chunks(at_most(3)), unknown) == "a chunk has a checksum of kind 9");
  for (const std::size_t place : {12UL, 15UL, 16UL, 18UL}) {
    std::string damaged = good;
    damaged[place] ^= 1;
    CHECK(events_of(chunks(at_most(3)), damaged) ==
          "the checksum of the chunk at 7 does not match its bytesend");
  }
  for (const std::size_t size : {1UL, 15UL, 16UL, 18UL}) {
    CHECK(events_of(chunks(at_most(3)), good.substr(0, size)) == "the peer ended in the middle of a frame");
  }
  ChunkCodecOptions trusting = at_most(3);
  trusting.verify = false;
  std::string damaged = good;
  damaged[15] ^= 1;
  CHECK(events_of(chunks(trusting), damaged) == "[7:abc]end");
}
