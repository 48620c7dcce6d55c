// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/transport_core.hpp"

#include <sys/socket.h>

#include <utility>

#include "lib/transport/socket_ops.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {

Transport& Transport::of(EventLoop& loop) noexcept {
  auto* transport = dynamic_cast<Transport*>(&loop.engine());
  LINKSPAN_ASSERT(transport != nullptr, "the engine of this loop is a transport");
  return *transport;
}

TransportCore::~TransportCore() {
  delete_all();
}

void TransportCore::delete_all() noexcept {
  while (!open_sockets_.empty()) delete &open_sockets_.pop_front();
  while (!listeners_.empty()) delete &listeners_.pop_front();
  delete_buried();
}

Result<Listener> TransportCore::listen(const Endpoint& endpoint, const ListenOptions& options,
                                       ListenerHandler& handler) {
  LINKSPAN_ASSERT(loop_.in_loop_thread(), "a transport is used on its loop's thread");
  if (stopping_)
    return Error(errc::stopped, "listening on " + endpoint.to_string() + ": the loop is stopping");
  Result<Socket> socket = sockets_.make_listening(endpoint, options);
  if (!socket) return socket.error();
  ListenerCore& listener = add_listener(std::move(socket).value(), handler);
  listener.own_path();
  return listener.make_handle();
}

Result<Listener> TransportCore::listen(Socket socket, ListenerHandler& handler) {
  LINKSPAN_ASSERT(loop_.in_loop_thread(), "a transport is used on its loop's thread");
  if (stopping_) return Error(errc::stopped, "listening on an adopted socket: the loop is stopping");
  if (Status status = sockets_.adopt_listening(socket); !status) return status.error();
  return add_listener(std::move(socket), handler).make_handle();
}

ListenerCore& TransportCore::add_listener(Socket socket, ListenerHandler& handler) {
  ListenerCore& listener = *make_listener(std::move(socket), handler).release();
  listeners_.push_back(listener);
  listener.start_accepting();
  return listener;
}

Stream TransportCore::connect(std::span<const Endpoint> endpoints, const StreamOptions& options,
                              StreamHandler& handler) {
  StreamSetup setup{Socket(), {}, {}, options, handler};
  if (endpoints.empty()) {
    setup.error = make_error_code(errc::invalid_argument);
    log(LogLevel::warning, "transport", "connecting: there is no address");
  } else if (endpoints.size() > kEndpointsMost) {
    setup.error = make_error_code(errc::limit_exceeded);
    log(LogLevel::warning, "transport",
        "connecting: " + std::to_string(endpoints.size()) + " addresses are more than " +
            std::to_string(kEndpointsMost) + " (Transport::kEndpointsMost)");
  } else {
    setup.peers.assign(endpoints.begin(), endpoints.end());
  }
  return adopt(std::move(setup));
}

ConnectAttempt& TransportCore::add_attempt(AttemptSetup setup) {
  ConnectAttempt& attempt = *make_attempt(std::move(setup)).release();
  open_sockets_.push_back(attempt);
  return attempt;
}

Stream TransportCore::open(Socket socket, const StreamOptions& options, StreamHandler& handler) {
  StreamSetup setup{std::move(socket), {}, {}, options, handler};
  if (const Status status = sockets_.adopt_stream(setup.socket, options.socket); !status) {
    setup.error = status.error().code;
    log(LogLevel::warning, "transport", "opening a stream: " + status.error().message());
  }
  return adopt(std::move(setup));
}

Stream TransportCore::adopt(StreamSetup setup) {
  LINKSPAN_ASSERT(loop_.in_loop_thread(), "a transport is used on its loop's thread");
  StreamCore& stream = *make_stream(std::move(setup)).release();
  open_sockets_.push_back(stream);
  if (stopping_) stream.stop();
  return stream.make_handle();
}

Result<DatagramSocket> TransportCore::open_datagram(const Endpoint& local, const DatagramOptions& options,
                                                    DatagramHandler& handler) {
  return adopt(sockets_.make_datagram(local, options), options, handler);
}

Result<DatagramSocket> TransportCore::open_datagram(Socket socket, const DatagramOptions& options,
                                                    DatagramHandler& handler) {
  return adopt(sockets_.adopt_datagram(std::move(socket), options), options, handler);
}

Result<DatagramSocket> TransportCore::adopt(Result<ReadyDatagramSocket> ready, const DatagramOptions& options,
                                            DatagramHandler& handler) {
  LINKSPAN_ASSERT(loop_.in_loop_thread(), "a transport is used on its loop's thread");
  if (!ready) return ready.error();
  DatagramCore& datagram = *make_datagram({std::move(ready).value(), options, handler}).release();
  open_sockets_.push_back(datagram);
  if (stopping_) datagram.stop();
  return datagram.make_handle();
}

void TransportCore::prepare() noexcept {
  delete_buried();
  feed_starved();
  service_dirty();
}

bool TransportCore::poll(Duration timeout) noexcept {
  const bool has_work = !dirty_.empty();
  return wait(has_work ? Duration::zero() : timeout) || has_work;
}

void TransportCore::service_dirty() {
  IntrusiveList<SocketCore, DirtyTag> servicing;
  servicing.splice_back(dirty_);
  serves_one_ = servicing.has_one();
  while (!servicing.empty()) servicing.pop_front().service();
}

void TransportCore::memory_available() noexcept {
  memory_available_.store(true, std::memory_order_release);
  wake();
}

void TransportCore::feed_starved() {
  if (!memory_available_.load(std::memory_order_relaxed)) return;
  static_cast<void>(memory_available_.exchange(false, std::memory_order_acquire));
  IntrusiveList<SocketCore, StarvedTag> hungry;
  hungry.splice_back(starved_);
  while (!hungry.empty()) hungry.pop_front().service();
  memory_returned();
}

void TransportCore::stop() noexcept {
  stopping_ = true;
  for (SocketCore* socket = open_sockets_.first(); socket != nullptr; socket = open_sockets_.next(*socket)) {
    socket->stop();
  }
  for (ListenerCore* listener = listeners_.first(); listener != nullptr;) {
    ListenerCore* next = listeners_.next(*listener);
    listener->close();
    listener = next;
  }
}

bool TransportCore::idle() const noexcept {
  return open_sockets_.empty() && listeners_.empty() && nothing_in_flight();
}

void TransportCore::add_dirty(SocketCore& socket) noexcept {
  if (static_cast<ListNode<DirtyTag>&>(socket).linked()) return;
  dirty_.push_back(socket);
  loop_.need_tick();
}

void TransportCore::add_starved(SocketCore& socket) noexcept {
  if (!static_cast<ListNode<StarvedTag>&>(socket).linked()) starved_.push_back(socket);
}

void TransportCore::bury(SocketCore& socket) noexcept {
  static_cast<ListNode<OpenTag>&>(socket).unlink();
  static_cast<ListNode<DirtyTag>&>(socket).unlink();
  static_cast<ListNode<StarvedTag>&>(socket).unlink();
  buried_sockets_.push_back(socket);
}

void TransportCore::bury(ListenerCore& listener) noexcept {
  listener.unlink();
  buried_listeners_.push_back(listener);
}

void TransportCore::delete_buried() noexcept {
  while (!buried_sockets_.empty()) delete &buried_sockets_.pop_front();
  while (!buried_listeners_.empty()) delete &buried_listeners_.pop_front();
}

}  // namespace linkspan
