// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// A datagram socket over readiness: a Watch says when there are messages, errors or room; messages are
// received here, many a call.
#pragma once

#include <cstddef>

#include "lib/transport/datagram_core.hpp"
#include "linkspan/transport/reactor.hpp"

namespace linkspan {

class ReadinessTransport;

class ReadinessDatagram final : public DatagramCore, private ReadyTarget {
 public:
  ReadinessDatagram(ReadinessTransport& transport, DatagramSetup setup);

 protected:
  void update_receive(bool wanted) override;
  bool wait_writable(int descriptor) override;
  void cancel_operations() override;

 private:
  // Another socket, that of a unix peer that has no room.
  struct Room final : ReadyTarget {
    explicit Room(ReadinessDatagram& owner) noexcept : socket(owner) {}
    void on_ready(Readiness) override;

    ReadinessDatagram& socket;
  };

  void on_ready(Readiness ready) override;
  void on_readable();
  bool receive_once(bool just_told);
  bool update_watch();

  Watch watch_;
  Room room_{*this};
  Watch room_watch_;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  std::size_t slots_;  // messages that the next receive has room for
};

}  // namespace linkspan
