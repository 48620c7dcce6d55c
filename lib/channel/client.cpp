// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/client.hpp"

#include <memory>
#include <utility>

#include "lib/channel/stream_channel.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

void refuse(StreamChannel::ConnectSetup& setup) {
  {
    const std::lock_guard lock(setup.state->mutex);
    setup.state->loop = nullptr;
  }
  if (setup.done) setup.done(make_error_code(errc::stopped));
}

void connect_here(EventLoop& loop, StreamChannel::ConnectSetup& setup) {
  if (loop.stopping()) {
    refuse(setup);
  } else {
    StreamChannel::connect(loop, std::move(setup));
  }
}

}  // namespace

Client::Client(EventLoop& loop, ChannelInitializer initializer, ChannelOptions options)
    : loops_(&loop), initializer_(std::move(initializer)), options_(options) {
  LINKSPAN_ASSERT(initializer_ != nullptr, "a client has an initializer");
}

Client::Client(LoopGroup& loops, ChannelInitializer initializer, ChannelOptions options)
    : loops_(&loops), initializer_(std::move(initializer)), options_(options) {
  LINKSPAN_ASSERT(initializer_ != nullptr, "a client has an initializer");
}

ChannelRef Client::connect(std::vector<Endpoint> endpoints, ConnectDone done) const {
  return start({}, std::move(endpoints), std::move(done));
}

ChannelRef Client::connect(std::string_view name, ConnectDone done) const {
  return start(std::string(name), {}, std::move(done));
}

ChannelRef Client::start(std::optional<std::string> name, std::vector<Endpoint> endpoints,
                         ConnectDone done) const {
  EventLoop* const* single = std::get_if<EventLoop*>(&loops_);
  EventLoop& loop = single != nullptr ? **single : std::get<LoopGroup*>(loops_)->next();

  auto state =
      std::make_shared<detail::ChannelState>(loop, options_.stream.high_watermark_bytes, options_.pending);
  ChannelRef ref(state);
  auto setup = std::make_unique<StreamChannel::ConnectSetup>(StreamChannel::ConnectSetup{
      std::move(name), std::move(endpoints), options_, initializer_, std::move(done), std::move(state)});
  if (loop.in_loop_thread()) {
    connect_here(loop, *setup);
  } else if (loop.post([&loop, raw = setup.get()] {
               const std::unique_ptr<StreamChannel::ConnectSetup> owner(raw);
               connect_here(loop, *owner);
             })) {
    static_cast<void>(setup.release());
  } else {
    refuse(*setup);
  }
  return ref;
}

}  // namespace linkspan
