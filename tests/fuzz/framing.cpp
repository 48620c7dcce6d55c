// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Bytes through a codec, at once and in pieces: the events are the same. The first byte chooses the codec,
// the second the size of the pieces.
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/codec/delimiter_codec.hpp"
#include "linkspan/codec/fixed_size_codec.hpp"
#include "linkspan/codec/grpc_message_codec.hpp"
#include "linkspan/codec/length_field_codec.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"
#include "linkspan/codec/line_codec.hpp"
#include "linkspan/codec/varint_length_codec.hpp"
#include "tests/fuzz/split_invariance.hpp"

using namespace linkspan;

namespace {

constexpr std::size_t kFrameMostBytes = 20;

struct Events final : Service<Chain> {
  explicit Events(std::string& seen_in) : seen(seen_in) {}
  void on_read(Chain&& frame) override { seen += "[" + frame.to_string() + "]"; }
  void on_read_end() override { seen += "end"; }
  void on_error(std::error_code, std::string_view detail) override { seen += detail; }
  std::string& seen;
};

// Messages of gRPC as chains, with their flag in front.
struct Flags final : Codec<GrpcMessage, Chain> {
  void on_read(GrpcMessage&& message) override {
    message.data.prepend(Slice::immortal(message.compressed ? "1" : "0"));
    pass(std::move(message.data));
  }
  void on_write(Chain&& frame) override { write({false, std::move(frame)}); }
};

template <class Codec, class Options>
bool add(EmbeddedChannel& channel, const Options& options, std::string& seen) {
  return channel.pipeline().append(std::make_unique<Codec>(options), std::make_unique<Events>(seen)).ok();
}

bool add_codec(EmbeddedChannel& channel, std::uint8_t which, std::string& seen) {
  LengthPrefixOptions prefix;
  LengthFieldOptions field;
  GrpcMessageOptions grpc;
  VarintLengthOptions varint;
  LineOptions line;
  DelimiterOptions delimiter;
  prefix.max_frame_bytes = field.max_frame_bytes = varint.max_frame_bytes = line.max_line_bytes =
      delimiter.max_frame_bytes = grpc.max_message_bytes = kFrameMostBytes;
  field.width = 1 + which / 8 % 4;
  field.offset = which / 32 % 3;
  field.adjustment = which / 96 - 1;
  delimiter.delimiters = {"\r\n", "\n", "ab", "aab"};
  switch (which % 8) {
    case 0: return add<LengthPrefixCodec>(channel, prefix, seen);
    case 1: return add<LengthFieldCodec>(channel, field, seen);
    case 2: field.order = std::endian::little; return add<LengthFieldCodec>(channel, field, seen);
    case 3: return add<VarintLengthCodec>(channel, varint, seen);
    case 4: return add<LineCodec>(channel, line, seen);
    case 5: return add<DelimiterCodec>(channel, delimiter, seen);
    case 6:
      return channel.pipeline()
          .append(std::make_unique<GrpcMessageCodec>(grpc), std::make_unique<Flags>(),
                  std::make_unique<Events>(seen))
          .ok();
    default: return add<FixedSizeCodec>(channel, std::size_t{1} + which / 8, seen);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::check_split_invariance(data, size, add_codec);
}
