// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/sim/sim_socket.hpp"

#include <sys/socket.h>

#include <algorithm>

#include "lib/transport/sim/sim_kernel.hpp"
#include "lib/transport/sim/sim_machine.hpp"
#include "lib/transport/sim/sim_reactor.hpp"

namespace linkspan {

SimSocket::SimSocket(SimMachine& machine, Type type, int number, int family)
    : receive_capacity_(machine.kernel().options().receive_buffer_bytes),
      send_capacity_(machine.kernel().options().send_buffer_bytes),
      machine_(machine),
      type_(type),
      number_(number),
      family_(family) {}

SimSocket::~SimSocket() = default;

SimKernel& SimSocket::kernel() const noexcept {
  return machine_.kernel();
}

bool SimSocket::is_unix() const noexcept {
  return family_ == AF_UNIX;
}

void SimSocket::set_options(const SocketOptions& options) noexcept {
  if (options.send_buffer_bytes) send_capacity_ = std::max<std::size_t>(*options.send_buffer_bytes, 1);
  if (options.receive_buffer_bytes) {
    receive_capacity_ = std::max<std::size_t>(*options.receive_buffer_bytes, 1);
  }
}

void SimSocket::set_local(const Endpoint& local, bool has_port) noexcept {
  local_ = local;
  has_port_ = has_port;
}

void SimSocket::remove_descriptor() {
  if (--descriptors_ != 0) return;
  watch_ = nullptr;
  close();
}

void SimSocket::vanish() {
  kernel().erase(*this);
}

bool SimSocket::interesting() const noexcept {
  if (watch_ == nullptr || !watch_->wants_anything()) return false;
  const Ready is = ready();
  return is.error || is.hung_up || (is.readable && watch_->wants_readable()) ||
         (is.writable && watch_->wants_writable());
}

void SimSocket::touch() {
  if (queued_ || !interesting()) return;
  queued_ = true;
  reactor_->add_ready(number_);
}

bool SimSocket::watch(Watch& watch, SimReactor& reactor) {
  if (watch_ != nullptr && watch_ != &watch) return false;
  watch_ = &watch;
  reactor_ = &reactor;
  touch();
  return true;
}

void SimSocket::forget(const Watch& watch) noexcept {
  if (watch_ == &watch) watch_ = nullptr;
}

bool SimSocket::tell() {
  queued_ = false;
  if (!interesting()) return false;
  const Ready is = ready();
  watch_->tell({is.readable || is.hung_up, is.writable || is.hung_up, is.error}, is.error || is.hung_up);
  return true;
}

}  // namespace linkspan
