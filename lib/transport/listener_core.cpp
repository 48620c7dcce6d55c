// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/listener_core.hpp"

#include <unistd.h>

#include <utility>

#include "lib/transport/socket_ops.hpp"
#include "lib/transport/transport_core.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {
namespace {

// How long a listener waits for descriptors or memory before it tries again.
constexpr Duration kRetryDelay = std::chrono::milliseconds(50);

}  // namespace

ListenerCore::ListenerCore(TransportCore& transport, Socket socket, ListenerHandler& handler)
    : transport_(transport),
      handler_(&handler),
      socket_(std::move(socket)),
      retry_(transport.loop(), [this] { start_accepting(); }) {}

ListenerCore::~ListenerCore() {
  if (handle_ != nullptr) handle_->core_ = nullptr;
}

void ListenerCore::own_path() {
  const std::string path = transport_.sockets().local_endpoint(descriptor()).unix_path();
  if (!path.empty() && path.front() != '@') unix_path_ = path;
}

void ListenerCore::close() noexcept {
  if (closed_) return;
  closed_ = true;
  handler_ = nullptr;
  retry_.cancel();
  if (!unix_path_.empty()) transport_.sockets().remove_path(unix_path_);
  stop_accepting();
  forget_descriptor();
  socket_.close();
  bury_if_reaped();
}

void ListenerCore::bury_if_reaped() {
  if (closed_ && operations_ == 0) transport_.bury(*this);
}

void ListenerCore::operation_finished() {
  LINKSPAN_ASSERT(operations_ != 0, "each operation finishes once");
  --operations_;
  bury_if_reaped();
}

void ListenerCore::report_accepted(Socket socket) {
  if (handler_ != nullptr) handler_->on_accept(std::move(socket));
}

bool ListenerCore::report_accept_error(int error) {
  if (closed_) return false;
  switch (classify_accept_error(error)) {
    case AcceptError::nothing_waits:
    case AcceptError::connection: return true;
    case AcceptError::resources: break;
  }
  const std::error_code code = system_error_code(error);
  log(LogLevel::warning, "transport", "accepting pauses for 50 ms: " + code.message());
  stop_accepting();
  retry_.start(kRetryDelay);
  handler_->on_accept_error(code);
  return false;
}

// --- Listener: the handle
// --------------------------------------------------------------------------------------------

ListenerHandler::~ListenerHandler() = default;
void ListenerHandler::on_accept_error(std::error_code) {}

Listener::Listener(ListenerCore* core) noexcept : core_(core) {
  core_->handle_ = this;
}

Listener::Listener(Listener&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {
  if (core_ != nullptr) core_->handle_ = this;
}

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this == &other) return *this;
  close();
  core_ = std::exchange(other.core_, nullptr);
  if (core_ != nullptr) core_->handle_ = this;
  return *this;
}

void Listener::close() noexcept {
  if (core_ == nullptr) return;
  ListenerCore* core = std::exchange(core_, nullptr);
  core->handle_ = nullptr;
  core->close();
}

Endpoint Listener::local_endpoint() const {
  return core_ == nullptr ? Endpoint() : core_->transport().sockets().local_endpoint(core_->descriptor());
}

}  // namespace linkspan
