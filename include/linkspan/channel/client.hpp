// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Client: connects channels to endpoints, or to what a name stands for.
// Not for: looking names up; see Resolution.
// Cost: a value; the channels do not need it once they are made.
// Threads: connect may be called on any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <variant>
#include <vector>

#include "linkspan/base/unique_function.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/channel_ref.hpp"
#include "linkspan/loop/loop_group.hpp"

namespace linkspan {

/// Called once, on the channel's loop: without an error when the connection is open (after on_active), else
/// with the reason that Transport::connect gives (after on_inactive), or errc::cancelled when the channel was
/// closed meanwhile.
using ConnectDone = unique_function<void(std::error_code error)>;

class LINKSPAN_API Client {
 public:
  /// Channels live on `loop`, or on the loops of `loops` as its policy says. Those have to outlive the
  /// client.
  Client(EventLoop& loop, ChannelInitializer initializer, ChannelOptions options = {});
  Client(LoopGroup& loops, ChannelInitializer initializer, ChannelOptions options = {});

  /// Tries `endpoints`, which are addresses of one peer, as Transport::connect does: the first that answers
  /// is taken. stream.connect_timeout is for all of them. What is written meanwhile is sent when the
  /// connection is open, and fails when connecting has failed. When the loop takes no more work, `done` is
  /// called with errc::stopped inside this call.
  ChannelRef connect(std::vector<Endpoint> endpoints, ConnectDone done = nullptr) const;
  ChannelRef connect(const Endpoint& endpoint, ConnectDone done = nullptr) const {
    return connect(std::vector{endpoint}, std::move(done));
  }
  /// The same with the endpoints that "host:port" stands for, the first Transport::kEndpointsMost of them: a
  /// Resolution with its default timeout comes first, and its error is `done`'s.
  ChannelRef connect(std::string_view name, ConnectDone done = nullptr) const;

 private:
  ChannelRef start(std::optional<std::string> name, std::vector<Endpoint> endpoints, ConnectDone done) const;

  std::variant<EventLoop*, LoopGroup*> loops_;
  ChannelInitializer initializer_;
  ChannelOptions options_;
};

}  // namespace linkspan
