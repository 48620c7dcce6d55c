// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#define ZLIB_CONST  // next_in points to const
#include <zlib.h>

#include <algorithm>

#include "lib/codec/compression_stream.hpp"

namespace linkspan::detail {
namespace {

constexpr int kGzip = 16;  // added to the bits of the window, it asks for gzip's header
constexpr std::size_t kStepMost = std::size_t{1} << 30;  // zlib counts in 32 bits

class ZlibStream : public CompressionStream {
 public:
  Result<bool> step(std::span<const std::byte>& in, std::span<std::byte>& out, bool last) final {
    const std::size_t in_bytes = std::min(in.size(), kStepMost);
    const std::size_t out_bytes = std::min(out.size(), kStepMost);
    stream_.next_in = reinterpret_cast<const Bytef*>(in.data());
    stream_.avail_in = static_cast<uInt>(in_bytes);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out_bytes);
    const int status = advance(last && in_bytes == in.size());
    in = in.subspan(in_bytes - stream_.avail_in);
    out = out.subspan(out_bytes - stream_.avail_out);
    switch (status) {
      case Z_STREAM_END: return true;
      case Z_OK:
      case Z_BUF_ERROR: return false;  // the latter: it could do nothing, which is no error
      case Z_NEED_DICT:
        return Error(errc::unavailable, "a frame cannot be decompressed: it needs a dictionary");
      case Z_MEM_ERROR: return no_memory("zlib");
      default: return malformed(stream_.msg == nullptr ? "zlib does not say why" : stream_.msg);
    }
  }

 protected:
  virtual int advance(bool finish) noexcept = 0;

  z_stream stream_{};
  bool there_ = false;  // zlib has its state
};

class Deflate final : public ZlibStream {
 public:
  explicit Deflate(bool gzip, int level) : window_bits_(MAX_WBITS + (gzip ? kGzip : 0)), level_(level) {}
  ~Deflate() override {
    if (there_) deflateEnd(&stream_);
  }

  Status begin(const Chain&) override {
    if (there_) {
      deflateReset(&stream_);
      return std::monostate();
    }
    constexpr int kMemoryLevel = 8;  // zlib's default
    there_ =
        deflateInit2(&stream_, level_, Z_DEFLATED, window_bits_, kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK;
    if (!there_) return no_memory("zlib");
    return std::monostate();
  }

 private:
  int advance(bool finish) noexcept override { return deflate(&stream_, finish ? Z_FINISH : Z_NO_FLUSH); }

  int window_bits_;
  int level_;
};

class Inflate final : public ZlibStream {
 public:
  explicit Inflate(bool gzip) : window_bits_(MAX_WBITS + (gzip ? kGzip : 0)) {}
  ~Inflate() override {
    if (there_) inflateEnd(&stream_);
  }

  Status begin(const Chain&) override {
    if (there_) {
      inflateReset(&stream_);
      return std::monostate();
    }
    there_ = inflateInit2(&stream_, window_bits_) == Z_OK;
    if (!there_) return no_memory("zlib");
    return std::monostate();
  }

 private:
  int advance(bool) noexcept override { return inflate(&stream_, Z_NO_FLUSH); }

  int window_bits_;
};

}  // namespace

std::unique_ptr<CompressionStream> make_deflate(bool gzip, int level) {
  return std::make_unique<Deflate>(gzip, level);
}

std::unique_ptr<CompressionStream> make_inflate(bool gzip) {
  return std::make_unique<Inflate>(gzip);
}

}  // namespace linkspan::detail
