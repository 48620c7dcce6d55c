// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Reactor: says when descriptors are ready. A transport over a reactor makes the calls on its sockets itself;
// so whoever can wait for descriptors, epoll, Asio or the event loop of a program that exists already, can
// carry streams and listeners.
// Not for: users of streams and channels; transport_engine() has reactors of its own.
// Cost: one virtual call for each event, and one more where what is waited for changes.
// Threads: the loop's thread only, but for Reactor::wake.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "linkspan/base/assert.hpp"
#include "linkspan/base/clock.hpp"
#include "linkspan/base/export.hpp"
#include "linkspan/loop/engine.hpp"

namespace linkspan {

class Watch;

/// What a descriptor is ready for. May be wrong: calls on it have to cope with finding nothing.
struct Readiness {
  bool readable = false;
  bool writable = false;
  bool error = false;  ///< then the others say nothing
};

/// Whom a Watch tells.
class ReadyTarget {
 public:
  virtual void on_ready(Readiness ready) = 0;

 protected:
  ~ReadyTarget() = default;
};

/// A resource of one loop: created, used and destroyed on its thread.
class LINKSPAN_API Reactor {
 public:
  Reactor() = default;
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;
  virtual ~Reactor();

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Waits for at most `timeout` (see Engine::poll) and tells the watches of a bounded number of events.
  /// False when there was none. One that lives inside another event loop does not wait, and tells them from
  /// there.
  virtual bool wait(Duration timeout) noexcept = 0;
  /// Makes the wait that runs now, or else the next one, return without waiting. Any thread.
  virtual void wake() noexcept = 0;

 protected:
  friend class Watch;

  /// From now on waits for what the watch wants; called when that has changed, and after each event. Returns
  /// an errno.
  [[nodiscard]] virtual int update(Watch& watch) = 0;
  /// The descriptor is about to be closed: nothing that was known of it may be told from now on.
  virtual void forget(Watch& watch) noexcept = 0;
};

/// One descriptor in a reactor, held by value by whoever owns the descriptor. It has to stay where it is
/// until the Reactor::wait after stop(): events that were fetched together may still name it.
class LINKSPAN_API Watch {
 public:
  Watch(Reactor& reactor, ReadyTarget& target) noexcept : reactor_(reactor), target_(target) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { stop(); }

  /// The target is told when the descriptor is readable or writable, for as long as that is wanted, and of
  /// errors always. Costs nothing without a change. Returns an errno, and has stopped then. Another
  /// descriptor comes after stop() only.
  [[nodiscard]] int want(int descriptor, bool readable, bool writable) {
    if (descriptor_ == descriptor && readable_ == readable && writable_ == writable) return 0;
    LINKSPAN_ASSERT(descriptor_ == descriptor || descriptor_ < 0, "a watch has one descriptor at a time");
    descriptor_ = descriptor;
    readable_ = readable;
    writable_ = writable;
    const int error = reactor_.update(*this);
    if (error != 0) stop();
    return error;
  }
  /// The target is told nothing more, and the descriptor may be closed. Before the first want(), and again:
  /// no effect.
  void stop() noexcept {
    if (descriptor_ < 0) return;
    reactor_.forget(*this);
    descriptor_ = -1;
    hung_up_ = false;
  }

  // For reactors.

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }  ///< -1: stopped
  [[nodiscard]] bool wants_readable() const noexcept { return readable_; }
  [[nodiscard]] bool wants_writable() const noexcept { return writable_; }
  /// Errors and hang-ups stay, and would be told again and again. So once one was told, they are only waited
  /// for together with something else.
  [[nodiscard]] bool wants_errors() const noexcept { return !hung_up_; }
  [[nodiscard]] bool wants_anything() const noexcept { return readable_ || writable_ || !hung_up_; }

  /// Tells the target, which may stop the watch; otherwise update() follows. `hung_up`: the event was an
  /// error or a hang-up. Without effect on a watch that has stopped.
  void tell(Readiness ready, bool hung_up) {
    if (descriptor_ < 0) return;
    hung_up_ = hung_up;
    target_.on_ready(ready);
    // Waiting for no more than before cannot fail.
    if (descriptor_ >= 0) static_cast<void>(reactor_.update(*this));
  }

  /// The reactor's own: a number, or a pointer.
  std::uintptr_t registration = 0;

 private:
  Reactor& reactor_;
  ReadyTarget& target_;
  int descriptor_ = -1;
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;
};

/// A transport over a reactor.
[[nodiscard]] LINKSPAN_API std::unique_ptr<Engine> make_transport(EventLoop& loop,
                                                                  std::unique_ptr<Reactor> reactor);

}  // namespace linkspan
