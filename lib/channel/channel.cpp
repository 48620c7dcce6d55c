// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/channel.hpp"

#include <string>
#include <utility>

#include "lib/base/log_exception.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {

Channel::Channel(EventLoop& loop, Watermarks watermarks, bool auto_read, const PendingLimits& limits,
                 Wire wire) noexcept
    : loop_(loop),
      pipeline_(*this, wire),
      watermarks_(watermarks),
      limits_(limits),
      read_pauses_(auto_read ? 0 : 1) {}

Channel::~Channel() {
  LINKSPAN_ASSERT(closed_, "a channel is closed before it is destroyed");
}

// --- calls ------------------------------------------------------------------------------------------------

void Channel::flush() {
  if (!closed_) do_flush();
}

void Channel::shutdown_write() {
  if (held_) start_held(true);
  if (!closed_) do_shutdown_write();
}

void Channel::close(Duration deadline) {
  if (closed_ || closing_) return;
  if (held_) start_held(true);
  if (closed_ || closing_) return;
  closing_ = true;
  do_close(deadline);
}

void Channel::abort() {
  if (closed_) return;
  closing_ = true;
  do_abort();
}

void Channel::pause_read() {
  ++read_pauses_;
  update_reading();
}

void Channel::resume_read() {
  LINKSPAN_ASSERT(read_pauses_ != 0, "each resume_read answers one pause_read");
  if (--read_pauses_ != 0) return;
  update_reading();
  resumed_ = true;
  loop_.defer(*this);
}

void Channel::update_reading() {
  const bool wanted = active_ && read_pauses_ == 0;
  if (closed_ || wanted == receiving_) return;
  receiving_ = wanted;
  do_read(wanted);
}

std::size_t Channel::queued_bytes() const noexcept {
  const std::size_t remote = state_ == nullptr ? 0 : state_->remote_bytes.load(std::memory_order_relaxed);
  return remote + (closed_ ? 0 : unsent_bytes()) + (held_ ? held_writes_->bytes() : 0);
}

void Channel::fail(std::error_code error, std::string_view detail) {
  run([&] { pipeline_.ends_.pass_error(error, detail); });
}

void Channel::drain(Duration deadline) {
  run([&] { pipeline_.ends_.pass_drain(deadline); });
}

// --- what the pipeline asks for ---------------------------------------------------------------------------

void Channel::send_from_pipeline(Chain&& bytes) {
  if ((closed_ || !writable_) && !may_send()) return;
  send(std::move(bytes));
  update_writable();
}

// What is written is allowed by the room; and a packet that finds none fails alone.
void Channel::send_from_pipeline(Packet&& packet) {
  if (closed_) return;
  send_packet(std::move(packet));
  update_writable();
}

// Only the one of its wire is called.
void Channel::send(Chain&&) {
  LINKSPAN_ASSERT(false, "a datagram channel sends packets");
}
void Channel::send_packet(Packet&&) {
  LINKSPAN_ASSERT(false, "a stream channel sends bytes");
}

void Channel::complete(WriteDone&& done, std::uint64_t begin) {
  if (!closed_) return send_marker(std::move(done), begin);
  complete_later(std::move(done), make_error_code(errc::cancelled));
}

// No callback runs inside a call, as long as the loop takes tasks.
void Channel::complete_later(WriteDone done, std::error_code error) {
  auto owned = std::make_unique<WriteDone>(std::move(done));
  if (loop_.post([done = owned.get(), error] {
        const std::unique_ptr<WriteDone> owner(done);
        (*owner)(error);
      })) {
    static_cast<void>(owned.release());
  } else {
    (*owned)(error);
  }
}

void Channel::close_because(std::error_code error) {
  if (!closing_ && !reason_) reason_ = error;
  close();
}

void Channel::refuse_write(const TypeName& type) {
  const detail::HandlerTable& last = *pipeline_.ends_.previous_->table_;
  log(LogLevel::error, "channel",
      "write of " + type.to_string() + ", but " + last.name.to_string() + " takes " + last.out->to_string());
  close_because(make_error_code(errc::unhandled));
}

void Channel::callback_failed(std::string_view what) noexcept {
  const std::error_code error = make_error_code(errc::handler_failed);
  try {
    if (!closed_) {
      if (!closing_ && !reason_) reason_ = error;
      pipeline_.ends_.pass_error(error, what);
      close();
      return;
    }
    log(LogLevel::error, "channel", "a callback of a closed channel threw");
    log(LogLevel::error, "channel", what);
  } catch (...) {
    log(LogLevel::error, "channel", "a handler threw while it was told of a failure");
    close();
  }
}

// --- what is behind the channel reports -------------------------------------------------------------------

template <class Tell>
void Channel::tell_all(detail::Event event, Tell&& tell) {
  HandlerNode& ends = pipeline_.ends_;
  for (HandlerNode* node = &ends.next_taking_part(event); node != &ends;
       node = &node->next_taking_part(event)) {
    run([&] { tell(*node); });
  }
}

