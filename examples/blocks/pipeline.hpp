// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The pipeline of both sides: frames with a length in front, in them protobuf messages beside their payload.
#pragma once

#include <memory>
#include <utility>

#include "limits.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"
#include "linkspan/marshal/marshaller.hpp"
#include "linkspan/marshal/protobuf.hpp"

namespace linkspan::blocks {

/// Reads In and writes Out.
template <class In, class Out>
class Pipes {
 public:
  static Result<Pipes> create() {
    auto in = ProtobufMarshaller<In>::create();
    if (!in) return in.error();
    auto out = ProtobufMarshaller<Out>::create();
    if (!out) return out.error();
    return Pipes(std::move(in).value(), std::move(out).value());
  }

  template <class Last>
  Status fill(Channel& channel, std::unique_ptr<Last> last) const {
    LengthPrefixOptions options;
    options.max_frame_bytes = kMaxFrameBytes;
    return channel.pipeline().append(std::make_unique<LengthPrefixCodec>(options),
                                     std::make_unique<Codec>(in_, out_), std::move(last));
  }

 private:
  using Codec = MarshalCodec<ProtobufMarshaller<In>, ProtobufMarshaller<Out>>;
  Pipes(ProtobufMarshaller<In> in, ProtobufMarshaller<Out> out) : in_(std::move(in)), out_(std::move(out)) {}

  ProtobufMarshaller<In> in_;
  ProtobufMarshaller<Out> out_;
};

}  // namespace linkspan::blocks
