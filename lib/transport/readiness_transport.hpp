// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ReadinessTransport: the transport over any Reactor.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/transport/receive_sizer.hpp"
#include "lib/transport/transport_core.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/transport/reactor.hpp"

namespace linkspan {

class ReadinessTransport final : public TransportCore {
 public:
  ReadinessTransport(EventLoop& loop, std::unique_ptr<Reactor> reactor,
                     SocketSystem& sockets = kernel_sockets()) noexcept
      : TransportCore(loop, sockets), reactor_(std::move(reactor)) {}
  ~ReadinessTransport() override { delete_all(); }

  std::string_view name() const noexcept override { return reactor_->name(); }
  std::vector<std::string> capabilities() const override;
  void wake() noexcept override { reactor_->wake(); }

  [[nodiscard]] Reactor& reactor() const noexcept { return *reactor_; }

  struct ReceiveBlock {
    Block& block;
    ReceiveClass receive_class;
  };
  /// A block to receive into, of `wanted` or, while the pool is short, a smaller class; empty when it refuses
  /// these too. Streams share it: it stays here until a receive has used it up, so idle streams hold no
  /// memory.
  [[nodiscard]] ReceiveBlock receive_block(ReceiveClass wanted) noexcept;

 protected:
  std::unique_ptr<StreamCore> make_stream(StreamSetup setup) override;
  std::unique_ptr<ConnectAttempt> make_attempt(AttemptSetup setup) override;
  std::unique_ptr<ListenerCore> make_listener(Socket socket, ListenerHandler& handler) override;
  std::unique_ptr<DatagramCore> make_datagram(DatagramSetup setup) override;
  bool wait(Duration timeout) override { return reactor_->wait(timeout); }

 private:
  std::unique_ptr<Reactor> reactor_;
  std::array<Block, kReceiveClasses> blocks_;
};

}  // namespace linkspan
