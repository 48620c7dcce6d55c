// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Transport: the engine of a loop that does network I/O. Three of them stand behind this one interface:
// io_uring, epoll and asio.
// Not for: messages and handlers; see Channel, Server and Client.
// Cost: see Stream and Listener.
// Threads: the loop's thread only, but for what Engine allows.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/loop/engine.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/datagram.hpp"
#include "linkspan/transport/listener.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

class LINKSPAN_API Transport : public Engine {
 public:
  /// The transport of a loop; asserts that its engine is one.
  [[nodiscard]] static Transport& of(EventLoop& loop) noexcept;

  /// `handler` has to live until the listener is closed. A unix path that exists is taken over if nobody
  /// listens there.
  [[nodiscard]] virtual Result<Listener> listen(const Endpoint& endpoint, const ListenOptions& options,
                                                ListenerHandler& handler) = 0;
  /// Takes over a stream socket that listens already, such as one that a supervisor has passed on. Its
  /// options are those of whoever made it; whether its calls block is the listener's from now on, also for
  /// processes that share it. Its unix path is not removed at close. Fails with errc::invalid_argument, and
  /// closes it, when it is no such socket.
  [[nodiscard]] virtual Result<Listener> listen(Socket socket, ListenerHandler& handler) = 0;

  /// A stream that is connecting; writes queue until on_open. A failure, that of making the socket included,
  /// is reported by on_closed. `handler`: see Stream.
  [[nodiscard]] Stream connect(const Endpoint& endpoint, const StreamOptions& options,
                               StreamHandler& handler) {
    return connect(std::span(&endpoint, 1), options, handler);
  }
  /// The same with several addresses of one peer, best first, of which the first that answers is taken (RFC
  /// 8305): they are tried in this order, but with the families in turn, and the next one as soon as the one
  /// before it has failed or StreamOptions::connect_attempt_delay has passed. When all have failed on_closed
  /// says the last error, but one that only says that this host has no way to such addresses not if there
  /// was another. Fails with errc::invalid_argument for none, errc::limit_exceeded for more than
  /// kEndpointsMost.
  [[nodiscard]] virtual Stream connect(std::span<const Endpoint> endpoints, const StreamOptions& options,
                                       StreamHandler& handler) = 0;
  static constexpr std::size_t kEndpointsMost = 64;

  /// A stream over a connected stream socket.
  [[nodiscard]] virtual Stream open(Socket socket, const StreamOptions& options, StreamHandler& handler) = 0;

  /// A datagram socket at `local`, or without an address (no Endpoint) when it has a peer; it is open at
  /// once. A unix path is taken over if no socket has it any more. Fails with what was wrong. `handler`: see
  /// DatagramSocket.
  [[nodiscard]] virtual Result<DatagramSocket> open_datagram(const Endpoint& local,
                                                             const DatagramOptions& options,
                                                             DatagramHandler& handler) = 0;
  /// The same over a datagram socket that was made elsewhere.
  [[nodiscard]] virtual Result<DatagramSocket> open_datagram(Socket socket, const DatagramOptions& options,
                                                             DatagramHandler& handler) = 0;

  /// Names of what is active, for logs and tests: "multishot_receive", "defer_taskrun", ...
  [[nodiscard]] virtual std::vector<std::string> capabilities() const = 0;
};

/// Names of the transports in this build, in the order in which `auto` tries them.
[[nodiscard]] LINKSPAN_API std::vector<std::string_view> transport_names();

/// Makes the engines of loops. `name` is "io_uring", "epoll", "asio" or "auto"; empty means "auto". The
/// environment variable LINKSPAN_TRANSPORT replaces "auto". `auto` takes the first one that can really be set
/// up and logs why another was passed over; a name that was asked for is never replaced: then the loop's
/// creation fails with the reason. Fails with errc::invalid_argument for an unknown name, errc::unavailable
/// for one that is not built in.
[[nodiscard]] LINKSPAN_API Result<EngineFactory> transport_engine(std::string_view name = "auto");

}  // namespace linkspan
