// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/channel/stream_channel.hpp"

#include <algorithm>
#include <utility>

#include "linkspan/transport/transport.hpp"

namespace linkspan {

namespace {

WriteCompletion without_count(WriteDone done) {
  if (!done) return nullptr;
  return [done = std::move(done)](std::error_code error, std::size_t) mutable { done(error); };
}

}  // namespace

StreamChannel::StreamChannel(EventLoop& loop, const ChannelOptions& options)
    : Channel(loop, {options.stream.high_watermark_bytes, options.stream.low_watermark_bytes},
              options.auto_read, options.pending) {}

StreamChannel& StreamChannel::open(EventLoop& loop, Socket socket, const ChannelOptions& options,
                                   const ChannelInitializer& initializer,
                                   std::shared_ptr<ChannelOwner> owner) {
  auto* made = new StreamChannel(loop, options);
  try {
    made->stream_ = Transport::of(loop).open(std::move(socket), options.stream, *made);
  } catch (...) {
    made->begin_closed();
    delete made;
    throw;
  }
  StreamChannel& channel = *made;  // from here on its stream's end destroys it
  channel.owner_ = std::move(owner);
  if (loop.pending_budget() != nullptr) static_cast<void>(channel.ref());
  channel.initialize(initializer);
  return channel;
}

void StreamChannel::connect(EventLoop& loop, ConnectSetup setup) {
  auto* channel = new StreamChannel(loop, setup.options);
  channel->connecting_ = std::make_unique<Connecting>();
  channel->connecting_->setup = std::move(setup);
  if (channel->connecting_->setup.name) {
    channel->resolve();
  } else {
    channel->connect_to(channel->connecting_->setup.endpoints);
  }
  channel->attach(channel->connecting_->setup.state);
  channel->initialize(channel->connecting_->setup.initializer);
}

void StreamChannel::destroy() noexcept {
  const std::shared_ptr<ChannelOwner> owner = std::move(owner_);
  delete this;
  if (owner != nullptr) owner->channel_gone();
}

// --- connecting -------------------------------------------------------------------------------------------

void StreamChannel::resolve() {
  const auto resolved = [this](Result<std::vector<Endpoint>> endpoints) {
    const std::unique_ptr<Resolution> done = std::move(connecting_->resolution);
    if (endpoints) {
      // A name may stand for more than are ever tried; the best come first.
      const std::vector<Endpoint>& all = endpoints.value();
      connect_to(std::span(all).first(std::min(all.size(), Transport::kEndpointsMost)));
    } else {
      on_closed(connecting_->given_up ? make_error_code(errc::aborted) : endpoints.error().code, {});
    }
  };
  connecting_->resolution = std::make_unique<Resolution>(loop(), *connecting_->setup.name, resolved);
}

void StreamChannel::connect_to(std::span<const Endpoint> endpoints) {
  stream_ = Transport::of(loop()).connect(endpoints, connecting_->setup.options.stream, *this);
}

void StreamChannel::on_open() {
  peer_.remember(stream_.peer_endpoint());
  const std::unique_ptr<Connecting> connecting = std::move(connecting_);
  if (connecting != nullptr) {
    for (Connecting::Write& write : connecting->writes) {
      std::visit([&](auto& what) { stream_write(std::move(what), std::move(write.done)); }, write.what);
    }
    if (connecting->shut_down) stream_.shutdown_write();
    if (connecting->close_deadline) {
      stream_.close(std::max(connecting->close_at - loop().now(), Duration::zero()));
    }
  }
  report_open();
  if (connecting != nullptr && connecting->setup.done) run([&] { connecting->setup.done({}); });
}

void StreamChannel::on_closed(std::error_code error, Chain&&) {
  stream_ = Stream();
  const std::unique_ptr<Connecting> connecting = std::move(connecting_);
  if (connecting == nullptr) {
    report_closed(error);
    return;
  }
  begin_closed();
  std::error_code failure = error;
  if (connecting->given_up) {
    failure = make_error_code(connecting->late ? errc::timed_out : errc::cancelled);
    if (connecting->close_deadline) error = {};  // close() is no error
    if (connecting->late) error = failure;
  }
  if (reason()) failure = reason();
  for (Connecting::Write& write : connecting->writes) {
    write.what = Chain();  // memory, files and descriptors go first
    if (write.done) write.done(failure);
  }
  report_closed(error);
  if (connecting->setup.done) run([&] { connecting->setup.done(failure); });
}

// --- what the channel asks for ----------------------------------------------------------------------------

void StreamChannel::stream_write(Chain&& bytes, WriteDone done) {
  stream_.write(std::move(bytes), without_count(std::move(done)));
}

void StreamChannel::stream_write(FileRange&& range, WriteDone done) {
  stream_.write_file(std::move(range), without_count(std::move(done)));
}

void StreamChannel::stream_write(WithDescriptors&& message, WriteDone done) {
  stream_.write(std::move(message.data), std::move(message.descriptors), without_count(std::move(done)));
}

void StreamChannel::send(Chain&& bytes) {
  if (connecting_ == nullptr) {
    stream_.write(std::move(bytes));
  } else if (!connecting_->shut_down) {
    const std::size_t size = bytes.size();
    connecting_->queue({std::move(bytes), nullptr}, size);
  }
}

void StreamChannel::send_range(FileRange&& range, WriteDone done) {
  if (connecting_ == nullptr) return stream_write(std::move(range), std::move(done));
  const auto size = static_cast<std::size_t>(range.size);
  connecting_->queue({std::move(range), std::move(done)}, size);
}

void StreamChannel::send_descriptors(WithDescriptors&& message, WriteDone done) {
  if (connecting_ == nullptr) return stream_write(std::move(message), std::move(done));
  const std::size_t size = message.data.size();
  connecting_->queue({std::move(message), std::move(done)}, size);
}

void StreamChannel::Connecting::queue(Write write, std::size_t size) {
  if (!shut_down) {
    bytes += size;
    writes.push_back(std::move(write));
    return;
  }
  writes.push_back({Chain(), [done = std::move(write.done)](std::error_code) mutable {
                      if (done) done(make_error_code(errc::shut_down));
                    }});
}

void StreamChannel::send_marker(WriteDone&& done, std::uint64_t) {
  if (connecting_ != nullptr) return connecting_->queue({Chain(), as_event(std::move(done))}, 0);
  markers_.reserve_one();
  stream_.write(Chain(), [this](std::error_code error, std::size_t) {
    WriteDone first = markers_.pop_front();
    run([&] { first(error); });
  });
  markers_.emplace_back(std::move(done));
}

void StreamChannel::do_receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) {
  stream_.receive_into(std::move(memory), size, std::move(completion));
}

