// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Where a coroutine's channels come from: serve_with makes the initializer of a Server that runs a coroutine
// for each connection, AsyncAcceptor gives connections to whoever asks for one, AsyncClient connects,
// open_async_datagrams binds.
// Not for: servers and clients with callbacks; they are in channel/.
// Cost: that of Server and Client, and of AsyncChannel.
// Threads: as each says.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/datagram_channel.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/interop/async_channel.hpp"

namespace linkspan {

namespace detail {

/// An AsyncChannel behind what `codecs`, if there is one, puts into the pipeline.
template <class In, class Out>
Result<AsyncChannel<In, Out>> attach_behind(const ChannelInitializer& codecs, Channel& channel,
                                            InboxLimits limits) {
  if (codecs != nullptr) {
    const Status filled = codecs(channel);
    if (!filled) return filled.error();
  }
  return attach_async<In, Out>(channel, limits);
}

}  // namespace detail

#ifdef ASIO_HAS_CO_AWAIT  // not with clang 14 on libstdc++
/// A ChannelInitializer: `codecs`, if there is one, fills the pipeline, and then `serve(AsyncChannel<In,
/// Out>)`, which returns an asio::awaitable<void>, is spawned on the channel's loop. The channel closes when
/// it returns. An exception closes it too: a std::system_error is how operations fail and is nobody's fault,
/// any other one is reported as errc::handler_failed. `serve` is copied to where it has to live; a lambda
/// that is a coroutine captures nothing, since its captures are not part of the coroutine.
template <class In, class Out = In, class Serve>
[[nodiscard]] ChannelInitializer serve_with(Serve serve, ChannelInitializer codecs = nullptr,
                                            InboxLimits limits = {}) {
  return [serve = std::move(serve), codecs = std::move(codecs), limits](Channel& channel) -> Status {
    Result<AsyncChannel<In, Out>> made = detail::attach_behind<In, Out>(codecs, channel, limits);
    if (!made) return made.error();
    auto finished = [ref = channel.ref()](std::exception_ptr failure) {
      if (failure == nullptr) return;
      try {
        std::rethrow_exception(failure);
      } catch (const std::system_error&) {  // of an operation: the channel closes anyway
      } catch (...) {
        static_cast<void>(ref.post([failure](Channel&) { std::rethrow_exception(failure); }));
      }
    };
    const detail::AsioCompanion::SpawnMemory memory(detail::AsioCompanion::of(channel.loop()));
    asio::co_spawn(LoopExecutor(channel.loop()), serve(std::move(made).value()), std::move(finished));
    return std::monostate();
  };
}
#endif

namespace detail {

template <class In, class Out>
struct AcceptQueue {
  using AcceptOperation = OperationOf<std::error_code, AsyncChannel<In, Out>>;

  std::size_t max_waiting;
  RingQueue<AsyncChannel<In, Out>> waiting;
  OperationRef<AcceptOperation> acceptor;
  bool closed = false;

  explicit AcceptQueue(std::size_t max_waiting_in) noexcept : max_waiting(max_waiting_in) {}

  Status add(AsyncChannel<In, Out>&& channel) {
    if (closed) return Error(errc::cancelled, "the acceptor is closed");
    if (acceptor != nullptr) {
      std::exchange(acceptor, nullptr)->end_with({}, std::move(channel));
    } else if (waiting.size() < max_waiting) {
      waiting.push_back(std::move(channel));
    } else {
      return Error(errc::limit_exceeded, "too many connections wait for async_accept");
    }
    return std::monostate();
  }

  static void accept(const std::shared_ptr<AcceptQueue>& queue, OperationRef<AcceptOperation> operation) {
    if (queue->closed) return operation->end_with(make_error_code(errc::cancelled));
    if (queue->acceptor != nullptr) return operation->end_with(make_error_code(errc::limit_exceeded));
    if (!queue->waiting.empty()) return operation->end_with({}, queue->waiting.pop_front());
    operation->when_abandoned([queue] { queue->acceptor = nullptr; });
    queue->acceptor = std::move(operation);
  }

