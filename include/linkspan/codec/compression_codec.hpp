// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// CompressionCodec and GrpcCompression: handlers that compress each frame that is sent, and decompress each
// one that is received. They stand behind a codec that makes frames. Part of the library
// linkspan-compression.
// Not for: streams without frames; secrets beside what an attacker chooses in one frame, as sizes tell them.
// Cost: that of a Compressor, see compression.hpp, one for each channel; a frame that is sent as it is costs
// a reference. A frame is compressed, or decompressed, at once, on the loop; between frames, reading pauses
// until the next tick whenever CompressionOptions::tick_bytes have come out.
// Threads: handlers: the loop's thread only.
#pragma once

#include <cstddef>
#include <optional>

#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/codec/compression.hpp"
#include "linkspan/codec/frame_headers.hpp"
#include "linkspan/codec/grpc_message_codec.hpp"

namespace linkspan {

namespace detail {

/// Pauses a channel's reading until its loop's next tick when there was much to do.
class LINKSPAN_API ReadBreak final : private DeferredTask {
 public:
  explicit ReadBreak(std::size_t tick_bytes) noexcept : tick_bytes_(tick_bytes) {}
  void worked(std::size_t bytes, Channel& channel);
  /// The handler is taken out, or its channel goes.
  void stop();

 private:
  void run_deferred() override { stop(); }

  std::size_t tick_bytes_;
  std::size_t bytes_ = 0;  // since the last break
  Channel* paused_ = nullptr;
};

/// What both handlers have: a Compressor, the limit of frames, and breaks between those that come in.
template <class Wire>
class CompressingCodec : public Codec<Wire, Chain> {
 public:
  void on_removed() override { break_.stop(); }

 protected:
  explicit CompressingCodec(const CompressionOptions& options)
      : compressor_(options), break_(options.tick_bytes) {}

  /// Passes on what is in the frame, or an error.
  void decompress(Chain&& frame);
  /// The same for a frame that is as it was sent.
  void pass_as_it_is(Chain&& frame);
  /// Replaces the frame if that makes it smaller; says whether it has. nullopt: an error was passed instead.
  [[nodiscard]] std::optional<bool> shrink(Chain& frame);
  void fail(const Error& error) { this->pass_error(error.code, error.detail); }

  Compressor compressor_;

 private:
  ReadBreak break_;
};

extern template class LINKSPAN_API CompressingCodec<Chain>;
extern template class LINKSPAN_API CompressingCodec<GrpcMessage>;

}  // namespace detail

/// Puts one byte in front of each frame: 0 when the frame follows as it is, because it is small or would not
/// shrink, else the number of the CompressionAlgorithm, which has to be the same on both sides.
///
/// A frame that cannot be sent or decompressed is dropped, and told as an error: limit_exceeded (above
/// max_frame_bytes), malformed (another first byte, among others), and what Compressor says.
class LINKSPAN_API CompressionCodec final : public detail::CompressingCodec<Chain> {
 public:
  /// Throws Exception (invalid_argument) for options that cannot be.
  explicit CompressionCodec(const CompressionOptions& options = {});
  ~CompressionCodec() override;

  void on_read(Chain&& frame) override;
  void on_write(Chain&& frame) override;

 private:
  FrameHeaders headers_;
};

/// Behind a GrpcMessageCodec: messages in and out, compressed as their flag says. The algorithm is what
/// grpc-encoding names: zlib ("deflate"), gzip, or zstd where both sides know it. Errors as CompressionCodec.
class LINKSPAN_API GrpcCompression final : public detail::CompressingCodec<GrpcMessage> {
 public:
  /// Throws Exception (invalid_argument) for options that cannot be.
  explicit GrpcCompression(const CompressionOptions& options);
  ~GrpcCompression() override;

  void on_read(GrpcMessage&& message) override;
  void on_write(Chain&& message) override;
};

}  // namespace linkspan
