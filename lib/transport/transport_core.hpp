// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// TransportCore: what all transports share: the open sockets and listeners, which of them wait for service,
// for a block of the pool, or for deletion, and the order of a poll.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "lib/transport/connect_attempt.hpp"
#include "lib/transport/datagram_core.hpp"
#include "lib/transport/listener_core.hpp"
#include "lib/transport/socket_system.hpp"
#include "lib/transport/stream_core.hpp"
#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan {

class TransportCore : public Transport {
 public:
  explicit TransportCore(EventLoop& loop, SocketSystem& sockets = kernel_sockets()) noexcept
      : loop_(loop), sockets_(sockets) {}
  ~TransportCore() override;

  Result<Listener> listen(const Endpoint& endpoint, const ListenOptions& options,
                          ListenerHandler& handler) final;
  Result<Listener> listen(Socket socket, ListenerHandler& handler) final;
  using Transport::connect;
  Stream connect(std::span<const Endpoint> endpoints, const StreamOptions& options,
                 StreamHandler& handler) final;
  Stream open(Socket socket, const StreamOptions& options, StreamHandler& handler) final;
  Result<DatagramSocket> open_datagram(const Endpoint& local, const DatagramOptions& options,
                                       DatagramHandler& handler) final;
  Result<DatagramSocket> open_datagram(Socket socket, const DatagramOptions& options,
                                       DatagramHandler& handler) final;

  void prepare() noexcept final;
  bool poll(Duration timeout) noexcept final;
  void stop() noexcept final;
  bool idle() const noexcept final;
  void memory_available() noexcept final;

  [[nodiscard]] EventLoop& loop() const noexcept { return loop_; }
  [[nodiscard]] SocketSystem& sockets() const noexcept { return sockets_; }

  /// The transport's from now on.
  [[nodiscard]] ConnectAttempt& add_attempt(AttemptSetup setup);
  /// Just one socket is being serviced: it need not share its system calls with others.
  [[nodiscard]] bool serves_one() const noexcept { return serves_one_; }
  void add_dirty(SocketCore& socket) noexcept;
  void add_starved(SocketCore& socket) noexcept;
  /// Takes a closed socket or listener out of everything; it is deleted by the next poll.
  void bury(SocketCore& socket) noexcept;
  void bury(ListenerCore& listener) noexcept;

 protected:
  [[nodiscard]] virtual std::unique_ptr<StreamCore> make_stream(StreamSetup setup) = 0;
  [[nodiscard]] virtual std::unique_ptr<ConnectAttempt> make_attempt(AttemptSetup setup) = 0;
  [[nodiscard]] virtual std::unique_ptr<ListenerCore> make_listener(Socket socket,
                                                                    ListenerHandler& handler) = 0;
  /// Only called where the SocketSystem has datagram sockets.
  [[nodiscard]] virtual std::unique_ptr<DatagramCore> make_datagram(DatagramSetup) { return nullptr; }
  /// Submits what was started, waits at most `timeout`, and dispatches a bounded number of events. False when
  /// there was none.
  virtual bool wait(Duration timeout) = 0;
  /// The pool can serve again after it has refused a block.
  virtual void memory_returned() {}
  /// Nothing of the transport itself is in the kernel's hands.
  [[nodiscard]] virtual bool nothing_in_flight() const noexcept { return true; }

  /// For destructors of backends: deletes what is left, while the backend's own parts still exist.
  void delete_all() noexcept;

 private:
  ListenerCore& add_listener(Socket socket, ListenerHandler& handler);
  Stream adopt(StreamSetup setup);
  Result<DatagramSocket> adopt(Result<ReadyDatagramSocket> ready, const DatagramOptions& options,
                               DatagramHandler& handler);
  void service_dirty();
  void feed_starved();
  void delete_buried() noexcept;

  EventLoop& loop_;
  SocketSystem& sockets_;
  IntrusiveList<SocketCore, OpenTag> open_sockets_;
  IntrusiveList<ListenerCore, OpenTag> listeners_;
  IntrusiveList<SocketCore, DirtyTag> dirty_;
  IntrusiveList<SocketCore, StarvedTag> starved_;  // want to receive, but the pool had no block
  IntrusiveList<SocketCore, OpenTag> buried_sockets_;
  IntrusiveList<ListenerCore, OpenTag> buried_listeners_;
  bool stopping_ = false;
  bool serves_one_ = false;
  std::atomic<bool> memory_available_{false};
};

}  // namespace linkspan
