// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Bytes through the decoders of RESP, at once and in pieces: the events are the same. The first byte chooses
// the decoder, and whether its peer is restricted; the second the size of the pieces.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/codec/resp_command.hpp"
#include "linkspan/codec/resp_reply.hpp"
#include "tests/fuzz/split_invariance.hpp"

using namespace linkspan;

namespace {

constexpr std::size_t kMostBytes = 60;

template <class Message>
struct Events final : Service<Message, Chain> {
  explicit Events(std::string& seen_in) : seen(seen_in) {}
  void on_read(Message&& message) override { tell(message); }
  void on_read_end() override { seen += "end"; }
  void on_error(std::error_code, std::string_view detail) override { seen += detail; }

  void tell(RespCommand& command) {
    seen += '(';
    for (std::size_t i = 0; i != command.size(); ++i) {
      if (command.chain(i) != command.text(i)) std::abort();
      seen += command.text(i);
      seen += ' ';
    }
    seen += ')';
  }
  void tell(RespReply& reply) { tell(reply.root()); }
  void tell(RespValue value) {
    seen += static_cast<char>(value.type());
    if (value.chain() != value.text()) std::abort();
    seen += value.text();
    seen += std::to_string(value.integer());
    seen += '(';
    std::size_t count = 0;
    for (const RespValue inner : value) {
      tell(inner);
      ++count;
    }
    if (count != value.size()) std::abort();
    seen += ')';
  }

  std::string& seen;
};

bool add_decoder(EmbeddedChannel& channel, std::uint8_t which, std::string& seen) {
  if (which % 2 == 0) {
    RespCommandLimits limits;
    limits.max_arguments = 8;
    limits.max_bulk_bytes = limits.max_inline_bytes = kMostBytes / 2;
    limits.max_command_bytes = kMostBytes;
    auto decoder = std::make_unique<RespCommandDecoder>(limits);
    decoder->restrict_unauthenticated(which % 4 == 2);
    return channel.pipeline().append(std::move(decoder), std::make_unique<Events<RespCommand>>(seen)).ok();
  }
  RespReplyLimits limits;
  limits.max_values = 12;
  limits.max_depth = 3;
  limits.max_bulk_bytes = limits.max_line_bytes = kMostBytes / 2;
  limits.max_reply_bytes = kMostBytes;
  return channel.pipeline()
      .append(std::make_unique<RespReplyDecoder>(limits), std::make_unique<Events<RespReply>>(seen))
      .ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::check_split_invariance(data, size, add_decoder);
}
