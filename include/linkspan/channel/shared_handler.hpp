// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SharedHandler: a handler that any number of pipelines share, on any number of loops. It keeps nothing of a
// channel: its functions are const and are told the Place in the pipeline whose event it is. What belongs to
// a channel is kept in the channel's attributes (attributes.hpp).
//
//   class Stamp final : public SharedHandler<Chain, Chain, Chain, Chain> {
//    public:
//     void on_read(Place& place, Chain&& data) const override { place.pass(std::move(data)); }
//   };
//   const auto stamp = std::make_shared<const Stamp>();
//   ... channel.pipeline().append(share_handler(stamp));  // in each initializer
//
// Not for: state that changes with each message of a channel and nobody else needs; that is a Handler.
// Cost: 72 bytes a pipeline; a message costs what it costs in a Handler, and the load of one pointer.
// Threads: the functions are called on several loops at once. So const has to mean safe there: members that
// change are atomics, or have a lock. The last pipeline's thread destroys it.
#pragma once

#include <any>
#include <memory>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "linkspan/channel/handler.hpp"

namespace linkspan {

template <class In, class NextIn, class Out, class NextOut>
class SharedHandler {
 public:
  using InMessage = In;
  using NextInMessage = NextIn;
  using OutMessage = Out;
  using NextOutMessage = NextOut;

  /// One pipeline's node for the handler; lives as long as a Handler there would.
  class Place : public Handler<In, NextIn, Out, NextOut> {
   public:
    using HandlerNode::channel;
    using HandlerNode::pass_active;
    using HandlerNode::pass_descriptors;
    using HandlerNode::pass_drain;
    using HandlerNode::pass_error;
    using HandlerNode::pass_read_end;
    using HandlerNode::pass_refused;
    using HandlerNode::pass_user_event;
    using HandlerNode::pipeline;
    using HandlerNode::removed;
    using HandlerNode::write_to_wire;
    using Handler<In, NextIn, Out, NextOut>::pass;
    using Handler<In, NextIn, Out, NextOut>::write;
  };

  virtual ~SharedHandler() = default;
  SharedHandler(const SharedHandler&) = delete;
  SharedHandler& operator=(const SharedHandler&) = delete;

  // As the functions of Handler and HandlerNode. Those that are not overridden cost nothing.
  virtual void on_read(Place& place, In&& message) const {
    if constexpr (std::is_same_v<In, NextIn>) place.pass(std::move(message));
  }
  virtual void on_write(Place& place, Out&& message) const {
    if constexpr (std::is_same_v<Out, NextOut>) place.write(std::move(message));
  }
  virtual void on_added(Place&) const {}
  virtual void on_removed(Place&) const {}
  virtual void on_active(Place& place) const { place.pass_active(); }
  virtual void on_read_end(Place& place) const { place.pass_read_end(); }
  virtual void on_error(Place& place, std::error_code error, std::string_view detail) const {
    place.pass_error(error, detail);
  }
  virtual void on_drain(Place& place, Duration deadline) const { place.pass_drain(deadline); }
  virtual void on_user_event(Place& place, const std::any& event) const { place.pass_user_event(event); }
  virtual void on_descriptors(Place& place, std::vector<Socket>&& descriptors) const {
    place.pass_descriptors(std::move(descriptors));
  }
  virtual void on_refused(Place& place, std::error_code error, const Endpoint& peer) const {
    place.pass_refused(error, peer);
  }
  virtual void on_inactive(Place&, std::error_code) const {}
  virtual void on_writable_changed(Place&, bool) const {}
  virtual void on_write_closed(Place&, std::error_code) const {}
  virtual void on_read_resumed(Place&) const {}

 protected:
  SharedHandler() noexcept = default;
};

namespace detail {

/// Calls the shared handler; what that does not override is left out of its table.
template <class H>
class SharedNode final : public H::Place {
 public:
  explicit SharedNode(std::shared_ptr<const H> shared) noexcept : shared_(std::move(shared)) {}

