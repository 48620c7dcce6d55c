// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Server: listens on an endpoint and makes a channel of every connection, spread over loops.
// Not for: a single connection; see Client.
// Cost: one accept loop; handing a connection to another loop is one post, which listen_on_every_loop spares.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/loop/loop_group.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/listener.hpp"

namespace linkspan {

struct ServerOptions {
  Endpoint endpoint;               ///< port 0 asks for a free one
  ChannelInitializer initializer;  ///< fills the pipeline of each channel; its failure closes that connection
  ListenOptions listen;
  ChannelOptions channel;
  std::size_t max_connections = 65'536;  ///< further connections are closed as soon as they are accepted
  /// Of one IP address at a time; 0: no limit of its own. Unix sockets have no address. Counted where the
  /// connection lives, so one too many is closed there.
  std::size_t max_connections_per_address = 0;
  /// On average; 0: no limit. What comes faster is closed as soon as it is accepted.
  std::size_t max_accepts_per_second = 0;
  std::size_t accept_burst = 0;  ///< how many may come at once; 0: those of a second
  /// SO_REUSEPORT: each loop that has connections also accepts its own, on a listener of its own at the same
  /// address; no accept loop, and the group's policy is not asked. The system chooses, on Linux by a hash of
  /// both addresses, which evens out over many connections only; with a loop that stalls, those in its
  /// queue wait. Other processes of the same user can listen there as well. All loops have to run when the
  /// server starts. Not for unix sockets.
  bool listen_on_every_loop = false;

  ServerOptions() = default;
};

/// What a server has done so far.
struct ServerCounters {
  std::uint64_t accepted = 0;  ///< connections that became channels
  std::uint64_t closed = 0;    ///< of these
  // Closed at once, because of the option of that name.
  std::uint64_t refused_max_connections = 0;
  std::uint64_t refused_max_connections_per_address = 0;
  std::uint64_t refused_max_accepts_per_second = 0;
  std::uint64_t failed = 0;  ///< lost before they became channels: memory, or a loop that stops
};

/// A running server. The loops have to outlive it. A listener or accept error is logged and passes.
class LINKSPAN_API Server {
 public:
  /// Accepts on the first loop of `loops`; each connection lives on the loop that its policy chooses. Waits
  /// for the accept loop to listen, so it has to run, or be the caller's own.
  [[nodiscard]] static Result<Server> start(LoopGroup& loops, ServerOptions options);
  /// Accepts on a loop of its own choice.
  [[nodiscard]] static Result<Server> start(EventLoop& accept_loop, LoopGroup& loops, ServerOptions options);
  /// Everything on one loop.
  [[nodiscard]] static Result<Server> start(EventLoop& loop, ServerOptions options);
  /// Accepts on the first loop of `loops`, on a socket that listens already: see Transport::listen. The
  /// options `endpoint` and `listen` are not used then; listen_on_every_loop is an error.
  [[nodiscard]] static Result<Server> start(LoopGroup& loops, Socket listening, ServerOptions options);
  /// The same with everything on one loop.
  [[nodiscard]] static Result<Server> start(EventLoop& loop, Socket listening, ServerOptions options);

  Server(Server&& other) noexcept = default;
  Server& operator=(Server&& other) noexcept;
  /// Waits until every channel is gone: after stop() for as long as its deadline allows, else they are
  /// aborted. On one of the server's loops it cannot wait, and the rest happens in the ticks that follow.
  ~Server();

  [[nodiscard]] const Endpoint& local_endpoint() const noexcept;
  /// Connections that are open now.
  [[nodiscard]] std::size_t connections() const noexcept;

  [[nodiscard]] ServerCounters counters() const noexcept;

  /// Accepts no more and asks every channel to finish (HandlerNode::on_drain); one that is still open at the
  /// deadline is aborted. `done` is called once, when the last channel is gone, on the loop where that
  /// happens, or inside this call if all is over already. Again: sets a new deadline.
  void stop(Duration deadline, unique_function<void()> done = nullptr);

 private:
  class Core;

  explicit Server(std::shared_ptr<Core> core) noexcept;
  [[nodiscard]] static Result<Server> start(EventLoop& accept_loop, LoopGroup* group,
                                            std::span<EventLoop* const> loops, ServerOptions options,
                                            Socket listening = Socket());

  std::shared_ptr<Core> core_;
};

}  // namespace linkspan
