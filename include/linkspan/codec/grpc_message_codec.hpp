// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// GrpcMessageCodec: gRPC's length-prefixed messages, which is what the data of its HTTP/2 streams consists
// of: a byte that says whether the message is compressed, its size as 4 bytes in network order, the message.
// A message may be empty.
// Not for: gRPC itself, which needs HTTP/2; nor for compressing (GrpcCompression does, in
// compression_codec.hpp).
// Cost: nothing is copied or put together; 5 bytes of a pool block for each message sent.
// Threads: a handler: the loop's thread only.
#pragma once

#include <cstddef>
#include <utility>

#include "linkspan/codec/frame_codec.hpp"
#include "linkspan/codec/frame_headers.hpp"

namespace linkspan {

struct GrpcMessage {
  bool compressed = false;  ///< with what, the peers have agreed elsewhere (grpc-encoding)
  Chain data{};

  [[nodiscard]] std::size_t size_bytes() const noexcept { return data.size(); }
};

struct GrpcMessageOptions {
  /// Of one message as it is on the wire, without its prefix, in both directions; 2^32 - 1 at most. The
  /// default is that of gRPC's own implementations.
  std::size_t max_message_bytes = std::size_t{4} << 20;

  GrpcMessageOptions() = default;
};

/// Errors that it passes on: limit_exceeded, malformed (a flag that is neither 0 nor 1), truncated (the peer
/// ended in a message), pool_exhausted (no block for a prefix; that message is dropped).
class LINKSPAN_API GrpcMessageCodec final : public FrameCodecOf<GrpcMessage> {
 public:
  explicit GrpcMessageCodec(GrpcMessageOptions options = {}) noexcept : options_(options) {}
  ~GrpcMessageCodec() override;

  void on_write(GrpcMessage&& message) override;

 private:
  FrameStep next(const Chain& input) override;
  void pass_frame(Chain&& frame) override { pass({compressed_, std::move(frame)}); }

  GrpcMessageOptions options_;
  FrameHeaders headers_;
  bool compressed_ = false;  // the message that next() has found
};

}  // namespace linkspan