  void on_read(typename H::InMessage&& message) override { shared_->H::on_read(*this, std::move(message)); }
  void on_write(typename H::OutMessage&& message) override {
    shared_->H::on_write(*this, std::move(message));
  }
  void on_added() override { shared_->H::on_added(*this); }
  void on_removed() override { shared_->H::on_removed(*this); }
  void on_active() override { shared_->H::on_active(*this); }
  void on_read_end() override { shared_->H::on_read_end(*this); }
  void on_error(std::error_code error, std::string_view detail) override {
    shared_->H::on_error(*this, error, detail);
  }
  void on_drain(Duration deadline) override { shared_->H::on_drain(*this, deadline); }
  void on_user_event(const std::any& event) override { shared_->H::on_user_event(*this, event); }
  void on_descriptors(std::vector<Socket>&& descriptors) override {
    shared_->H::on_descriptors(*this, std::move(descriptors));
  }
  void on_refused(std::error_code error, const Endpoint& peer) override {
    shared_->H::on_refused(*this, error, peer);
  }
  void on_inactive(std::error_code error) override { shared_->H::on_inactive(*this, error); }
  void on_writable_changed(bool writable) override { shared_->H::on_writable_changed(*this, writable); }
  void on_write_closed(std::error_code error) override { shared_->H::on_write_closed(*this, error); }
  void on_read_resumed() override { shared_->H::on_read_resumed(*this); }

 private:
  std::shared_ptr<const H> shared_;
};

template <class Base, class Class, class... Args>
constexpr bool overrides(void (Class::*)(Args...) const) noexcept {
  return !std::is_same_v<Base, Class>;
}

template <class H>
constexpr HandlerTable make_shared_table() noexcept {
  using In = typename H::InMessage;
  using NextIn = typename H::NextInMessage;
  using Out = typename H::OutMessage;
  using NextOut = typename H::NextOutMessage;
  using Base = SharedHandler<In, NextIn, Out, NextOut>;
  constexpr bool reads = overrides<Base>(&H::on_read);
  constexpr bool writes = overrides<Base>(&H::on_write);
  check_messages<H, reads, writes>();
  HandlerTable table = make_handler_table<SharedNode<H>>();
  table.name = kTypeName<H>;
  if (!reads) table.read = nullptr;
  if (!writes) table.write = nullptr;
  const auto keep = [&table](Event event, bool overridden) {
    if (!overridden) table.events &= ~std::uint32_t{event};
  };
  keep(kActive, overrides<Base>(&H::on_active));
  keep(kReadEnd, overrides<Base>(&H::on_read_end));
  keep(kError, overrides<Base>(&H::on_error));
  keep(kDrain, overrides<Base>(&H::on_drain));
  keep(kUserEvent, overrides<Base>(&H::on_user_event));
  keep(kDescriptors, overrides<Base>(&H::on_descriptors));
  keep(kRefused, overrides<Base>(&H::on_refused));
  keep(kInactive, overrides<Base>(&H::on_inactive));
  keep(kWritableChanged, overrides<Base>(&H::on_writable_changed));
  keep(kWriteClosed, overrides<Base>(&H::on_write_closed));
  keep(kReadResumed, overrides<Base>(&H::on_read_resumed));
  return table;
}

template <class H>
inline constexpr HandlerTable kHandlerTable<SharedNode<H>> = make_shared_table<H>();

}  // namespace detail

/// A node for one pipeline, to be given to append() and its like. Allocates.
template <class H>
[[nodiscard]] std::unique_ptr<detail::SharedNode<H>> share_handler(std::shared_ptr<const H> handler) {
  return std::make_unique<detail::SharedNode<H>>(std::move(handler));
}
template <class H>
requires(!std::is_const_v<H>)
    [[nodiscard]] std::unique_ptr<detail::SharedNode<H>> share_handler(std::shared_ptr<H> handler) {
  return std::make_unique<detail::SharedNode<H>>(std::move(handler));
}

}  // namespace linkspan
