// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the tests of all codecs share: what comes out of one as text, however the bytes arrive.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/codec/grpc_message_codec.hpp"

namespace linkspan::test {

/// What came out: frames in brackets, then the end or the error.
class Events final : public Service<Chain> {
 public:
  /// `on_frame` is called with each frame.
  explicit Events(std::string& seen, std::function<void(Events&)> on_frame = nullptr)
      : seen_(seen), on_frame_(std::move(on_frame)) {}

  void on_read(Chain&& frame) override {
    seen_ += "[" + frame.to_string() + "]";
    if (on_frame_) on_frame_(*this);
  }
  void on_read_end() override { seen_ += "end"; }
  void on_error(std::error_code, std::string_view detail) override { seen_ += detail; }
  using HandlerNode::channel;
  using HandlerNode::pipeline;

 private:
  std::string& seen_;
  std::function<void(Events&)> on_frame_;
};

/// Messages of gRPC as chains, which begin with 'c' when they are compressed and else with 'p'.
struct GrpcAsChain final : Codec<GrpcMessage, Chain> {
  void on_read(GrpcMessage&& message) override {
    message.data.prepend(Slice::immortal(message.compressed ? "c" : "p"));
    pass(std::move(message.data));
  }
  void on_write(Chain&& frame) override {
    const bool compressed = frame.starts_with("c");
    frame.drop_front(1);
    write({compressed, std::move(frame)});
  }
};

/// Adds a codec to a pipeline, and `last` behind it.
using MakeCodec = std::function<Status(EmbeddedChannel&, std::unique_ptr<Events> last)>;

template <class Codec, class Options>
MakeCodec codec(const Options& options) {
  return [options](EmbeddedChannel& channel, std::unique_ptr<Events> last) {
    return channel.pipeline().append(std::make_unique<Codec>(options), std::move(last));
  };
}

inline MakeCodec grpc_messages(std::size_t most) {
  GrpcMessageOptions options;
  options.max_message_bytes = most;
  return [options](EmbeddedChannel& channel, std::unique_ptr<Events> last) {
    return channel.pipeline().append(std::make_unique<GrpcMessageCodec>(options),
                                     std::make_unique<GrpcAsChain>(), std::move(last));
  };
}

inline std::string events_of(const MakeCodec& make, const std::vector<std::string_view>& pieces) {
  std::string seen;
  EmbeddedChannel channel;
  REQUIRE(make(channel, std::make_unique<Events>(seen)));
  channel.open();
  for (const std::string_view piece : pieces) {
    if (!piece.empty()) channel.receive(piece);
  }
  channel.receive_end();
  return seen;
}

/// The events of the whole, after it was checked that every split in three, and byte by byte, gives the same.
inline std::string events_of(const MakeCodec& make, std::string_view bytes) {
  const std::string whole = events_of(make, std::vector{bytes});
  for (std::size_t i = 0; i <= bytes.size(); ++i) {
    for (std::size_t j = i; j <= bytes.size(); ++j) {
      const std::vector pieces = {bytes.substr(0, i), bytes.substr(i, j - i), bytes.substr(j)};
      CHECK(events_of(make, pieces) == whole);
    }
  }
  std::vector<std::string_view> single;
  for (std::size_t i = 0; i < bytes.size(); ++i) single.push_back(bytes.substr(i, 1));
  CHECK(events_of(make, single) == whole);
  return whole;
}

inline std::string sent(const MakeCodec& make, const std::vector<std::string>& frames) {
  std::string seen;
  EmbeddedChannel channel;
  REQUIRE(make(channel, std::make_unique<Events>(seen)));
  channel.open();
  for (const std::string& frame : frames) channel.write(Chain(Slice::copy(frame)));
  return channel.take_sent().to_string() + seen;
}

}  // namespace linkspan::test
