// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/asio/asio_transport.hpp"

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <utility>

#include "linkspan/interop/asio_reactor.hpp"
#include "linkspan/loop/event_loop.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kHandlersPerPoll = 256;

// Descriptors are touched on the loop's thread only; others only stop the context.
constexpr int kOneThreadDoesIo = ASIO_CONCURRENCY_HINT_UNSAFE_IO;

// A base, since the context has to be there before the reactor.
struct OwnContext {
  OwnContext() : context(kOneThreadDoesIo), work(context.get_executor()) {
    // Asio makes its epoll or kqueue for the first descriptor. Now, so that a failure is one of set-up.
    const asio::posix::stream_descriptor first(context);
  }
  asio::io_context context;
  asio::executor_work_guard<asio::io_context::executor_type> work;
};

class OwnAsioReactor final : private OwnContext, public AsioReactor {
 public:
  OwnAsioReactor() : AsioReactor(OwnContext::context) {}

  bool wait(Duration timeout) noexcept override {
    ask();
    if (context.stopped()) {
      context.restart();
      timeout = Duration::zero();
    }
    std::size_t handlers = run_one(timeout);
    // The last poll_one finds nothing, at the cost of a system call: spared where nothing can be there.
    while (handlers != 0 && handlers < kHandlersPerPoll && waits() && context.poll_one() != 0) ++handlers;
    return handlers != 0;
  }

  // Takes no memory, unlike a posted handler.
  void wake() noexcept override { context.stop(); }

 private:
  std::size_t run_one(Duration timeout) {
    if (timeout == Duration::zero()) return context.poll_one();
    if (timeout == Duration::max()) return context.run_one();
    constexpr Duration kLongest = std::chrono::hours(24);  // that can be added to the time of day
    return context.run_one_for(std::min(timeout, kLongest));
  }
};

}  // namespace

Result<std::unique_ptr<Engine>> make_asio_transport(EventLoop& loop) {
  try {
    return make_transport(loop, std::make_unique<OwnAsioReactor>());
  } catch (const asio::system_error& failure) {  // its epoll, kqueue or eventfd
    return Error(failure.code(), "asio::io_context");
  }
}

}  // namespace linkspan
