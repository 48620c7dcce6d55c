// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "lib/codec/compression_stream.hpp"
#include "linkspan/buffer/cursor.hpp"

namespace linkspan::detail {
namespace {

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

class ZstdCompress final : public CompressionStream {
 public:
  explicit ZstdCompress(int level) noexcept : level_(level) {}

  Status begin(const Chain& frame) override {
    if (!context_) {
      context_.reset(ZSTD_createCCtx());
      if (!context_) return no_memory("zstd");
      ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level_);
    }
    ZSTD_CCtx_reset(context_.get(), ZSTD_reset_session_only);
    ZSTD_CCtx_setPledgedSrcSize(context_.get(), frame.size());  // small frames get small tables
    return std::monostate();
  }

  Result<bool> step(std::span<const std::byte>& in, std::span<std::byte>& out, bool last) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left =
        ZSTD_compressStream2(context_.get(), &to, &from, last ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left) != 0) {
      if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation) return no_memory("zstd");
      return Error(errc::invalid_argument,
                   std::string("a frame cannot be compressed: ") + ZSTD_getErrorName(left));
    }
    in = in.subspan(from.pos);
    out = out.subspan(to.pos);
    return last && left == 0;
  }

 private:
  std::unique_ptr<ZSTD_CCtx, FreeContext> context_;
  int level_;
};

/// What the front of a frame says, by RFC 8878, 3.1.1.1.
struct FrameFront {
  explicit FrameFront(const Chain& frame) {
    constexpr std::size_t kMostBytes = 18;
    std::array<std::uint8_t, kMostBytes> bytes{};
    std::size_t size = 0;
    Cursor cursor(frame);
    while (size != bytes.size() && cursor.remaining() != 0) {
      bytes[size++] = *cursor.read_big_endian<std::uint8_t>();
    }
    content_bytes = ZSTD_getFrameContentSize(bytes.data(), size);

    constexpr std::array<std::size_t, 4> kContentSizeBytes{0, 2, 4, 8};
    constexpr std::array<std::size_t, 4> kDictionaryBytes{0, 1, 2, 4};
    const unsigned descriptor = bytes[4];
    const bool single_segment = (descriptor & 0x20U) != 0;
    // In place of the window, or none, there is at least one byte of the content's size.
    header_bytes = 6 + kDictionaryBytes[descriptor & 3U] + kContentSizeBytes[descriptor >> 6U] -
                   (single_segment && descriptor >> 6U != 0 ? 1 : 0);
  }

  unsigned long long content_bytes;  // ZSTD_CONTENTSIZE_UNKNOWN or _ERROR: it does not say
  std::size_t header_bytes;
};

class ZstdDecompress final : public CompressionStream {
 public:
  explicit ZstdDecompress(std::size_t max_window_bytes) noexcept : max_window_bytes_(max_window_bytes) {}

  Status begin(const Chain& frame) override {
    // The library also takes frames that are to be skipped, and those of its first releases.
    const auto magic = Cursor(frame).read_little_endian<std::uint32_t>();
    if (magic && *magic != ZSTD_MAGICNUMBER) return malformed("it does not begin as a frame of zstd does");
    if (!context_) {
      context_.reset(ZSTD_createDCtx());
      if (!context_) return no_memory("zstd");
      ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, std::bit_width(max_window_bytes_) - 1);
    }
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    const FrameFront front(frame);
    content_bytes_ = front.content_bytes;
    header_left_ = front.header_bytes;
    made_bytes_ = 0;
    return std::monostate();
  }

  Result<bool> step(std::span<const std::byte>& in, std::span<std::byte>& out, bool) override {
    // The header goes first: a frame that is there as a whole the library decodes in another way, in which it
    // does not look at the window and refuses other blocks. What comes out must not depend on how bytes came.
    ZSTD_inBuffer from{in.data(), header_left_ == 0 ? in.size() : std::min(in.size(), header_left_), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left = ZSTD_decompressStream(context_.get(), &to, &from);
    if (ZSTD_isError(left) != 0) {
      switch (ZSTD_getErrorCode(left)) {
        case ZSTD_error_memory_allocation: return no_memory("zstd");
        case ZSTD_error_frameParameter_windowTooLarge:
          return Error(errc::limit_exceeded,
                       "a frame's window is above max_window_bytes, " + std::to_string(max_window_bytes_));
        case ZSTD_error_dictionary_wrong:
          return Error(errc::unavailable, "a frame cannot be decompressed: it needs a dictionary");
        default: return malformed(ZSTD_getErrorName(left));
      }
    }
    in = in.subspan(from.pos);
    out = out.subspan(to.pos);
    made_bytes_ += to.pos;
    header_left_ -= std::min(from.pos, header_left_);
    if (left != 0) return false;
    // Not checked by the library's streams when the last block is empty.
    if (content_bytes_ < ZSTD_CONTENTSIZE_ERROR && made_bytes_ != content_bytes_) {
      return malformed("its size is not the one that it says");
    }
    return true;
  }

 private:
  std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
  std::size_t max_window_bytes_;
  unsigned long long content_bytes_ = 0;
  unsigned long long made_bytes_ = 0;
  std::size_t header_left_ = 0;
};

}  // namespace

std::unique_ptr<CompressionStream> make_zstd_compress(int level) {
  return std::make_unique<ZstdCompress>(level);
}

std::unique_ptr<CompressionStream> make_zstd_decompress(std::size_t max_window_bytes) {
  return std::make_unique<ZstdDecompress>(max_window_bytes);
}

}  // namespace linkspan::detail
