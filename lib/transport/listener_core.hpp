// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ListenerCore: what listeners of all transports share: delivery of accepted sockets, the pause when
// descriptors are out, and the end. Owned by the transport, which deletes it when it is closed and nothing is
// in the kernel's hands.
#pragma once

#include <cstdint>
#include <string>

#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/listener.hpp"

namespace linkspan {

class TransportCore;
struct OpenTag;

class ListenerCore : public ListNode<OpenTag> {
 public:
  ListenerCore(TransportCore& transport, Socket socket, ListenerHandler& handler);
  virtual ~ListenerCore();

  [[nodiscard]] Listener make_handle() noexcept { return Listener(this); }

  /// The path of a unix socket is removed at the end.
  void own_path();
  void close() noexcept;

 protected:
  /// Starts accepting; called at first and after each pause. Reports follow.
  virtual void start_accepting() = 0;
  /// Stops; also before the descriptor is closed. Completions that are to come count in operations_.
  virtual void stop_accepting() = 0;
  /// The descriptor is about to be closed, behind stop_accepting: the kernel must not hold it any longer, or
  /// the address would stay taken.
  virtual void forget_descriptor() {}

  void report_accepted(Socket socket);
  /// Accepting failed. True when it should go on at once; false when it pauses (start_accepting follows
  /// later).
  [[nodiscard]] bool report_accept_error(int error);
  void operation_finished();

  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] TransportCore& transport() const noexcept { return transport_; }
  [[nodiscard]] bool closed() const noexcept { return closed_; }

  std::uint32_t operations_ = 0;

 private:
  friend class Listener;
  friend class TransportCore;

  void bury_if_reaped();

  TransportCore& transport_;
  ListenerHandler* handler_;
  Listener* handle_ = nullptr;
  Socket socket_;
  std::string unix_path_;  // if it is ours to remove
  Timer retry_;
  bool closed_ = false;
};

}  // namespace linkspan
