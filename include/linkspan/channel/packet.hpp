// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Packet: one datagram in a pipeline, on its way in or out; what the wire end of a datagram channel gives and
// takes. PayloadCodec makes plain chains of them where there is one peer only.
// Not for: byte streams; their wire end gives and takes Chain.
// Cost: 272 bytes, which handlers pass on by reference.
// Threads: a value.
#pragma once

#include <cstddef>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/transport/endpoint.hpp"

namespace linkspan {

struct Packet {
  Chain data;              ///< empty when the message is
  Endpoint peer;           ///< the sender, or where it goes; a connected channel sends to its own peer anyway
  bool truncated = false;  ///< received: it was longer than DatagramOptions::max_receive_bytes

  [[nodiscard]] std::size_t size_bytes() const noexcept { return data.size(); }
};

/// For connected datagram channels: each message is a chain, so that codecs of chains can follow. One that
/// was cut is dropped, and told as a refusal with errc::truncated.
class LINKSPAN_API PayloadCodec final : public Codec<Packet, Chain> {
 public:
  void on_read(Packet&& packet) override;
  void on_write(Chain&& data) override;
};

}  // namespace linkspan