void Channel::initialize(const ChannelInitializer& initializer) noexcept {
  std::error_code error = make_error_code(errc::handler_failed);
  try {
    const Status status = initializer(*this);
    if (status) return;
    error = status.error().code;
    log(LogLevel::error, "channel", "a channel's initializer failed: " + status.error().message());
  } catch (...) {
    log_exception("channel", "a channel's initializer");
  }
  if (!reason_) reason_ = error;
  abort();
}

void Channel::report_open() {
  active_ = true;
  run([&] { pipeline_.ends_.pass_active(); });
  update_reading();
}

template <class Message>
void Channel::pass_received(Message&& message) {
  if (has_held()) {
    deliver_unread();
    if (!reading()) {
      pipeline_.hold(std::move(message));
      return;
    }
  }
  run([&] { pipeline_.read(std::move(message)); });
  if (has_held()) deliver_unread();
}

void Channel::report_read(Chain&& bytes) {
  pass_received(std::move(bytes));
}

void Channel::report_packet(Packet&& packet) {
  pass_received(std::move(packet));
}

void Channel::report_refused(std::error_code error, const Endpoint& peer) {
  run([&] { pipeline_.ends_.pass_refused(error, peer); });
}

void Channel::report_descriptors(std::vector<Socket>&& descriptors) {
  run([&] { pipeline_.ends_.pass_descriptors(std::move(descriptors)); });
}

void Channel::report_end() {
  end_held_ = true;
  deliver_unread();
}

void Channel::report_progress() {
  // A queue that has shrunk makes nothing unwritable.
  if (!writable_ || state_ != nullptr) update_writable();
  if (told_writable_ != writable_ || stop_seen_) tell_writable();
}

void Channel::report_write_closed(std::error_code error) {
  tell_all(detail::kWriteClosed, [error](HandlerNode& handler) { handler.on_write_closed(error); });
}

void Channel::begin_closed() noexcept {
  closed_ = true;
  active_ = false;
  if (state_ == nullptr) return;
  state_->channel = nullptr;
  if (state_->budget != nullptr) state_->charge(0);
  const std::lock_guard lock(state_->mutex);
  state_->loop = nullptr;
}

void Channel::report_closed(std::error_code error) {
  begin_closed();
  if (reason_) error = reason_;
  if (held_) {
    held_ = false;
    held_writes_->fail(error && error != errc::aborted ? error : make_error_code(errc::cancelled));
  }
  tell_all(detail::kInactive, [error](HandlerNode& handler) { handler.on_inactive(error); });
  loop_.defer(*this);
}

// --- at the end of the tick -------------------------------------------------------------------------------

void Channel::run_deferred() {
  if (closed_) {
    pipeline_.clear();
    destroy();
    return;
  }
  pipeline_.destroy_removed();
  deliver_unread();
  if (resumed_ && reading()) {
    resumed_ = false;
    tell_all(detail::kReadResumed, [](HandlerNode& handler) { handler.on_read_resumed(); });
  }
  if (held_ && !closing_) start_held(false);
  tell_writable();
}

// Bytes that a removed handler had not decoded; they come before what is received next.
void Channel::deliver_unread() {
  while (pipeline_.has_unread() && reading()) {
    run([&] { pipeline_.deliver_unread(); });
  }
  if (end_held_ && !pipeline_.has_unread() && reading()) {
    end_held_ = false;
    run([&] { pipeline_.ends_.pass_read_end(); });
  }
}

void Channel::update_writable() noexcept {
  // Without the writes that wait: they wait for this.
  const std::size_t remote = state_ == nullptr ? 0 : state_->remote_bytes.load(std::memory_order_relaxed);
  const std::size_t queued = remote + (closed_ ? 0 : unsent_bytes());
  if (writable_ ? queued > watermarks_.high_bytes : queued <= watermarks_.low_bytes) {
    writable_ = !writable_;
    loop_.defer(*this);
  } else if (goes_on_untold()) {
    loop_.defer(*this);
  }
  if (state_ != nullptr) {
    const std::size_t local = unsent_bytes() + (held_ ? held_writes_->bytes() : 0);
    state_->local_bytes.store(local, std::memory_order_relaxed);
    state_->writable.store(writable_ && !held_, std::memory_order_relaxed);
    if (state_->budget != nullptr && !closed_) state_->charge(local);
  }
}

void Channel::tell_writable() {
  if (goes_on_untold()) tell_writable(false);
  if (told_writable_ != writable_) tell_writable(writable_);
}

void Channel::tell_writable(bool writable) {
  told_writable_ = writable;
  stop_seen_ = false;
  tell_all(detail::kWritableChanged,
           [writable](HandlerNode& handler) { handler.on_writable_changed(writable); });
}

// --- refs -------------------------------------------------------------------------------------------------

ChannelRef Channel::ref() {
  if (state_ == nullptr)
    attach(std::make_shared<detail::ChannelState>(loop_, watermarks_.high_bytes, limits_));
  return ChannelRef(state_);
}

void Channel::attach(std::shared_ptr<detail::ChannelState> state) {
  state_ = std::move(state);
  if (closed_) {
    const std::lock_guard lock(state_->mutex);
    state_->loop = nullptr;
    return;
  }
  state_->channel = this;
  update_writable();
  state_->thread.store(std::this_thread::get_id(), std::memory_order_release);
}

}  // namespace linkspan
