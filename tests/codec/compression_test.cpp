// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/compression.hpp"

#include <doctest/doctest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/heap_allocator.hpp"
#include "support/sanitized.hpp"

using namespace linkspan;
using Algorithm = CompressionAlgorithm;

namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::zlib, Algorithm::gzip, Algorithm::zstd};

CompressionOptions options_of(Algorithm algorithm) {
  CompressionOptions options;
  options.algorithm = algorithm;
  return options;
}

/// Words and noise, so that some of it shrinks.
std::string text(std::mt19937& generator, std::size_t size) {
  std::string bytes;
  while (bytes.size() < size) {
    if (generator() % 4 == 0) {
      for (std::size_t left = generator() % 200; left != 0; --left)
        bytes.push_back(static_cast<char>(generator()));
    } else {
      for (std::size_t left = generator() % 50; left != 0; --left) bytes += "the same words ";
    }
  }
  bytes.resize(size);
  return bytes;
}

/// Slices of random sizes over `bytes`, which has to outlive them.
Chain sliced(std::mt19937& generator, std::string_view bytes, std::size_t most) {
  Chain chain;
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), 1 + generator() % most);
    chain.append(Slice::immortal(bytes.substr(0, size)));
    bytes.remove_prefix(size);
  }
  return chain;
}

Chain whole(std::string_view bytes) {
  return Chain(Slice::immortal(bytes));
}

std::string compressed(const CompressionOptions& options, std::string_view bytes) {
  Compressor compressor(options);
  return compressor.compress(whole(bytes), heap_allocator()).value_or_throw().to_string();
}

/// What comes out, or the error.
std::string outcome(Compressor& compressor, const Chain& frame,
                    BlockAllocator& allocator = heap_allocator()) {
  const Result<Chain> result = compressor.decompress(frame, allocator);
  return result ? result.value().to_string() : result.error().code.message() + ": " + result.error().detail;
}

/// The same for slices of one, two and seven bytes, which has to be the same.
std::string outcome(const CompressionOptions& options, std::string_view bytes) {
  Compressor compressor(options);
  const std::string result = outcome(compressor, whole(bytes));
  for (const std::size_t size : {1UL, 2UL, 7UL}) {
    Chain chain;
    for (std::size_t at = 0; at < bytes.size(); at += size)
      chain.append(Slice::immortal(bytes.substr(at, size)));
    CHECK((outcome(compressor, chain) == result));
  }
  return result;
}

/// A zlib stream of 1 GiB of zeros, without its checksum.
std::string zlib_bomb() {
  const std::string zeros(std::size_t{1} << 20, '\0');
  z_stream stream{};
  REQUIRE(deflateInit(&stream, 9) == Z_OK);
  std::string first(10'000, '\0');
  std::string again(10'000, '\0');
  for (std::string* part : {&first, &again}) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(zeros.data()));
    stream.avail_in = static_cast<uInt>(zeros.size());
    stream.next_out = reinterpret_cast<Bytef*>(part->data());
    stream.avail_out = static_cast<uInt>(part->size());
    REQUIRE(deflate(&stream, Z_FULL_FLUSH) == Z_OK);
    part->resize(part->size() - stream.avail_out);
  }
  deflateEnd(&stream);
  for (int i = 1; i < 1024; ++i) first += again;
  return first;
}

std::string zstd_bomb() {
  CompressionOptions options;
  options.max_frame_bytes = std::size_t{1} << 30;
  const std::string zeros(std::size_t{1} << 20, '\0');
  Chain chain;
  for (int i = 0; i < 1024; ++i) chain.append(Slice::immortal(std::string_view(zeros)));
  return Compressor(options).compress(chain, heap_allocator()).value_or_throw().to_string();
}

}  // namespace

