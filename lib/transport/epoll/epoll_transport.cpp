// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/epoll/epoll_transport.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lib/transport/readiness_stream.hpp"
#include "lib/transport/socket_ops.hpp"
#include "lib/transport/transport_core.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kEventsPerPoll = 256;

// Something registered with epoll. It lives until the poll after its descriptor was closed, so the events of
// a batch never reach memory that is gone or a descriptor that was reused.
class Registration {
 public:
  explicit Registration(int epoll) noexcept : epoll_(epoll) {}
  virtual ~Registration() = default;

  virtual void on_events(std::uint32_t events) = 0;

  /// Makes the interest exactly `events`; errors and hang-ups are always reported. Returns the errno.
  int set_interest(int descriptor, std::uint32_t events) noexcept {
    if (registered_ && events == interest_) return 0;
    epoll_event event{};
    event.events = events;
    event.data.ptr = this;
    if (::epoll_ctl(epoll_, registered_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor, &event) != 0)
      return errno;
    registered_ = true;
    interest_ = events;
    return 0;
  }

  void remove(int descriptor) noexcept {
    if (!std::exchange(registered_, false)) return;
    epoll_event unused{};
    static_cast<void>(::epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, &unused));
  }

 private:
  int epoll_;
  std::uint32_t interest_ = 0;
  bool registered_ = false;
};

class EpollStream final : public ReadinessStream, public Registration {
 public:
  EpollStream(ReadinessTransport& transport, int epoll, StreamSetup setup)
      : ReadinessStream(transport, std::move(setup)), Registration(epoll) {}

  void on_events(std::uint32_t events) override {
    if (ending()) return;
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) hung_up_ = true;
    if ((events & EPOLLERR) != 0) {
      on_error();
    } else {
      if ((events & (EPOLLIN | EPOLLHUP)) != 0) on_readable();
      if ((events & (EPOLLOUT | EPOLLHUP)) != 0) on_writable_again();
    }
    // Level-triggered epoll repeats a hang-up for ever: out, until there is something to wait for again.
    if (hung_up_ && !ending() && interest_ == 0) remove(descriptor());
  }

 protected:
  void wait_for(bool readable, bool writable) override {
    interest_ = (readable ? std::uint32_t{EPOLLIN} : 0u) | (writable ? std::uint32_t{EPOLLOUT} : 0u);
    if (hung_up_ && interest_ == 0) {
      remove(descriptor());
      return;
    }
    counters().system_calls.add(1);
    const int error = set_interest(descriptor(), interest_);
    if (error != 0) report_broken(error);
  }

  void cancel_operations() override {
    if (descriptor() >= 0) remove(descriptor());
  }

 private:
  [[nodiscard]] LoopCounters& counters() const noexcept { return transport().loop().counters(); }

  std::uint32_t interest_ = 0;
  bool hung_up_ = false;
};

class EpollListener final : public ReadinessListener, public Registration {
 public:
  EpollListener(TransportCore& transport, int epoll, Socket socket, ListenerHandler& handler)
      : ReadinessListener(transport, std::move(socket), handler), Registration(epoll) {}

  void on_events(std::uint32_t) override {
    if (!closed()) on_acceptable();
  }

 protected:
  void start_accepting() override {
    const int error = set_interest(descriptor(), EPOLLIN);
    if (error != 0) static_cast<void>(report_accept_error(error));
  }
  void stop_accepting() override { remove(descriptor()); }
};

class EpollTransport final : public ReadinessTransport {
 public:
  EpollTransport(EventLoop& loop, Socket epoll, Socket wake_up) noexcept
      : ReadinessTransport(loop), epoll_(std::move(epoll)), wake_up_(std::move(wake_up)) {}
  ~EpollTransport() override { delete_all(); }

  std::string_view name() const noexcept override { return "epoll"; }
  std::vector<std::string> capabilities() const override { return {"speculative_send", "accept_batches"}; }

  void wake() noexcept override {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_up_.descriptor(), &one, sizeof(one)));
  }

 protected:
  std::unique_ptr<StreamCore> make_stream(StreamSetup setup) override {
    return std::make_unique<EpollStream>(*this, epoll_.descriptor(), std::move(setup));
  }
  std::unique_ptr<ListenerCore> make_listener(Socket socket, ListenerHandler& handler) override {
    return std::make_unique<EpollListener>(*this, epoll_.descriptor(), std::move(socket), handler);
  }

  bool wait(Duration timeout) override {
    std::array<epoll_event, kEventsPerPoll> events;
    loop().counters().system_calls.add(1);
    const int count = ::epoll_wait(epoll_.descriptor(), events.data(), static_cast<int>(events.size()),
                                   to_milliseconds(timeout));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == nullptr) {
        std::uint64_t count_of_wakes = 0;
        static_cast<void>(!::read(wake_up_.descriptor(), &count_of_wakes, sizeof(count_of_wakes)));
      } else {
        static_cast<Registration*>(event.data.ptr)->on_events(event.events);
      }
    }
    return count > 0;
  }

 private:
  // Rounded up, so that the loop does not spin through the last millisecond before a timer.
  static int to_milliseconds(Duration timeout) noexcept {
    if (timeout == Duration::max()) return -1;
    constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);
    return static_cast<int>(
        std::min(std::chrono::ceil<std::chrono::milliseconds>(timeout), kLongest).count());
  }

  Socket epoll_;
  Socket wake_up_;  // an eventfd; its registration has no object
};

}  // namespace

Result<std::unique_ptr<Engine>> make_epoll_transport(EventLoop& loop) {
  Socket epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Error(system_error_code(errno), "epoll_create1");
  Socket wake_up(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_up) return Error(system_error_code(errno), "eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll.descriptor(), EPOLL_CTL_ADD, wake_up.descriptor(), &event) != 0) {
    return Error(system_error_code(errno), "epoll_ctl");
  }
  return std::unique_ptr<Engine>(
      std::make_unique<EpollTransport>(loop, std::move(epoll), std::move(wake_up)));
}

}  // namespace linkspan
