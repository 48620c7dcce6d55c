// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the compiler finds out about a handler type: which functions it overrides, whether its messages can be
// right, and whether it fits its neighbours. handler.hpp includes it.
// Not for: inclusion by itself, which is including handler.hpp.
// Cost: one constant a handler type.
// Threads: immutable.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "linkspan/channel/handler.hpp"

namespace linkspan {
namespace detail {

// The class that declares a member function tells whether it was overridden.
template <class Base, class Result, class Class, class... Args>
constexpr bool overrides(Result (Class::*)(Args...)) noexcept {
  return !std::is_same_v<Base, Class>;
}

template <class H, bool kReads, bool kWrites>
constexpr void check_messages() noexcept {
  using In = typename H::InMessage;
  using Out = typename H::OutMessage;
  static_assert(kReads || std::is_same_v<In, typename H::NextInMessage> || std::is_same_v<In, Nothing>,
                "a handler that passes on another type than it reads overrides on_read");
  static_assert(kWrites || std::is_same_v<Out, typename H::NextOutMessage> || std::is_same_v<Out, Nothing>,
                "a handler that writes another type than it takes overrides on_write");
}

template <class H>
constexpr HandlerTable make_handler_table() noexcept {
  using In = typename H::InMessage;
  using NextIn = typename H::NextInMessage;
  using Out = typename H::OutMessage;
  using NextOut = typename H::NextOutMessage;
  using Base = Handler<In, NextIn, Out, NextOut>;
  constexpr bool reads = overrides<Base>(&H::on_read);
  constexpr bool writes = overrides<Base>(&H::on_write);
  check_messages<H, reads, writes>();
  HandlerTable table{kTypeName<H>,
                     &kTypeName<In>,
                     &kTypeName<NextIn>,
                     &kTypeName<Out>,
                     &kTypeName<NextOut>,
                     nullptr,
                     nullptr,
                     0};
  if constexpr (reads) {
    table.read = [](HandlerNode& handler, void* message) {
      static_cast<H&>(handler).H::on_read(std::move(*static_cast<In*>(message)));
    };
  }
  if constexpr (writes) {
    table.write = [](HandlerNode& handler, void* message) {
      static_cast<H&>(handler).H::on_write(std::move(*static_cast<Out*>(message)));
    };
  }
  if (overrides<HandlerNode>(&H::on_active)) table.events |= kActive;
  if (overrides<HandlerNode>(&H::on_read_end)) table.events |= kReadEnd;
  if (overrides<HandlerNode>(&H::on_error)) table.events |= kError;
  if (overrides<HandlerNode>(&H::on_drain)) table.events |= kDrain;
  if (overrides<HandlerNode>(&H::on_user_event)) table.events |= kUserEvent;
  if (overrides<HandlerNode>(&H::on_inactive)) table.events |= kInactive;
  if (overrides<HandlerNode>(&H::on_writable_changed)) table.events |= kWritableChanged;
  if (overrides<HandlerNode>(&H::on_write_closed)) table.events |= kWriteClosed;
  if (overrides<HandlerNode>(&H::on_read_resumed)) table.events |= kReadResumed;
  if (overrides<HandlerNode>(&H::on_descriptors)) table.events |= kDescriptors;
  if (overrides<HandlerNode>(&H::on_refused)) table.events |= kRefused;
  return table;
}

template <class H>
inline constexpr HandlerTable kHandlerTable = make_handler_table<H>();

/// Whether what `Giver` hands over is what `Taker` takes.
template <class Giver, class Taker>
inline constexpr bool kFits = std::is_same_v<Giver, Taker> || std::is_same_v<Giver, Nothing>;

/// A compile-time list of handlers, from the wire to the application.
template <class... H>
struct Joined {};
template <class A, class B, class... More>
struct Joined<A, B, More...> : Joined<B, More...> {
  static_assert(kFits<typename A::NextInMessage, typename B::InMessage>,
                "the first of these two handlers passes on another type than the second one reads");
  static_assert(kFits<typename B::NextOutMessage, typename A::OutMessage>,
                "the second of these two handlers writes another type than the first one takes");
};

}  // namespace detail
}  // namespace linkspan