void StreamChannel::do_flush() {
  if (connecting_ == nullptr) stream_.flush();
}

void StreamChannel::do_shutdown_write() {
  if (connecting_ == nullptr) {
    stream_.shutdown_write();
  } else {
    connecting_->shut_down = true;
  }
}

void StreamChannel::do_close(Duration deadline) {
  if (connecting_ == nullptr) {
    stream_.close(deadline);
    return;
  }
  connecting_->shut_down = true;
  connecting_->close_deadline.emplace(loop(), [this] {
    connecting_->late = true;
    do_abort();
  });
  if (connecting_->writes.empty()) return do_abort();
  const TimePoint now = loop().now();
  connecting_->close_at = deadline < TimePoint::max() - now ? now + deadline : TimePoint::max();
  connecting_->close_deadline->start(deadline);
}

void StreamChannel::do_abort() {
  if (connecting_ != nullptr) connecting_->given_up = true;
  if (stream_) {
    stream_.abort();
  } else {
    connecting_->resolution->cancel();
  }
}

void StreamChannel::do_read(bool wanted) {
  if (wanted) {
    stream_.start_read();
  } else {
    stream_.pause_read();
  }
}

std::size_t StreamChannel::unsent_bytes() const noexcept {
  return connecting_ == nullptr ? stream_.queued_bytes() : connecting_->bytes;
}

Endpoint StreamChannel::local_endpoint() const {
  return stream_ ? stream_.local_endpoint() : Endpoint();
}

Endpoint StreamChannel::peer_endpoint() const {
  return stream_ ? stream_.peer_endpoint() : peer_.endpoint();
}

}  // namespace linkspan
