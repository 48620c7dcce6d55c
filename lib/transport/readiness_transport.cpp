// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/readiness_transport.hpp"

#include "lib/transport/readiness_datagram.hpp"
#include "lib/transport/readiness_stream.hpp"

namespace linkspan {

Reactor::~Reactor() = default;

std::unique_ptr<Engine> make_transport(EventLoop& loop, std::unique_ptr<Reactor> reactor) {
  return std::make_unique<ReadinessTransport>(loop, std::move(reactor));
}

ReadinessTransport::ReceiveBlock ReadinessTransport::receive_block(ReceiveClass wanted) noexcept {
  for (auto index = static_cast<std::size_t>(wanted);; --index) {
    const auto receive_class = static_cast<ReceiveClass>(index);
    Block& block = blocks_[index];
    if (!block) block = loop().pool().allocate(blocks_of(receive_class).bytes);
    if (block || index == 0) return {block, receive_class};
  }
}

std::vector<std::string> ReadinessTransport::capabilities() const {
  std::vector<std::string> names{"speculative_send", "accept_batches"};
  sockets().add_datagram_capabilities(names);
  return names;
}

std::unique_ptr<StreamCore> ReadinessTransport::make_stream(StreamSetup setup) {
  return std::make_unique<ReadinessStream>(*this, std::move(setup));
}

std::unique_ptr<ConnectAttempt> ReadinessTransport::make_attempt(AttemptSetup setup) {
  return std::make_unique<ReadinessAttempt>(*this, std::move(setup));
}

std::unique_ptr<ListenerCore> ReadinessTransport::make_listener(Socket socket, ListenerHandler& handler) {
  return std::make_unique<ReadinessListener>(*this, std::move(socket), handler);
}

std::unique_ptr<DatagramCore> ReadinessTransport::make_datagram(DatagramSetup setup) {
  return std::make_unique<ReadinessDatagram>(*this, std::move(setup));
}

}  // namespace linkspan
