// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// open_datagram_channel: a channel over a datagram socket, UDP or unix, with a pipeline whose wire end gives
// and takes Packet. One channel serves all peers of its socket, or, connected, one.
//
//   DatagramChannelOptions options;
//   options.local = Endpoint::parse("0.0.0.0:5353").value_or_throw();
//   options.initializer = [](Channel& channel) { return channel.pipeline().append<MyCodec, MyService>(); };
//   Result<BoundChannel> bound = open_datagram_channel(loop, std::move(options));
//
// Not for: datagrams without handlers; that is a DatagramSocket.
// Cost: one object a socket; no allocation per message.
// Threads: any. On another thread than the loop's it waits for the loop, which has to run.
#pragma once

#include <cstddef>

#include "linkspan/base/result.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/packet.hpp"
#include "linkspan/transport/datagram.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

/// What the queue holds is counted as its bytes and 256 for each message, or more if queue_messages would
/// otherwise be reached below the high watermark. A write of the program above that watermark, and beyond
/// queue_messages, queue_bytes or PendingLimits::max_bytes, is refused or waits, as PendingLimits say. A
/// message of a handler is refused alone when it is beyond both that and what may wait.
struct DatagramChannelOptions {
  Endpoint local;                  ///< port 0 asks for a free one; none: any, with datagram.peer
  ChannelInitializer initializer;  ///< fills the pipeline; its failure is that of opening
  /// `peer` connects; receive_batch is not used. With socket.reuse_port there may be a channel on each loop
  /// at one address: the system gives each peer to one of them, on Linux by a hash of both addresses.
  DatagramOptions datagram;
  Watermarks watermarks{256 * 1024, 128 * 1024};
  bool auto_read = true;  ///< false: reading starts paused, until resume_read()
  PendingLimits pending;

  DatagramChannelOptions() = default;
};

struct BoundChannel {
  ChannelRef channel;
  Endpoint local;
};

/// Binds, connects when there is a peer, and fills the pipeline; on_active follows in the same tick. The
/// channel lives until it is closed, or its loop stops. Fails with what was wrong; with errc::stopped when
/// the loop takes no more work.
[[nodiscard]] LINKSPAN_API Result<BoundChannel> open_datagram_channel(EventLoop& loop,
                                                                      DatagramChannelOptions options);
/// The same over a datagram socket that was made elsewhere; `local` is not used then.
[[nodiscard]] LINKSPAN_API Result<BoundChannel> open_datagram_channel(EventLoop& loop, Socket socket,
                                                                      DatagramChannelOptions options);

}  // namespace linkspan
