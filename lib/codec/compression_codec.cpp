// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/compression_codec.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "linkspan/buffer/cursor.hpp"

namespace linkspan {
namespace {

constexpr std::byte kAsItIs{0};

std::optional<Error> above_limit(const Chain& frame, const CompressionOptions& options) {
  if (frame.size() <= options.max_frame_bytes) return std::nullopt;
  return Error(errc::limit_exceeded, "a frame of " + std::to_string(frame.size()) +
                                         " bytes is above max_frame_bytes, " +
                                         std::to_string(options.max_frame_bytes));
}

}  // namespace

namespace detail {

void ReadBreak::worked(std::size_t bytes, Channel& channel) {
  bytes_ += bytes;
  if (bytes_ < tick_bytes_ || paused_ != nullptr || channel.ended()) return;
  bytes_ = 0;
  paused_ = &channel;
  channel.pause_read();
  channel.loop().defer(*this);
}

void ReadBreak::stop() {
  Channel* const channel = std::exchange(paused_, nullptr);
  if (channel != nullptr && !channel->ended()) channel->resume_read();
}

template <class Wire>
void CompressingCodec<Wire>::decompress(Chain&& frame) {
  Result<Chain> whole = compressor_.decompress(frame, this->channel().loop().pool());
  frame.clear();
  const std::size_t bytes = whole ? whole.value().size() : compressor_.options().tick_bytes;
  if (whole) {
    this->pass(std::move(whole).value());
  } else {
    fail(whole.error());
  }
  if (!this->removed()) break_.worked(bytes, this->channel());
}

template <class Wire>
void CompressingCodec<Wire>::pass_as_it_is(Chain&& frame) {
  if (const auto error = above_limit(frame, compressor_.options())) return fail(*error);
  this->pass(std::move(frame));
}

template <class Wire>
std::optional<bool> CompressingCodec<Wire>::shrink(Chain& frame) {
  const CompressionOptions& options = compressor_.options();
  if (const auto error = above_limit(frame, options)) {
    fail(*error);
    return std::nullopt;
  }
  if (frame.size() < std::max<std::size_t>(options.min_compressed_bytes, 1)) return false;
  Result<Chain> smaller = compressor_.compress(frame, this->channel().loop().pool(), frame.size() - 1);
  if (smaller) {
    frame = std::move(smaller).value();
    return true;
  }
  if (smaller.error().code == errc::limit_exceeded) return false;
  fail(smaller.error());
  return std::nullopt;
}

template class CompressingCodec<Chain>;
template class CompressingCodec<GrpcMessage>;

}  // namespace detail

// --- frames -----------------------------------------------------------------------------------------------

CompressionCodec::CompressionCodec(const CompressionOptions& options) : CompressingCodec(options) {}

CompressionCodec::~CompressionCodec() = default;

void CompressionCodec::on_read(Chain&& frame) {
  const auto first = Cursor(frame).read_big_endian<std::uint8_t>();
  const auto own = static_cast<std::uint8_t>(compressor_.options().algorithm);
  if (!first || (*first != 0 && *first != own)) {
    return fail(Error(errc::malformed, (first ? "a frame begins with " + std::to_string(*first)
                                              : std::string("a frame has no first byte")) +
                                           " instead of 0 or " + std::to_string(own)));
  }
  frame.drop_front(1);
  if (*first == 0) {
    pass_as_it_is(std::move(frame));
  } else {
    decompress(std::move(frame));
  }
}

void CompressionCodec::on_write(Chain&& frame) {
  const std::optional<bool> smaller = shrink(frame);
  if (!smaller) return;
  const std::byte first = *smaller ? static_cast<std::byte>(compressor_.options().algorithm) : kAsItIs;
  if (!headers_.prepend(std::span(&first, 1), frame, channel().loop().pool())) {
    return fail(Error(errc::pool_exhausted, "no block for the first byte of a frame"));
  }
  write(std::move(frame));
}

// --- messages of gRPC -------------------------------------------------------------------------------------

GrpcCompression::GrpcCompression(const CompressionOptions& options) : CompressingCodec(options) {}

GrpcCompression::~GrpcCompression() = default;

void GrpcCompression::on_read(GrpcMessage&& message) {
  if (message.compressed) {
    decompress(std::move(message.data));
  } else {
    pass_as_it_is(std::move(message.data));
  }
}

void GrpcCompression::on_write(Chain&& message) {
  if (const std::optional<bool> smaller = shrink(message)) write({*smaller, std::move(message)});
}

}  // namespace linkspan
