// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/asio/asio_transport.hpp"

#include <algorithm>
#include <array>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <utility>

#include "lib/transport/readiness_stream.hpp"
#include "lib/transport/transport_core.hpp"
#include "linkspan/base/intrusive_list.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kHandlersPerPoll = 256;

// Descriptors are touched on the loop's thread only; others only stop the context.
constexpr int kOneThreadDoesIo = ASIO_CONCURRENCY_HINT_UNSAFE_IO;

class Waiter;

// What the waiters of one context have in common.
struct Waits {
  IntrusiveList<Waiter, Waiter> changed;  // have to be asked for
  std::size_t asked = 0;                  // of Asio, and not finished
};

// A descriptor that Asio waits for. What its owner wants is noted and asked of Asio once a poll, before it
// waits: so nothing is asked for twice, and within one poll no descriptor gets ahead of the others.
class Waiter : public ListNode<Waiter> {
 public:
  enum Kind : std::size_t { kRead, kWrite, kError };

  Waiter(asio::io_context& context, Waits& waits) : descriptor_(context), waits_(waits) {}
  virtual ~Waiter() { stop_waiting(); }

  /// Asks Asio for what is wanted and not asked for yet.
  void ask() {
    if (!descriptor_.is_open()) return;
    if (wanted_[kRead]) ask_for(kRead, asio::posix::descriptor_base::wait_read);
    if (wanted_[kWrite]) ask_for(kWrite, asio::posix::descriptor_base::wait_write);
    // The other two see errors as well.
    if (wanted_[kError] && !asked_[kRead] && !asked_[kWrite]) {
      ask_for(kError, asio::posix::descriptor_base::wait_error);
    }
  }

 protected:
  /// One of the wants has come true, perhaps, and is not asked for any more. So what is still wanted has to
  /// be said again. Comes after wait_finished.
  virtual void on_ready(Kind kind) = 0;
  virtual void wait_started() = 0;
  virtual void wait_finished() = 0;

  /// Returns the errno.
  int want(int descriptor, bool readable, bool writable, bool errors) {
    if (!descriptor_.is_open()) {
      // Not sooner: a socket that does not connect yet counts as hung up.
      asio::error_code failure;
      descriptor_.assign(descriptor, failure);
      if (failure) return failure.value();
    }
    wanted_ = {readable, writable, errors};
    if (!linked()) waits_.changed.push_back(*this);
    return 0;
  }

  /// What is asked for comes back by the next polls. The descriptor is the caller's alone again.
  void stop_waiting() noexcept {
    if (descriptor_.is_open()) static_cast<void>(descriptor_.release());
  }

 private:
  void ask_for(Kind kind, asio::posix::descriptor_base::wait_type type) {
    if (std::exchange(asked_[kind], true)) return;
    ++waits_.asked;
    wait_started();
    // An error is that of the wait; the calls that follow will meet the descriptor's own.
    descriptor_.async_wait(type, [this, kind](const asio::error_code&) {
      asked_[kind] = false;
      --waits_.asked;
      wait_finished();
      on_ready(kind);
    });
  }

  asio::posix::basic_stream_descriptor<asio::io_context::executor_type> descriptor_;
  Waits& waits_;
  std::array<bool, 3> wanted_{};
  std::array<bool, 3> asked_{};
};

class AsioStream final : public ReadinessStream, public Waiter {
 public:
  AsioStream(ReadinessTransport& transport, StreamSetup setup, asio::io_context& context, Waits& waits)
      : ReadinessStream(transport, std::move(setup)), Waiter(context, waits) {}

 protected:
  void wait_for(bool readable, bool writable) override {
    readable_ = readable;
    writable_ = writable;
    const int failure = want(descriptor(), readable, writable, !hung_up_);
    if (failure != 0) report_broken(failure);
  }

  void cancel_operations() override { stop_waiting(); }

  void on_ready(Kind kind) override {
    if (ending()) return;
    // Asio takes a hang-up and urgent data for errors, and would repeat both for as long as they are there.
    hung_up_ = kind == kError;
    switch (kind) {
      case kRead: on_readable(); break;
      case kWrite: on_writable_again(); break;
      case kError: on_error(); break;
    }
    if (!ending()) wait_for(readable_, writable_);
  }

  void wait_started() override { operation_started(); }
  void wait_finished() override { operation_finished(); }

 private:
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;
};

class AsioListener final : public ReadinessListener, public Waiter {
 public:
  AsioListener(TransportCore& transport, Socket socket, ListenerHandler& handler, asio::io_context& context,
               Waits& waits)
      : ReadinessListener(transport, std::move(socket), handler), Waiter(context, waits) {}

 protected:
  void start_accepting() override {
    accepting_ = true;
    const int failure = want(descriptor(), true, false, false);
    if (failure != 0) static_cast<void>(report_accept_error(failure));
  }

  void stop_accepting() override {
    accepting_ = false;
    if (closed()) stop_waiting();
  }

  void on_ready(Kind) override {
    if (accepting_) on_acceptable();
    if (accepting_) start_accepting();
  }

  void wait_started() override { ++operations_; }
  void wait_finished() override { operation_finished(); }

 private:
  bool accepting_ = false;
};

class AsioTransport final : public ReadinessTransport {
 public:
  explicit AsioTransport(EventLoop& loop)
      : ReadinessTransport(loop), context_(kOneThreadDoesIo), work_(context_.get_executor()) {
    // Asio makes its epoll or kqueue for the first descriptor. Now, so that a failure is one of set-up.
    const asio::posix::stream_descriptor first(context_);
  }
  ~AsioTransport() override { delete_all(); }

  std::string_view name() const noexcept override { return "asio"; }
  std::vector<std::string> capabilities() const override { return {"speculative_send", "accept_batches"}; }

  // Takes no memory, unlike a posted handler.
  void wake() noexcept override { context_.stop(); }

 protected:
  std::unique_ptr<StreamCore> make_stream(StreamSetup setup) override {
    return std::make_unique<AsioStream>(*this, std::move(setup), context_, waits_);
  }
  std::unique_ptr<ListenerCore> make_listener(Socket socket, ListenerHandler& handler) override {
    return std::make_unique<AsioListener>(*this, std::move(socket), handler, context_, waits_);
  }

  bool wait(Duration timeout) override {
    while (!waits_.changed.empty()) waits_.changed.pop_front().ask();
    if (context_.stopped()) {
      context_.restart();
      timeout = Duration::zero();
    }
    std::size_t handlers = run_one(timeout);
    // The last poll_one finds nothing, at the cost of a system call: spared where nothing can be there.
    while (handlers != 0 && handlers < kHandlersPerPoll && waits_.asked != 0 && context_.poll_one() != 0) {
      ++handlers;
    }
    return handlers != 0;
  }

 private:
  std::size_t run_one(Duration timeout) {
    if (timeout == Duration::zero()) return context_.poll_one();
    if (timeout == Duration::max()) return context_.run_one();
    constexpr Duration kLongest = std::chrono::hours(24);  // that can be added to the time of day
    return context_.run_one_for(std::min(timeout, kLongest));
  }

  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  Waits waits_;
};

}  // namespace

Result<std::unique_ptr<Engine>> make_asio_transport(EventLoop& loop) {
  try {
    return std::unique_ptr<Engine>(std::make_unique<AsioTransport>(loop));
  } catch (const asio::system_error& failure) {  // its epoll, kqueue or eventfd
    return Error(failure.code(), "asio::io_context");
  }
}

}  // namespace linkspan
