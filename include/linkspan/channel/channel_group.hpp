// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ChannelGroup: a set of channels, on any loops, that can be written to and ended together. Channels that
// close leave by themselves.
// Not for: pipelines whose last handler takes something else than Chain; broadcasts do not encode.
// Cost: one allocation a member. A broadcast posts once to each loop that has members, and shares the
// payload's memory: nothing of it is copied.
// Threads: any, but for add and remove, which belong to the channel's loop. Broadcasts of one thread arrive
// in their order.
#pragma once

#include <cstddef>
#include <memory>
#include <system_error>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/channel/channel_ref.hpp"

namespace linkspan {

struct ChannelGroupOptions {
  std::size_t max_channels = 65'536;  ///< add() refuses beyond it
  /// Payload of broadcasts that loops have not taken yet; a further one is refused. With none on its way any
  /// size is taken. What channels queue is theirs to bound, see PendingLimits.
  std::size_t max_pending_bytes = std::size_t{64} << 20;

  ChannelGroupOptions() = default;
};

struct BroadcastOptions {
  ChannelRef except;           ///< gets nothing, such as the sender
  bool only_writable = false;  ///< leaves out channels above their high watermark

  BroadcastOptions() = default;
};

struct BroadcastResult {
  std::size_t given = 0;    ///< channels that it was written to
  std::size_t skipped = 0;  ///< members that were left out: as the options say, or closed meanwhile
  std::error_code error;    ///< errc::limit_exceeded: it was refused as a whole
};

/// Called once, when each loop has written it to its members, on the loop that was last; or inside the call.
using BroadcastDone = unique_function<void(const BroadcastResult& result)>;

/// Destroying it forgets its members, and leaves them open.
class LINKSPAN_API ChannelGroup {
 public:
  explicit ChannelGroup(ChannelGroupOptions options = {});
  ~ChannelGroup();
  ChannelGroup(const ChannelGroup&) = delete;
  ChannelGroup& operator=(const ChannelGroup&) = delete;

  /// Fails with errc::limit_exceeded when the group is full, with errc::cancelled after close or drain, or
  /// when the channel is closed. A member stays one. Channel's loop.
  Status add(Channel& channel);
  /// Channel's loop.
  void remove(Channel& channel) noexcept;

  [[nodiscard]] std::size_t size() const noexcept;

  void broadcast(Chain&& data, BroadcastDone done = nullptr) {
    broadcast(std::move(data), {}, std::move(done));
  }
  void broadcast(Chain&& data, BroadcastOptions options, BroadcastDone done = nullptr);

  /// Channel::close for each. Takes no more members. `done` is called once, when the last member is gone, on
  /// its loop, or inside this call when there is none.
  void close(Duration deadline, unique_function<void()> done = nullptr);
  /// The same with Channel::drain; what is still open at the deadline is aborted.
  void drain(Duration deadline, unique_function<void()> done = nullptr);

 private:
  class Core;
  class Part;
  class Membership;
  struct Broadcast;
  class Ending;

  std::shared_ptr<Core> core_;
};

}  // namespace linkspan
