// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/termination.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "lib/loop/guarded_call.hpp"
#include "linkspan/buffer/cursor.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan {
namespace {

// The end that the signal handler writes to; -1 until there was a Termination. Never closed, only replaced by
// the next one's: a handler may have read its number on another thread just before.
std::atomic<int> signal_socket{-1};
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<bool> watching{false};

bool set_signal_socket(Socket socket) {
  const int there = signal_socket.load(std::memory_order_relaxed);
  if (there >= 0) return ::dup3(socket.descriptor(), there, O_CLOEXEC) == there;
  signal_socket.store(socket.release(), std::memory_order_release);
  return true;
}

extern "C" void linkspan_note_signal(int signal) {
  const int error = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // A full socket has signals enough.
  [[maybe_unused]] const ssize_t sent =
      ::send(signal_socket.load(std::memory_order_acquire), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  errno = error;
}

}  // namespace

class Termination::State final : public StreamHandler {
 public:
  State(EventLoop& loop, unique_function<void(int)> callback) : loop_(loop), callback_(std::move(callback)) {}
  ~State() override {
    for (auto old = old_actions_.rbegin(); old != old_actions_.rend(); ++old) {
      ::sigaction(old->first, &old->second, nullptr);
    }
    if (watches_) watching.store(false, std::memory_order_release);
  }

  Status start(const std::vector<int>& signals) {
    if (watching.exchange(true, std::memory_order_acq_rel)) {
      return Error(errc::invalid_argument, "a Termination watches already; there is one in a process");
    }
    watches_ = true;
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Error(system_error_code(errno), "socketpair");
    }
    Socket reading(ends[0]);
    if (!set_signal_socket(Socket(ends[1]))) return Error(system_error_code(errno), "dup3");
    stream_ = Transport::of(loop_).open(std::move(reading), {}, *this);
    stream_.start_read();
    old_actions_.reserve(signals.size());
    for (const int signal : signals) {
      struct sigaction action {};
      struct sigaction old {};
      action.sa_handler = linkspan_note_signal;
      action.sa_flags = SA_RESTART;
      sigemptyset(&action.sa_mask);
      if (::sigaction(signal, &action, &old) != 0) {
        return Error(errc::invalid_argument, "signal " + std::to_string(signal) + " cannot be handled");
      }
      old_actions_.emplace_back(signal, old);
    }
    return std::monostate{};
  }

  void on_read(Chain&& data) override {
    for (const Slice& slice : data) {
      for (const std::byte byte : slice.bytes()) {
        auto call = [&] { callback_(std::to_integer<int>(byte)); };
        guarded_call(call, "a termination callback", loop_.counters());
      }
    }
  }
  void on_end() override {}
  void on_closed(std::error_code, Chain&&) override {}

 private:
  EventLoop& loop_;
  unique_function<void(int)> callback_;
  bool watches_ = false;  // it is the one
  Stream stream_;
  std::vector<std::pair<int, struct sigaction>> old_actions_;
};

Termination::Termination(std::unique_ptr<State> state) : state_(std::move(state)) {}
Termination::~Termination() = default;

Result<std::unique_ptr<Termination>> Termination::watch(EventLoop& loop,
                                                        unique_function<void(int signal)> callback,
                                                        std::vector<int> signals) {
  auto state = std::make_unique<State>(loop, std::move(callback));
  if (const Status status = state->start(signals); !status) return status.error();
  return std::unique_ptr<Termination>(new Termination(std::move(state)));
}

}  // namespace linkspan
