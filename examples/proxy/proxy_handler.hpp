// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a proxy does for each connection that it accepts: connects another one to the target, and passes bytes
// on between the two, by reference. A side is not read from while the other one takes no more, so that a
// peer that stops reading stops the other peer, and not the memory of the proxy.
#pragma once

#include <linkspan/channel/client.hpp>
#include <memory>
#include <utility>

namespace linkspan::examples {

/// One side; both live on one loop.
class ProxySide final : public Service<Chain> {
 public:
  /// The two sides of one connection.
  struct Pair {
    ProxySide* sides[2] = {};  // nullptr once it is gone
  };

  /// The side that was accepted connects to `target`.
  static Status accept(Channel& channel, const Endpoint& target, const ChannelOptions& options) {
    auto pair = std::make_shared<Pair>();
    auto side = std::make_unique<ProxySide>(pair, 0);
    if (Status status = channel.pipeline().append(std::move(side)); !status) return status;
    channel.pause_read();  // until the other side is open
    const Client client(
        channel.loop(),
        [pair](Channel& other) { return other.pipeline().append(std::make_unique<ProxySide>(pair, 1)); },
        options);
    client.connect(target);
    return std::monostate{};
  }

  ProxySide(std::shared_ptr<Pair> pair, int index) : pair_(std::move(pair)), index_(index) {
    pair_->sides[index] = this;
  }

  void on_active() override {
    if (index_ == 0) return;
    if (ProxySide* front = other()) {
      front->channel().resume_read();
    } else {
      channel().abort();  // it has gone meanwhile
    }
  }
  void on_read(Chain&& data) override {
    ProxySide* to = other();
    if (to == nullptr) return;
    // The watermark counts bytes; what has to be bounded is the memory, and few bytes may keep a large block.
    if (to->channel().queued_bytes() == 0) to->pinned_bytes_ = 0;
    for (const Slice& slice : data) to->pinned_bytes_ += slice.pinned_size();
    to->write(std::move(data));
    if (to->channel().writable() && to->pinned_bytes_ <= Watermarks().high_bytes) return;
    // At once: the transport may have more for this tick. Completes when all of it is on its way, or lost.
    channel().pause_read();
    to->write(Chain(), [pair = pair_, index = index_](std::error_code) {
      if (ProxySide* from = pair->sides[index]) from->channel().resume_read();
    });
  }
  /// Each direction ends for itself.
  void on_read_end() override {
    if (ProxySide* to = other()) to->channel().shutdown_write();
  }
  void on_drain(Duration) override {}  // what runs may finish; the server aborts it at its deadline
  void on_inactive(std::error_code error) override {
    pair_->sides[index_] = nullptr;
    ProxySide* rest = other();
    if (rest == nullptr) return;
    if (error) {
      rest->channel().abort();
    } else {
      rest->channel().close();
    }
  }

 private:
  [[nodiscard]] ProxySide* other() const { return pair_->sides[1 - index_]; }

  std::shared_ptr<Pair> pair_;
  int index_;
  std::size_t pinned_bytes_ = 0;  // of all that was written since its queue was empty
};

}  // namespace linkspan::examples
