// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <zstd.h>
#include <zstd_errors.h>

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
    constexpr unsigned kSingleSegment =
        0x20;  // in the byte behind the magic number: the content is the window
    if ((bytes[4] & kSingleSegment) != 0) {
      window_bytes = content_bytes < ZSTD_CONTENTSIZE_ERROR ? content_bytes : 0;
    } else {
      window_bytes = 1ULL << (10 + (bytes[5] >> 3));
      window_bytes += window_bytes / 8 * (bytes[5] & 7U);
    }
  }

  unsigned long long content_bytes;  // ZSTD_CONTENTSIZE_UNKNOWN or _ERROR: it does not say
  unsigned long long window_bytes;   // at least
};

class ZstdDecompress final : public CompressionStream {
 public:
  explicit ZstdDecompress(std::size_t max_window_bytes) noexcept : max_window_bytes_(max_window_bytes) {}

  Status begin(const Chain& frame) override {
    // The library also takes frames that are to be skipped, and those of its first releases.
    const auto magic = Cursor(frame).read_little_endian<std::uint32_t>();
    if (magic && *magic != ZSTD_MAGICNUMBER) return malformed("it does not begin as a frame of zstd does");
    // The library does not look at the window of a frame that is there as a whole and small.
    const FrameFront front(frame);
    if (front.window_bytes > max_window_bytes_) return window_above_limit();
    if (!context_) {
      context_.reset(ZSTD_createDCtx());
      if (!context_) return no_memory("zstd");
      ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, std::bit_width(max_window_bytes_) - 1);
    }
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    content_bytes_ = front.content_bytes;
    made_bytes_ = 0;
    return std::monostate();
  }

  Result<bool> step(std::span<const std::byte>& in, std::span<std::byte>& out, bool) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
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
    if (left != 0) return false;
    // Not checked by the library's streams when the last block is empty.
    if (content_bytes_ < ZSTD_CONTENTSIZE_ERROR && made_bytes_ != content_bytes_) {
      return malformed("its size is not the one that it says");
    }
    return true;
  }

 private:
  [[nodiscard]] Error window_above_limit() const {
    return {errc::limit_exceeded,
            "a frame's window is above max_window_bytes, " + std::to_string(max_window_bytes_)};
  }

  std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
  std::size_t max_window_bytes_;
  unsigned long long content_bytes_ = 0;
  unsigned long long made_bytes_ = 0;
};

}  // namespace

std::unique_ptr<CompressionStream> make_zstd_compress(int level) {
  return std::make_unique<ZstdCompress>(level);
}

std::unique_ptr<CompressionStream> make_zstd_decompress(std::size_t max_window_bytes) {
  return std::make_unique<ZstdDecompress>(max_window_bytes);
}

}  // namespace linkspan::detail
