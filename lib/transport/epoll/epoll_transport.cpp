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

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/reactor.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kEventsPerPoll = 256;

// Watch::registration: the events that epoll waits for, and whether it knows the descriptor.
constexpr std::uintptr_t kRegistered = std::uintptr_t{1} << 32;

class EpollReactor final : public Reactor {
 public:
  EpollReactor(Socket epoll, Socket wake_up, Counter& system_calls) noexcept
      : epoll_(std::move(epoll)), wake_up_(std::move(wake_up)), system_calls_(system_calls) {}

  std::string_view name() const noexcept override { return "epoll"; }

  bool wait(Duration timeout) noexcept override {
    std::array<epoll_event, kEventsPerPoll> events;
    system_calls_.add(1);
    const int count = ::epoll_wait(epoll_.descriptor(), events.data(), static_cast<int>(events.size()),
                                   to_milliseconds(timeout));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == nullptr) {
        std::uint64_t count_of_wakes = 0;
        static_cast<void>(!::read(wake_up_.descriptor(), &count_of_wakes, sizeof(count_of_wakes)));
      } else {
        tell(*static_cast<Watch*>(event.data.ptr), event.events);
      }
    }
    return count > 0;
  }

  void wake() noexcept override {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(wake_up_.descriptor(), &one, sizeof(one)));
  }

 protected:
  int update(Watch& watch) override {
    if (!watch.wants_anything()) {  // level-triggered epoll would repeat the hang-up for ever
      forget(watch);
      return 0;
    }
    const std::uintptr_t wanted = kRegistered | events_of(watch);
    // Reading that pauses mostly goes on before anything comes, and costs no call then; else see tell().
    if (watch.registration == wanted || watch.registration == (wanted | EPOLLIN)) return 0;
    return modify(watch);
  }

  void forget(Watch& watch) noexcept override {
    if (std::exchange(watch.registration, 0) == 0) return;
    epoll_event unused{};
    system_calls_.add(1);
    static_cast<void>(::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_DEL, watch.descriptor(), &unused));
  }

 private:
  static std::uint32_t events_of(const Watch& watch) noexcept {
    return (watch.wants_readable() ? std::uint32_t{EPOLLIN} : 0u) |
           (watch.wants_writable() ? std::uint32_t{EPOLLOUT} : 0u);
  }

  int modify(Watch& watch) {
    epoll_event event{};
    event.events = events_of(watch);
    event.data.ptr = &watch;
    system_calls_.add(1);
    const int operation = watch.registration == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (::epoll_ctl(epoll_.descriptor(), operation, watch.descriptor(), &event) != 0) return errno;
    watch.registration = kRegistered | event.events;
    return 0;
  }

  void tell(Watch& watch, std::uint32_t events) {
    if ((watch.registration & events & EPOLLIN) != 0 && !watch.wants_readable()) {
      static_cast<void>(modify(watch));  // waiting for less than before cannot fail
      events &= ~std::uint32_t{EPOLLIN};
      if (events == 0) return;
    }
    const bool hung_up = (events & EPOLLHUP) != 0;
    const bool error = (events & EPOLLERR) != 0;
    watch.tell({(events & EPOLLIN) != 0 || hung_up, (events & EPOLLOUT) != 0 || hung_up, error},
               error || hung_up);
  }

  // Rounded up, so that the loop does not spin through the last millisecond before a timer.
  static int to_milliseconds(Duration timeout) noexcept {
    if (timeout == Duration::max()) return -1;
    constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);
    return static_cast<int>(
        std::min(std::chrono::ceil<std::chrono::milliseconds>(timeout), kLongest).count());
  }

  Socket epoll_;
  Socket wake_up_;  // an eventfd; its registration has no watch
  Counter& system_calls_;
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
  return make_transport(loop, std::make_unique<EpollReactor>(std::move(epoll), std::move(wake_up),
                                                             loop.counters().system_calls));
}

}  // namespace linkspan
