// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/readiness_transport.hpp"

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

std::unique_ptr<StreamCore> ReadinessTransport::make_stream(StreamSetup setup) {
  return std::make_unique<ReadinessStream>(*this, std::move(setup));
}

std::unique_ptr<ListenerCore> ReadinessTransport::make_listener(Socket socket, ListenerHandler& handler) {
  return std::make_unique<ReadinessListener>(*this, std::move(socket), handler);
}

}  // namespace linkspan