  void close() {
    closed = true;
    while (!waiting.empty()) static_cast<void>(waiting.pop_front());
    if (acceptor != nullptr) {
      std::exchange(acceptor, nullptr)->end_with(make_error_code(errc::cancelled));
    }
  }
};

}  // namespace detail

/// A Server on one loop whose connections wait for async_accept. Loop's thread.
template <class In, class Out = In>
class AsyncAcceptor {
 public:
  /// `options.initializer`, if there is one, adds the codecs. Of connections that wait for async_accept there
  /// are `max_waiting` at most; further ones are closed. Fails as Server::start does.
  [[nodiscard]] static Result<AsyncAcceptor> start(EventLoop& loop, ServerOptions options,
                                                   InboxLimits limits = {}, std::size_t max_waiting = 128) {
    auto queue = std::make_shared<detail::AcceptQueue<In, Out>>(max_waiting);
    options.initializer = [queue, codecs = std::move(options.initializer),
                           limits](Channel& channel) -> Status {
      Result<AsyncChannel<In, Out>> made = detail::attach_behind<In, Out>(codecs, channel, limits);
      if (!made) return made.error();
      return queue->add(std::move(made).value());
    };
    Result<Server> server = Server::start(loop, std::move(options));
    if (!server) return server.error();
    return AsyncAcceptor(loop, std::move(server).value(), std::move(queue));
  }

  AsyncAcceptor(AsyncAcceptor&&) noexcept = default;
  AsyncAcceptor& operator=(AsyncAcceptor&&) = delete;
  /// As Server's; an async_accept that waits completes with errc::cancelled.
  ~AsyncAcceptor() {
    if (queue_ != nullptr) queue_->close();
  }

  [[nodiscard]] EventLoop& loop() const noexcept { return *loop_; }
  [[nodiscard]] const Endpoint& local_endpoint() const noexcept { return server_.local_endpoint(); }
  [[nodiscard]] std::size_t connections() const noexcept { return server_.connections(); }
  /// Accepts no more, closes what waits, and drains what was taken, as Server::stop.
  void stop(Duration deadline, unique_function<void()> done = nullptr) {
    queue_->close();
    server_.stop(deadline, std::move(done));
  }
  [[nodiscard]] const std::shared_ptr<detail::AcceptQueue<In, Out>>& queue() const noexcept { return queue_; }

 private:
  AsyncAcceptor(EventLoop& loop, Server server, std::shared_ptr<detail::AcceptQueue<In, Out>> queue)
      : loop_(&loop), server_(std::move(server)), queue_(std::move(queue)) {}

  EventLoop* loop_;
  Server server_;
  std::shared_ptr<detail::AcceptQueue<In, Out>> queue_;
};

/// The next connection. One at a time: another one meanwhile fails with errc::limit_exceeded. errc::cancelled
/// when the acceptor stops. Handler: void(std::error_code, AsyncChannel<In, Out>).
template <class In, class Out, class Token>
auto async_accept(const AsyncAcceptor<In, Out>& acceptor, AsyncOptions options, Token&& token) {
  auto start = [queue = acceptor.queue()](auto operation) {
    detail::AcceptQueue<In, Out>::accept(queue, std::move(operation));
  };
  return detail::initiate<std::error_code, AsyncChannel<In, Out>>(
      acceptor.loop(), std::move(options), std::move(start), std::forward<Token>(token));
}
template <class In, class Out, class Token>
auto async_accept(const AsyncAcceptor<In, Out>& acceptor, Token&& token) {
  return async_accept(acceptor, AsyncOptions(), std::forward<Token>(token));
}

/// Connects AsyncChannels on one loop. A value.
template <class In, class Out = In>
class AsyncClient {
 public:
  /// `codecs`, if there is one, fills the pipelines.
  explicit AsyncClient(EventLoop& loop, ChannelInitializer codecs = nullptr, ChannelOptions options = {},
                       InboxLimits limits = {})
      : loop_(&loop), codecs_(std::move(codecs)), options_(std::move(options)), limits_(limits) {}

  [[nodiscard]] EventLoop& loop() const noexcept { return *loop_; }

