// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// AsioReactor: the Reactor that lets an asio::io_context wait: that of the asio transport, which runs a
// context of its own, and that of AsioLoop, which lives on the program's.
// Not for: users; see AsioLoop, and transport_engine("asio").
// Cost: one Asio wait for each event, and one object for each descriptor, with the memory of its waits. What
// Asio calls in order to wait is its own business and not counted in LoopCounters::system_calls.
// Threads: as Reactor; the context is run by the loop's thread only.
#pragma once

#include <version>  // the first: what Asio finds in the standard library depends on it

#include <array>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "linkspan/base/intrusive_list.hpp"
#include "linkspan/interop/handler_memory.hpp"
#include "linkspan/transport/reactor.hpp"

namespace linkspan {

class AsioReactor : public Reactor {
 public:
  explicit AsioReactor(asio::io_context& context) : context_(context) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "asio"; }

 protected:
  /// Asks Asio for what is wanted and not asked for yet: once a wait, so that nothing is asked for twice, and
  /// no descriptor gets ahead of the others.
  void ask() {
    while (!changed_.empty()) changed_.pop_front().ask();
  }
  /// Asio will call back for somebody who still listens.
  [[nodiscard]] bool waits() const noexcept { return asked_ != 0; }

  /// There is something to ask for, from the next wait on.
  virtual void changed() noexcept {}

  [[nodiscard]] int update(Watch& watch) final try {
    auto* descriptor = reinterpret_cast<Descriptor*>(watch.registration);
    if (descriptor == nullptr) {
      // Not before somebody wants something: a socket that does not connect yet counts as hung up.
      descriptor = new Descriptor(*this, watch);
      watch.registration = reinterpret_cast<std::uintptr_t>(descriptor);
      asio::error_code failure;
      descriptor->assign(failure);
      if (failure) return failure.value();
    }
    if (!watch.wants_anything() || descriptor->linked()) return 0;
    changed_.push_back(*descriptor);
    changed();
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }

  void forget(Watch& watch) noexcept final {
    auto* descriptor = reinterpret_cast<Descriptor*>(std::exchange(watch.registration, 0));
    if (descriptor != nullptr) descriptor->leave();
  }

 private:
  enum Kind : std::size_t { kRead, kWrite, kError };
  static constexpr std::size_t kWaitBytes = 192;

  // What Asio knows of a watch. Outlives it, and even the reactor, until Asio has given its waits back.
  class Descriptor : public ListNode<Descriptor> {
   public:
    Descriptor(AsioReactor& reactor, Watch& watch)
        : reactor_(reactor), watch_(&watch), descriptor_(reactor.context_) {}

    void assign(asio::error_code& failure) { descriptor_.assign(watch_->descriptor(), failure); }

    void ask() {
      using asio::posix::descriptor_base;
      if (watch_->wants_readable()) ask_for(kRead, descriptor_base::wait_read);
      if (watch_->wants_writable()) ask_for(kWrite, descriptor_base::wait_write);
      // The other two see errors as well.
      if (watch_->wants_errors() && !asked_[kRead] && !asked_[kWrite]) {
        ask_for(kError, descriptor_base::wait_error);
      }
    }

    /// Asio lets go of the descriptor at once; the waits come back by and by.
    void leave() noexcept {
      unlink();
      watch_ = nullptr;
      reactor_.asked_ -= uses_ - 1;
      if (descriptor_.is_open()) static_cast<void>(descriptor_.release());
      release();
    }

   private:
    // One wait. Counts as a use until Asio has called it, or has been destroyed.
    class Handler {
     public:
      using allocator_type = detail::HandlerAllocator<char, kWaitBytes>;
      [[nodiscard]] allocator_type get_allocator() const noexcept {
        return allocator_type(descriptor_->memory_[kind_]);
      }

      Handler(Descriptor& descriptor, Kind kind) noexcept : descriptor_(&descriptor), kind_(kind) {
        ++descriptor.uses_;
      }
      Handler(Handler&& other) noexcept
          : descriptor_(std::exchange(other.descriptor_, nullptr)), kind_(other.kind_) {}
      Handler& operator=(Handler&&) = delete;
      ~Handler() {
        if (descriptor_ != nullptr) descriptor_->release();
      }

      // An error is that of the wait; the calls that follow will meet the descriptor's own.
      void operator()(const asio::error_code&) { descriptor_->finished(kind_); }

     private:
      Descriptor* descriptor_;
      Kind kind_;
    };

    void ask_for(Kind kind, asio::posix::descriptor_base::wait_type type) {
      if (std::exchange(asked_[kind], true)) return;
      ++reactor_.asked_;
      descriptor_.async_wait(type, Handler(*this, kind));
    }

    void finished(Kind kind) {
      if (watch_ == nullptr) return;
      asked_[kind] = false;
      --reactor_.asked_;
      watch_->tell({kind == kRead, kind == kWrite, kind == kError}, kind == kError);
    }

    void release() noexcept {
      if (--uses_ == 0) delete this;
    }

    AsioReactor& reactor_;
    Watch* watch_;
    asio::posix::basic_stream_descriptor<asio::io_context::executor_type> descriptor_;
    std::array<bool, 3> asked_{};
    std::array<detail::HandlerMemory<kWaitBytes>, 3> memory_;  // one wait of a kind at a time
    std::size_t uses_ = 1;                                     // the watch's, and one for each wait
  };

  asio::io_context& context_;
  IntrusiveList<Descriptor, Descriptor> changed_;
  std::size_t asked_ = 0;
};

}  // namespace linkspan
