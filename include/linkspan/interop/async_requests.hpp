// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Requests for coroutines, or any other Asio completion token: many calls in flight on one connection, each
// with its answer.
//
//   AsyncRequests<Question, Answer, Ids> questions(channel);  // whose pipeline ends in a Requests
//   Answer answer = co_await async_call(questions, Question{...}, 2s, asio::use_awaitable);
//
// Not for: callbacks on the loop, which Requests takes as it is.
// Cost: that of Requests, and one allocation.
// Threads: made on the channel's loop; a value, whose copies are used on any thread while the loop is there.
// Calls from other threads are posted.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <concepts>
#include <cstdint>
#include <system_error>
#include <type_traits>
#include <utility>

#include "linkspan/channel/requests.hpp"
#include "linkspan/interop/async_initiate.hpp"

namespace linkspan {

/// The Requests of a channel. It does not keep the channel.
template <class Request, class Response, class Ids>
class AsyncRequests {
 public:
  using Handler = Requests<Request, Response, Ids>;

  explicit AsyncRequests(Channel& channel) : loop_(&channel.loop()), ref_(channel.ref()) {}

  [[nodiscard]] EventLoop& loop() const noexcept { return *loop_; }
  [[nodiscard]] const ChannelRef& ref() const noexcept { return ref_; }
  /// nullptr: the channel, or its handler, is gone. Loop's thread.
  [[nodiscard]] Handler* handler() const {
    Channel* const channel = ref_.here();
    return channel == nullptr ? nullptr : channel->pipeline().template find<Handler>();
  }

 private:
  EventLoop* loop_;
  ChannelRef ref_;
};

/// Requests::call, within the timeout, or else RequestOptions::deadline, which both begin on the loop. Fails
/// as that does, and with errc::shut_down when the channel is gone. One that ends early is cancelled: its
/// answer will be dropped. Handler: void(std::error_code, Response).
template <class Request, class Response, class Ids, class Token>
auto async_call(const AsyncRequests<Request, Response, Ids>& requests,
                std::type_identity_t<Request>&& request, AsyncOptions options, Token&& token) {
  static_assert(std::default_initializable<Response>,
                "a call that fails has a response, too: make it a default one");
  const Duration deadline = std::exchange(options.timeout, Duration::max());
  auto start = [requests, deadline, request = std::move(request)](
                   detail::OperationRef<detail::OperationOf<std::error_code, Response>> operation) mutable {
    auto* const handler = requests.handler();
    if (handler == nullptr) return operation->end_with(make_error_code(errc::shut_down));
    auto* const begun = operation.get();
    auto done = [operation = std::move(operation)](std::error_code error, Response* response) {
      if (response == nullptr) return operation->end_with(error);
      operation->end_with(error, std::move(*response));
    };
    const std::uint64_t id = deadline == Duration::max()
                                 ? handler->call(std::move(request), std::move(done))
                                 : handler->call(std::move(request), deadline, std::move(done));
    if (begun->ended() || !begun->may_end_early()) return;
    begun->when_abandoned([requests, id] {
      if (auto* const there = requests.handler()) static_cast<void>(there->cancel(id));
    });
  };
  return detail::initiate<std::error_code, Response>(requests.loop(), std::move(options), std::move(start),
                                                     std::forward<Token>(token));
}
template <class Request, class Response, class Ids, class Token>
auto async_call(const AsyncRequests<Request, Response, Ids>& requests,
                std::type_identity_t<Request>&& request, Token&& token) {
  return async_call(requests, std::move(request), AsyncOptions(), std::forward<Token>(token));
}

}  // namespace linkspan