  /// What async_connect starts. Loop's thread.
  template <class Target, class Operation>
  void connect(const Target& target, const Operation& operation) const {
    auto made = std::make_shared<AsyncChannel<In, Out>>();
    auto initializer = [made, codecs = codecs_, limits = limits_](Channel& channel) -> Status {
      Result<AsyncChannel<In, Out>> attached = detail::attach_behind<In, Out>(codecs, channel, limits);
      if (!attached) return attached.error();
      *made = std::move(attached).value();
      return std::monostate();
    };
    const Client client(*loop_, std::move(initializer), options_);
    const ChannelRef ref = client.connect(target, [made, operation](std::error_code error) {
      operation->end_with(error, error ? AsyncChannel<In, Out>() : std::move(*made));
    });
    operation->when_abandoned([ref] { ref.abort(); });
  }

 private:
  EventLoop* loop_;
  ChannelInitializer codecs_;
  ChannelOptions options_;
  InboxLimits limits_;
};

/// Connects as Client does, to an Endpoint, several of one peer (std::vector<Endpoint>), or "host:port"
/// (std::string). One that ends early aborts the attempt. Handler:
/// void(std::error_code, AsyncChannel<In, Out>).
template <class In, class Out, class Target, class Token>
auto async_connect(const AsyncClient<In, Out>& client, Target target, AsyncOptions options, Token&& token) {
  auto start = [client, target = std::move(target)](const auto& operation) {
    client.connect(target, operation);
  };
  return detail::initiate<std::error_code, AsyncChannel<In, Out>>(
      client.loop(), std::move(options), std::move(start), std::forward<Token>(token));
}
template <class In, class Out, class Target, class Token>
auto async_connect(const AsyncClient<In, Out>& client, Target target, Token&& token) {
  return async_connect(client, std::move(target), AsyncOptions(), std::forward<Token>(token));
}

/// A datagram channel as an AsyncChannel; `options.initializer`, if there is one, adds the codecs. Connected,
/// a read that finds no message may fail with what the network has refused; the channel goes on. Fails as
/// open_datagram_channel does. Loop's thread.
template <class In = Packet, class Out = In>
[[nodiscard]] Result<AsyncChannel<In, Out>> open_async_datagrams(EventLoop& loop,
                                                                 DatagramChannelOptions options,
                                                                 InboxLimits limits = {}) {
  AsyncChannel<In, Out> made;
  options.initializer = [&made, codecs = std::move(options.initializer), limits](Channel& channel) -> Status {
    Result<AsyncChannel<In, Out>> attached = detail::attach_behind<In, Out>(codecs, channel, limits);
    if (!attached) return attached.error();
    made = std::move(attached).value();
    return std::monostate();
  };
  Result<BoundChannel> bound = open_datagram_channel(loop, std::move(options));
  if (!bound) return bound.error();
  return made;
}

/// Client::connect, to the same targets, for channels whose handlers are a callback's. Completes on `loop`,
/// which may be another one than the channel's. One that ends early aborts the attempt. Handler:
/// void(std::error_code, ChannelRef).
template <class Target, class Token>
auto async_connect(EventLoop& loop, const Client& client, Target target, AsyncOptions options,
                   Token&& token) {
  auto start = [client, target = std::move(target)](const auto& operation) {
    struct Outcome {
      ChannelRef channel;
      std::error_code error;
    };
    auto outcome = std::make_shared<Outcome>();
    auto finish = [outcome, operation] {
      operation->end_with(outcome->error, outcome->error ? ChannelRef() : outcome->channel);
    };
    EventLoop::PreparedTask finish_there(finish);
    auto done = [outcome, finish, &loop = operation->loop(),
                 finish_there = std::move(finish_there)](std::error_code error) mutable {
      outcome->error = error;
      if (loop.in_loop_thread()) {
        finish();
      } else {
        std::move(finish_there).post(loop);
      }
    };
    outcome->channel = client.connect(target, std::move(done));
    operation->when_abandoned([outcome] { outcome->channel.abort(); });
  };
  return detail::initiate<std::error_code, ChannelRef>(loop, std::move(options), std::move(start),
                                                       std::forward<Token>(token));
}
template <class Target, class Token>
auto async_connect(EventLoop& loop, const Client& client, Target target, Token&& token) {
  return async_connect(loop, client, std::move(target), AsyncOptions(), std::forward<Token>(token));
}

}  // namespace linkspan
