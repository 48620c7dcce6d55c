// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a loop does for a coroutine, or any other Asio completion token, besides channels: sleep, look names
// up, files. co_await async_sleep(loop, 10ms, asio::use_awaitable).
// Not for: callbacks on the loop; Timer, Resolution and AsyncFile take those as they are.
// Cost: that of the operation below, and one allocation.
// Threads: any. They complete exactly once, never inside the call (but with errc::stopped when the loop has
// ended), on the handler's executor or else on the loop. A loop that stops completes them with
// errc::cancelled; errc::stopped means that it was stopping already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "linkspan/interop/async_initiate.hpp"
#include "linkspan/loop/async_files.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/resolution.hpp"

namespace linkspan {

/// Completes after `delay`, or early as `options` say. Handler: void(std::error_code).
template <class Token>
auto async_sleep(EventLoop& loop, Duration delay, AsyncOptions options, Token&& token) {
  auto start = [delay](const detail::PlainOperationRef& operation) {
    auto timer = std::make_unique<Timer>(operation->loop(), [raw = operation.get()] { raw->end_with({}); });
    timer->start(delay);
    // Lives as long as the operation waits.
    operation->when_abandoned([timer = std::move(timer)] {});
  };
  return detail::initiate<std::error_code>(loop, std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class Token>
auto async_sleep(EventLoop& loop, Duration delay, Token&& token) {
  return async_sleep(loop, delay, AsyncOptions(), std::forward<Token>(token));
}

/// A Resolution of `text`, "host:port" or an address; without a timeout it has that of Resolution. Handler:
/// void(std::error_code, std::vector<Endpoint>).
template <class Token>
auto async_resolve(EventLoop& loop, std::string text, AsyncOptions options, Token&& token) {
  auto start = [text = std::move(text), timeout = options.timeout](const auto& operation) {
    auto lookup = std::make_unique<std::unique_ptr<Resolution>>();
    auto done = [operation](Result<std::vector<Endpoint>> result) {
      if (result) {
        operation->end_with({}, std::move(result).value());
      } else {
        operation->end_with(result.error().code);
      }
    };
    const Duration longest = timeout == Duration::max() ? Resolution::kTimeout : timeout;
    *lookup = std::make_unique<Resolution>(operation->loop(), text, std::move(done), longest);
    operation->when_abandoned([lookup = std::move(lookup)] {});
  };
  return detail::initiate<std::error_code, std::vector<Endpoint>>(loop, std::move(options), std::move(start),
                                                                  std::forward<Token>(token));
}
template <class Token>
auto async_resolve(EventLoop& loop, std::string text, Token&& token) {
  return async_resolve(loop, std::move(text), AsyncOptions(), std::forward<Token>(token));
}

}  // namespace linkspan