TEST_CASE("chains come back from each algorithm at each level, however they are sliced") {
  std::mt19937 generator(1);
  const std::vector<std::string> texts = {"", "x", text(generator, 300), text(generator, 5000),
                                          text(generator, 300'000)};
  for (const Algorithm algorithm : kAlgorithms) {
    const bool zstd = algorithm == Algorithm::zstd;
    for (int level = zstd ? -7 : 0; level <= (zstd ? 19 : 9); level += test::kSanitized ? 4 : 1) {
      CAPTURE(level);
      CompressionOptions options = options_of(algorithm);
      options.level = level;
      Compressor compressor(options);
      for (const std::string& bytes : texts) {
        for (const std::size_t most : {40UL, 100'000UL}) {
          const Chain small =
              compressor.compress(sliced(generator, bytes, most), heap_allocator()).value_or_throw();
          const std::string frame = small.to_string();
          CHECK((outcome(compressor, sliced(generator, frame, most)) == bytes));
          if (bytes.size() > 1000 && level > 0) CHECK(frame.size() < bytes.size());
        }
      }
    }
  }
}

TEST_CASE("a frame of which every end is missing is truncated, and bytes behind its end are an error") {
  for (const Algorithm algorithm : kAlgorithms) {
    const std::string bytes = compressed(options_of(algorithm), "some text, some text, some text");
    CHECK(outcome(options_of(algorithm), bytes) == "some text, some text, some text");
    for (std::size_t size = 0; size != bytes.size(); ++size) {
      CHECK(outcome(options_of(algorithm), bytes.substr(0, size)) ==
            "input truncated: a compressed frame ends early");
    }
    for (const std::string& behind : {std::string("x"), bytes}) {  // two members, or frames, are two too
      CHECK(outcome(options_of(algorithm), bytes + behind) ==
            "malformed input: a frame cannot be decompressed: there are bytes behind its end");
    }
  }
}

TEST_CASE("what is damaged, or not in the format, is an error") {
  std::mt19937 generator(2);
  for (const Algorithm algorithm : kAlgorithms) {
    const std::string bytes = compressed(options_of(algorithm), text(generator, 3000));
    Compressor compressor(options_of(algorithm));
    for (std::size_t at = 0; at < bytes.size(); at += 1 + at / 20) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      static_cast<void>(outcome(compressor, whole(damaged)));  // perhaps still a frame, never a crash
    }
    CHECK(outcome(options_of(algorithm), "no such format").starts_with("malformed input: a frame cannot be"));
    CHECK(outcome(compressor, whole(bytes)).size() == 3000);  // an error does not stay
  }
  std::string checksum = compressed(options_of(Algorithm::gzip), "text");
  checksum[checksum.size() - 8] = static_cast<char>(checksum[checksum.size() - 8] ^ 1);
  CHECK(outcome(options_of(Algorithm::gzip), checksum) ==
        "malformed input: a frame cannot be decompressed: incorrect data check");
  // A frame that is to be skipped, and one of zstd 0.7.
  for (const std::string_view begin : {"\x50\x2a\x4d\x18\1\0\0\0x", "\x27\xb5\x2f\xfd\0\0\0\0\0"}) {
    CHECK(outcome(options_of(Algorithm::zstd), std::string(begin.data(), 9)) ==
          "malformed input: a frame cannot be decompressed: it does not begin as a frame of zstd does");
  }
}

TEST_CASE(
    "a frame of zstd that says another size than it has is an error, also when its last block is empty") {
  // Magic number, descriptor (one segment, a checksum), 112 bytes, an empty raw block, the checksum of
  // nothing.
  const std::string frame("\x28\xb5\x2f\xfd\x24\x70\x01\0\0\x99\xe9\xd8\x51", 13);
  Compressor compressor(options_of(Algorithm::zstd));
  for (const std::size_t size : {1UL, 5UL, 13UL}) {
    Chain chain = whole(std::string_view(frame).substr(0, size));
    if (size != frame.size()) chain.append(Slice::immortal(std::string_view(frame).substr(size)));
    CHECK(outcome(compressor, chain).starts_with("malformed input: a frame cannot be decompressed"));
  }
}

TEST_CASE("a frame at the limit passes, one byte more is an error that names it") {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::size_t size : {0UL, 1UL, 4096UL, 100'000UL}) {
      CompressionOptions options = options_of(algorithm);
      const std::string bytes(size, 'x');
      const std::string frame = compressed(options, bytes);
      options.max_frame_bytes = size;
      CHECK((outcome(options, frame) == bytes));
      if (size == 0) continue;
      options.max_frame_bytes = size - 1;
      CHECK(outcome(options, frame) ==
            "limit exceeded: a frame decompresses to more than max_frame_bytes, " + std::to_string(size - 1));
    }
  }
}

TEST_CASE("bombs are refused with no more memory taken than the limit") {
  const std::string zlib = zlib_bomb();
  const std::string gzip = std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10) + zlib.substr(2);
  const std::string zstd = zstd_bomb();
  CHECK(zlib.size() < 2'000'000);
  CHECK(zstd.size() < 100'000);
  for (const auto& [algorithm, bomb] :
       {std::pair{Algorithm::zlib, &zlib}, {Algorithm::gzip, &gzip}, {Algorithm::zstd, &zstd}}) {
    CompressionOptions options = options_of(algorithm);
    options.max_frame_bytes = std::size_t{2} << 20;
    HeapAllocator memory;
    Compressor compressor(options);
    const std::string expected = "limit exceeded: a frame decompresses to more than max_frame_bytes, 2097152";
    CHECK(outcome(compressor, whole(*bomb), memory) == expected);
    const std::size_t high_water = memory.statistics().high_water_bytes;
    CHECK(high_water >= options.max_frame_bytes);
    CHECK(high_water <= options.max_frame_bytes + (std::size_t{256} << 10));
    CHECK(memory.statistics().live_bytes <= 4096);
    CHECK(outcome(compressor, whole(*bomb), memory) == expected);
  }
}

TEST_CASE("an allocator that refuses is an error, and the next frame is tried again") {
  for (const Algorithm algorithm : kAlgorithms) {
    const std::string bytes(200'000, 'x');
    const std::string frame = compressed(options_of(algorithm), bytes);
    Compressor compressor(options_of(algorithm));
    HeapAllocator little(100'000);
    CHECK(outcome(compressor, whole(frame), little) ==
          "block pool exhausted: no block for what becomes of a frame");
    CHECK(little.statistics().live_bytes <= 4096);
    CHECK((outcome(compressor, whole(frame)) == bytes));
    HeapAllocator none(1);
    Compressor other(options_of(algorithm));
    const auto refused = other.compress(whole(bytes), none);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == errc::pool_exhausted);
  }
}

TEST_CASE("a frame that needs a dictionary is refused") {
  const std::string dictionary = "a dictionary that both sides have, usually";
  std::string zlib(1000, '\0');
  z_stream stream{};
  REQUIRE(deflateInit(&stream, 6) == Z_OK);
  deflateSetDictionary(&stream, reinterpret_cast<const Bytef*>(dictionary.data()),
                       static_cast<uInt>(dictionary.size()));
  std::string bytes = "both sides have";
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(zlib.data());
  stream.avail_out = static_cast<uInt>(zlib.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  zlib.resize(zlib.size() - stream.avail_out);
  deflateEnd(&stream);
  CHECK(outcome(options_of(Algorithm::zlib), zlib) ==
        "unavailable: a frame cannot be decompressed: it needs a dictionary");

  // Magic number, descriptor (one segment, a dictionary of one byte), its number, the content's size, a
  // block.
  const std::string zstd("\x28\xb5\x2f\xfd\x21\x07\x02\x11\0\0xy", 12);
  CHECK(outcome(options_of(Algorithm::zstd), zstd) ==
        "unavailable: a frame cannot be decompressed: it needs a dictionary");
}

TEST_CASE("a frame of zstd with a larger window than the limit is refused, before memory is taken for it") {
  const std::string bytes(2'000'000, 'x');
  std::string frame(10'000, '\0');
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  REQUIRE(context != nullptr);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 24);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  ZSTD_outBuffer out{frame.data(), frame.size(), 0};
  while (in.pos != in.size)
    REQUIRE(ZSTD_isError(ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue)) == 0);
  REQUIRE(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end) == 0);
  ZSTD_freeCCtx(context);
  frame.resize(out.pos);
  CompressionOptions options = options_of(Algorithm::zstd);
  CHECK(outcome(options, frame) == "limit exceeded: a frame's window is above max_window_bytes, 8388608");
  options.max_window_bytes = std::size_t{16} << 20;
  CHECK((outcome(options, frame) == bytes));
}

TEST_CASE("a frame of zstd with a large window is refused however small it is, and however it comes") {
  // Magic number, descriptor (a size of two bytes, less 256), a window of 16 MiB, 256 bytes, a block of one
  // byte that is repeated.
  const std::string frame("\x28\xb5\x2f\xfd\x40\x70\0\0\x03\x08\0x", 12);
  CompressionOptions options = options_of(Algorithm::zstd);
  CHECK(outcome(options, frame) == "limit exceeded: a frame's window is above max_window_bytes, 8388608");
  options.max_window_bytes = std::size_t{16} << 20;
  CHECK(outcome(options, frame) == std::string(256, 'x'));
}

TEST_CASE("small frames share a block, and a large one keeps none that is large") {
  for (const Algorithm algorithm : kAlgorithms) {
    HeapAllocator memory;
    Compressor compressor(options_of(algorithm));
    std::vector<Chain> frames;
    for (int i = 0; i < 20; ++i) {
      frames.push_back(compressor.compress(whole("a small frame, a small frame"), memory).value_or_throw());
      CHECK(frames.back().slice_count() == 1);
    }
    CHECK(memory.statistics().allocations == 1);
    const std::string large(1'000'000, 'x');
    const std::string frame = compressed(options_of(algorithm), large);
    frames.clear();
    const Chain back = compressor.decompress(whole(frame), memory).value_or_throw();
    CHECK(back.slice_count() < 15);
    CHECK(back.pinned_size() < 2 * large.size());
    CHECK(memory.statistics().live_bytes <= back.pinned_size() + 4096);
  }
}

TEST_CASE("compressing stops when more comes out than is asked for") {
  std::mt19937 generator(3);
  std::string noise(100'000, '\0');
  for (char& byte : noise) byte = static_cast<char>(generator());
  for (const Algorithm algorithm : kAlgorithms) {
    HeapAllocator memory;
    Compressor compressor(options_of(algorithm));
    const auto result = compressor.compress(whole(noise), memory, 1000);
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == errc::limit_exceeded);
    CHECK(result.error().detail == "a frame compresses to more than 1000 bytes");
    CHECK(memory.statistics().high_water_bytes <= 4096);
    const std::size_t size = compressor.compress(whole("abc"), memory).value_or_throw().size();
    CHECK(compressor.compress(whole("abc"), memory, size).ok());
    CHECK_FALSE(compressor.compress(whole("abc"), memory, size - 1).ok());
  }
}

TEST_CASE("options that cannot be are told when a compressor is made") {
  const auto refused = [](CompressionOptions options) {
    try {
      const Compressor made(options);
    } catch (const Exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CompressionOptions options = options_of(Algorithm::zlib);
  options.level = 10;
  CHECK(refused(options) == "compression: the level is not within 0 and 9");
  options = options_of(Algorithm::zstd);
  options.level = 20;
  CHECK(refused(options) == "compression: the level is not within -7 and 19");
  options = options_of(Algorithm::zstd);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{512}, std::size_t{3000}, std::size_t{1} << 28}) {
    options.max_window_bytes = bytes;
    CHECK(refused(options) == "compression: max_window_bytes is no power of two of 1 KiB to 128 MiB");
  }
  CHECK(refused(options_of(static_cast<Algorithm>(0))) == "compression: an algorithm that there is not");
}
