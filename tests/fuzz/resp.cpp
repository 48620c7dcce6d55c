// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Bytes through the decoders of RESP, at once and in pieces: the events are the same. The first byte chooses
// the decoder, and whether its peer is restricted; the second the size of the pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/codec/resp_command.hpp"
#include "linkspan/codec/resp_reply.hpp"

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

std::string events_of(std::uint8_t which, std::string_view bytes, std::size_t piece) {
  std::string seen;
  EmbeddedChannel channel;
  bool made = false;
  if (which % 2 == 0) {
    RespCommandLimits limits;
    limits.max_arguments = 8;
    limits.max_bulk_bytes = limits.max_inline_bytes = kMostBytes / 2;
    limits.max_command_bytes = kMostBytes;
    auto decoder = std::make_unique<RespCommandDecoder>(limits);
    decoder->restrict_unauthenticated(which % 4 == 2);
    made = channel.pipeline().append(std::move(decoder), std::make_unique<Events<RespCommand>>(seen)).ok();
  } else {
    RespReplyLimits limits;
    limits.max_values = 12;
    limits.max_depth = 3;
    limits.max_bulk_bytes = limits.max_line_bytes = kMostBytes / 2;
    limits.max_reply_bytes = kMostBytes;
    made = channel.pipeline()
               .append(std::make_unique<RespReplyDecoder>(limits), std::make_unique<Events<RespReply>>(seen))
               .ok();
  }
  if (!made) std::abort();
  channel.open();
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), piece))) {
    channel.receive(bytes.substr(0, piece));
  }
  channel.receive_end();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (events_of(data[0], bytes, bytes.size() + 1) != events_of(data[0], bytes, 1 + data[1] % 16)) {
    std::abort();
  }
  return 0;
}
