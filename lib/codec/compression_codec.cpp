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

// Replaces `frame` if that makes it smaller; says whether it has.
Result<bool> shrink(Chain& frame, Compressor& compressor, BlockAllocator& allocator) {
  if (frame.size() < std::max<std::size_t>(compressor.options().min_compressed_bytes, 1)) return false;
  Result<Chain> smaller = compressor.compress(frame, allocator, frame.size() - 1);
  if (smaller) {
    frame = std::move(smaller).value();
    return true;
  }
  if (smaller.error().code == errc::limit_exceeded) return false;
  return smaller.error();
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

}  // namespace detail

// --- frames -----------------------------------------------------------------------------------------------

CompressionCodec::CompressionCodec(const CompressionOptions& options)
    : compressor_(options), break_(options.tick_bytes) {}

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
    if (const auto error = above_limit(frame, compressor_.options())) return fail(*error);
    return pass(std::move(frame));
  }
  Result<Chain> whole = compressor_.decompress(frame, channel().loop().pool());
  frame.clear();
  finish_read(std::move(whole));
}

void CompressionCodec::finish_read(Result<Chain>&& whole) {
  const std::size_t bytes = whole ? whole.value().size() : compressor_.options().tick_bytes;
  if (whole) {
    pass(std::move(whole).value());
  } else {
    fail(whole.error());
  }
  if (!removed()) break_.worked(bytes, channel());
}

void CompressionCodec::on_write(Chain&& frame) {
  if (const auto error = above_limit(frame, compressor_.options())) return fail(*error);
  BlockAllocator& pool = channel().loop().pool();
  const Result<bool> smaller = shrink(frame, compressor_, pool);
  if (!smaller) return fail(smaller.error());
  const std::byte first = smaller.value() ? static_cast<std::byte>(compressor_.options().algorithm) : kAsItIs;
  if (!headers_.prepend(std::span(&first, 1), frame, pool)) {
    return fail(Error(errc::pool_exhausted, "no block for the first byte of a frame"));
  }
  write(std::move(frame));
}

// --- messages of gRPC -------------------------------------------------------------------------------------

GrpcCompression::GrpcCompression(const CompressionOptions& options)
    : compressor_(options), break_(options.tick_bytes) {}

GrpcCompression::~GrpcCompression() = default;

void GrpcCompression::on_read(GrpcMessage&& message) {
  if (!message.compressed) {
    if (const auto error = above_limit(message.data, compressor_.options())) return fail(*error);
    return pass(std::move(message.data));
  }
  Result<Chain> whole = compressor_.decompress(message.data, channel().loop().pool());
  message.data.clear();
  finish_read(std::move(whole));
}

void GrpcCompression::finish_read(Result<Chain>&& whole) {
  const std::size_t bytes = whole ? whole.value().size() : compressor_.options().tick_bytes;
  if (whole) {
    pass(std::move(whole).value());
  } else {
    fail(whole.error());
  }
  if (!removed()) break_.worked(bytes, channel());
}

void GrpcCompression::on_write(Chain&& message) {
  if (const auto error = above_limit(message, compressor_.options())) return fail(*error);
  const Result<bool> smaller = shrink(message, compressor_, channel().loop().pool());
  if (!smaller) return fail(smaller.error());
  write({smaller.value(), std::move(message)});
}

}  // namespace linkspan
