// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BufferedWriter for coroutines, or any other Asio completion token. Writes wait for room in the writer's
// pool, in order, instead of being refused:
//
//   co_await async_write(writer, bytes, asio::use_awaitable);
//   co_await async_flush(writer, 5s, asio::use_awaitable);
//
// Not for: callbacks on the loop, which the writer takes as it is.
// Cost: that of the writer, and one allocation.
// Threads: any for the calls, which are then posted to the writer's loop; the writer has to outlive them.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>

#include "linkspan/channel/buffered_writer.hpp"
#include "linkspan/interop/async_initiate.hpp"

namespace linkspan {

/// BufferedWriter::write_when_room. Completes when the memory is the caller's again: for what is copied when
/// it was taken, from the threshold up when it is acknowledged. Until then nothing can end it early, as the
/// memory is still read: it takes no options and hears no cancellation; a writer that fails, or gives up,
/// ends it. Several may be under way. Handler: void(std::error_code).
template <class Token>
auto async_write(BufferedWriter& writer, std::span<const std::byte> bytes, Token&& token) {
  auto start = [&writer, bytes](detail::PlainOperationRef operation) {
    operation->result_is_certain();
    writer.write_when_room(
        bytes, [operation = std::move(operation)](std::error_code error) { operation->end_with(error); });
  };
  return detail::initiate<std::error_code>(
      writer.loop(), detail::NoOptions(), std::move(start),
      asio::bind_cancellation_slot(asio::cancellation_slot(), std::forward<Token>(token)));
}

template <TemporaryMemory Memory, class Token>
auto async_write(BufferedWriter& writer, Memory&& memory, Token&& token) = delete;

/// The same for bytes that have an owner: completes when they were taken. One that ends early before any of
/// them was taken is withdrawn; later the bytes are sent all the same. Handler: void(std::error_code).
template <class Token>
auto async_write(BufferedWriter& writer, Chain&& bytes, AsyncOptions options, Token&& token) {
  auto start = [&writer, bytes = std::move(bytes)](detail::PlainOperationRef operation) mutable {
    operation->result_is_certain();
    detail::OperationOf<std::error_code>* const begun = operation.get();
    const std::uint64_t waiting = writer.write_when_room(
        std::move(bytes),
        [operation = std::move(operation)](std::error_code error) { operation->end_with(error); });
    if (waiting != 0 && begun->may_end_early()) {
      begun->when_abandoned([&writer, waiting] { static_cast<void>(writer.withdraw(waiting)); });
    }
  };
  return detail::initiate<std::error_code>(writer.loop(), std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class Token>
auto async_write(BufferedWriter& writer, Chain&& bytes, Token&& token) {
  return async_write(writer, std::move(bytes), AsyncOptions(), std::forward<Token>(token));
}

/// BufferedWriter::flush. One that ends early has flushed all the same. Handler: void(std::error_code).
template <class Token>
auto async_flush(BufferedWriter& writer, AsyncOptions options, Token&& token) {
  auto start = [&writer](detail::PlainOperationRef operation) {
    operation->result_is_certain();
    writer.flush([operation = std::move(operation)](std::error_code error) { operation->end_with(error); });
  };
  return detail::initiate<std::error_code>(writer.loop(), std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class Token>
auto async_flush(BufferedWriter& writer, Token&& token) {
  return async_flush(writer, AsyncOptions(), std::forward<Token>(token));
}

/// BufferedWriter::close. Otherwise as above.
template <class Token>
auto async_close(BufferedWriter& writer, AsyncOptions options, Token&& token) {
  auto start = [&writer](detail::PlainOperationRef operation) {
    operation->result_is_certain();
    writer.close([operation = std::move(operation)](std::error_code error) { operation->end_with(error); });
  };
  return detail::initiate<std::error_code>(writer.loop(), std::move(options), std::move(start),
                                           std::forward<Token>(token));
}
template <class Token>
auto async_close(BufferedWriter& writer, Token&& token) {
  return async_close(writer, AsyncOptions(), std::forward<Token>(token));
}

}  // namespace linkspan
