// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/stream_core.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lib/transport/descriptor_message.hpp"
#include "lib/transport/socket_ops.hpp"
#include "lib/transport/socket_options.hpp"
#include "lib/transport/transport_core.hpp"
#include "linkspan/base/assert.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {

StreamCore::StreamCore(TransportCore& transport, StreamSetup setup)
    : SocketCore(transport),
      handler_(&setup.handler),
      options_(setup.options),
      socket_(std::move(setup.socket)),
      connected_(setup.peers.empty() && !setup.error),
      broken_(setup.error) {
  if (connected_) {
    limit_descriptors();
    peer_.remember(transport.sockets().peer_endpoint(descriptor()));
  }
  if (!setup.peers.empty()) connector_ = std::make_unique<Connector>(*this, std::move(setup.peers), options_);
  mark_dirty();
}

StreamCore::~StreamCore() {
  if (handle_ != nullptr) handle_->core_ = nullptr;
}

// --- the owner's calls
// ---------------------------------------------------------------------------------------------

void StreamCore::assert_open() const {
  LINKSPAN_ASSERT(transport().loop().in_loop_thread(), "a stream is used on its loop's thread");
}

void StreamCore::mark_dirty() noexcept {
  transport().add_dirty(*this);
}

void StreamCore::start_read() {
  assert_open();
  LINKSPAN_ASSERT(pauses_ != 0, "each start_read answers one pause; a stream starts paused");
  if (--pauses_ == 0) mark_dirty();
}

void StreamCore::pause_read() {
  assert_open();
  if (++pauses_ == 1) mark_dirty();
}

std::error_code StreamCore::write_refusal() const noexcept {
  if (aborting_ || ending_) return make_error_code(errc::cancelled);
  if (broken_) return broken_;
  if (shutdown_requested_) return make_error_code(errc::shut_down);
  return {};
}

void StreamCore::note_queued() noexcept {
  if (queue_.bytes() > options_.high_watermark_bytes) writable_ = false;
}

// On top of write_refusal.
std::error_code StreamCore::descriptor_refusal(const Chain& data,
                                               const std::vector<Socket>& descriptors) const noexcept {
  const auto cannot_pass = [&](const Socket& socket) {
    return !socket || !transport().sockets().can_pass(socket);
  };
  if (descriptors.empty()) return {};
  if (data.empty() || std::ranges::any_of(descriptors, cannot_pass)) {
    return make_error_code(errc::invalid_argument);
  }
  if (descriptors.size() > DescriptorMessage::kDescriptorsMost) return make_error_code(errc::limit_exceeded);
  const bool to_unix = connector_ != nullptr ? connector_->to_unix_only()
                                             : transport().sockets().local_endpoint(descriptor()).is_unix();
  return to_unix ? std::error_code() : make_error_code(errc::unavailable);
}

void StreamCore::write(Chain&& data, WriteCompletion&& completion) {
  if (completion || data.empty() || write_refusal()) return write(std::move(data), {}, std::move(completion));
  assert_open();
  queue_.append(std::move(data), descriptor());
  note_queued();
  mark_dirty();
}

void StreamCore::write(Chain&& data, std::vector<Socket>&& descriptors, WriteCompletion&& completion) {
  assert_open();
  std::error_code refused = write_refusal();
  if (!refused) refused = descriptor_refusal(data, descriptors);
  const std::uint64_t begin = queue_.end();
  const bool empty = data.empty() || refused;
  if (completion) writes_.reserve_one();  // what may throw comes first
  if (refused) {
    released_.append(std::move(data));  // a borrow's completion must not run inside this call
    descriptors.clear();
  } else {
    queue_.append(std::move(data), std::move(descriptors), descriptor());
    note_queued();
  }
  if (completion) {
    writes_.push_back({begin, queue_.end(), refused, std::move(completion), nullptr});
  } else if (empty) {
    return;
  }
  mark_dirty();
}

void StreamCore::receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) {
  assert_open();
  LINKSPAN_ASSERT(size <= memory.size(), "what is received fits into the memory");
  received_.add_memory(std::move(memory), size, std::move(completion));
  mark_dirty();
}

std::span<std::byte> StreamCore::receive_memory() noexcept {
  return reading() ? received_.target() : std::span<std::byte>();
}

void StreamCore::write_file(FileRange&& range, WriteCompletion&& completion) {
  assert_open();
  LINKSPAN_ASSERT(range.file != nullptr, "a file range has a file");
  std::error_code refused = write_refusal();
  if (!refused && !queue_.can_count(range)) refused = make_error_code(errc::limit_exceeded);
  const std::uint64_t begin = queue_.end();
  writes_.reserve_one();
  if (!refused) {
    queue_.append(range);
    note_queued();
  }
  // Also without a completion: closing the file is not for the inside of a call.
  writes_.push_back({begin, queue_.end(), refused, std::move(completion), std::move(range.file)});
  mark_dirty();
}

void StreamCore::flush() {
  assert_open();
  // Before on_open nothing is sent, since nothing may be reported; then it goes in the same tick anyway.
  if (recording_ || sending_ || !open_reported_ || !send_wanted()) return;
  // Results are recorded, not reported: no callback runs inside a call.
  recording_ = true;
  start_send();
  submit_sends();
  recording_ = false;
  mark_dirty();
}

void StreamCore::shutdown_write() {
  assert_open();
  shutdown_requested_ = true;
  mark_dirty();
}

void StreamCore::close(Duration deadline) {
  assert_open();
  if (closing_ || aborting_) return;
  closing_ = true;
  shutdown_requested_ = true;
  start_deadline(deadline);
  mark_dirty();
}

void StreamCore::abort() {
  assert_open();
  aborting_ = true;
  mark_dirty();
}

void StreamCore::abandon() noexcept {
  handler_ = nullptr;
  handle_ = nullptr;
  aborting_ = true;
  mark_dirty();
}

void StreamCore::stop() noexcept {
  aborting_ = true;
  mark_dirty();
}

// --- bringing the stream up to date
// --------------------------------------------------------------------------------

void StreamCore::service() {
  if (closed_) return;
  if (open_reported_) {
    report_progress();
  } else {
    release();  // of what was refused; completions come after on_open
  }
  if (aborting_ && !ending_) finish(make_error_code(errc::aborted), true);
  if (ending_) {
    close_if_reaped();
    return;
  }
  if (!connected_) {
    if (broken_) {
      fail_to_open(broken_);
    } else {
      connect();
    }
    if (!connected_ || ending_) return;
  }
  if (!open_reported_) {
    open_reported_ = true;
    if (!closing_) deadline_.reset();  // that of connecting
    if (handler_ != nullptr) handler_->on_open();
  }
  if (received_.has_work() || receive_ended_ || closing_ || broken_) {
    deliver();
    if (ending_) return;
  }
  update_receive(receive_wanted());
  continue_sending();
}

void StreamCore::connect() {
  if (!connector_->started()) {
    if (!closing_) start_deadline(options_.connect_timeout);
    connector_->start();
  }
  std::optional<Connector::Outcome> outcome = connector_->take_outcome();
  if (!outcome) return;
  connector_.reset();
  if (outcome->error) return fail_to_open(outcome->error);
  socket_ = std::move(outcome->socket);
  if (const Status status = transport().sockets().set_connected_options(descriptor(), options_.socket);
      !status) {
    log(LogLevel::warning, "transport", status.error().message());
    return fail_to_open(status.error().code);
  }
  limit_descriptors();
  peer_.remember(outcome->peer);
  connected_ = true;
}

Endpoint StreamCore::peer_endpoint() const noexcept {
  Endpoint remembered = peer_.endpoint();
  if (remembered.family() != AF_UNSPEC || !connected_) return remembered;
  return transport().sockets().peer_endpoint(descriptor());
}

void StreamCore::limit_descriptors() noexcept {
  std::size_t& descriptors = options_.receive_descriptors;
  if (descriptors != 0 && !transport().sockets().local_endpoint(descriptor()).is_unix()) descriptors = 0;
  descriptors = std::min(descriptors, DescriptorMessage::kDescriptorsMost);
}

void StreamCore::continue_sending() {
  if (closed_ || ending_) return;
  if (!sending_ && send_wanted()) start_send();
  settle();
}

bool StreamCore::receive_wanted() const noexcept {
  // A stream that closes goes on receiving, and discards, so that its peer can finish.
  return connected_ && !ending_ && !aborting_ && !receive_ended_ && (pauses_ == 0 || closing_);
}

bool StreamCore::nothing_unread() const noexcept {
  if (closing_) return true;
  return received_.nothing_held() &&
         (receive_ended_ || transport().sockets().unread_bytes(descriptor()) == 0);
}

void StreamCore::decide() {
  if (closed_ || ending_ || recording_) return;
  complete_writes();
  if (broken_ && !sending_) tell_break();
  if (closed_ || ending_) return;
  if (connected_ && shutdown_requested_ && !shutdown_done_ && !broken_ && queue_.empty() && !sending_) {
    shutdown_done_ = true;
    transport().sockets().end_sending(descriptor());
  }
  if (shutdown_done_ && closing_ && !lingering_) {
    lingering_ = true;
    start_deadline(options_.linger);
  }
  if (aborting_) {
    finish(make_error_code(errc::aborted), true);
  } else if (broken_ && broken_ != errc::connection_lost) {
    // Our own failure, in the middle of the data: only a reset keeps the peer from taking it for the end. A
    // send that waits for the peer to read would not come back by itself.
    finish(broken_, true);
  } else if (broken_ && !sending_ && nothing_unread() && receive_stopped()) {
    finish(broken_, false);
  } else if (shutdown_done_ && (end_reported_ || (closing_ && receive_ended_))) {
    finish({}, false);
  }
}

void StreamCore::deliver() {
  received_.complete_refused();
  // Receives of no bytes use nothing up: completions that ask for more of them must not keep the loop here.
  std::size_t empty_ones = Stream::kReceivesMost;
  while (reading() && handler_ != nullptr) {
    if (received_.next_memory_is_empty() && empty_ones-- == 0) break;
    if (!received_.deliver_one(*handler_)) break;
  }
  if (closing_) {
    received_.drop_held();
    if (!memory_in_kernel_) received_.fail_memory(make_error_code(errc::cancelled));
  }
  if (reading() && received_.nothing_held() && receive_ended_) {
    received_.fail_memory(broken_ ? broken_ : make_error_code(errc::truncated));
  }
  if (reading() && received_.idle() && receive_ended_ && !end_reported_ && !broken_) {
    end_reported_ = true;
    if (handler_ != nullptr) handler_->on_end();
  }
  settle();
}

// --- the backend's reports
// -----------------------------------------------------------------------------------------

void StreamCore::fail_to_open(std::error_code error) {
  if (closed_ || ending_) return;
  broken_ = error;
  write_closed_reported_ = true;  // it never was open
  finish(error, false);
}

void StreamCore::report_received(Chain&& data, std::vector<Socket>&& descriptors) {
  transport().loop().counters().bytes_received.add(data.size());
  if (closed_ || ending_ || aborting_ || closing_ || handler_ == nullptr) {
    data.clear();
    descriptors.clear();
  } else if (reading() && received_.idle() && descriptors.empty()) {
    handler_->on_read(std::move(data));
  } else {
    received_.hold(std::move(data), std::move(descriptors));
    if (reading()) deliver();
  }
}

void StreamCore::report_received_into(std::size_t bytes, std::vector<Socket>&& descriptors) {
  transport().loop().counters().bytes_received.add(bytes);
  if (!descriptors.empty()) received_.hold(Chain(), std::move(descriptors));
  received_.received_into(bytes);
  if (!closed_ && !ending_ && reading()) deliver();
}

void StreamCore::report_receive_end() {
  if (closed_ || ending_) return;
  receive_ended_ = true;
  deliver();
  if (!closed_ && !ending_) update_receive(false);
}

void StreamCore::report_receive_error(int error) {
  if (closed_ || ending_) return;
  receive_ended_ = true;
  report_broken(error);
}

void StreamCore::report_receive_failure(std::error_code error) {
  if (closed_ || ending_) return;
  log(LogLevel::warning, "transport",
      "a stream breaks: not all descriptors of a message could be received, "
      "StreamOptions::receive_descriptors "
      "is " +
          std::to_string(options_.receive_descriptors) + ": " + error.message());
  receive_ended_ = true;
  break_with(error);
}

void StreamCore::report_broken(int error) {
  break_with(stream_error(error));
}

void StreamCore::report_no_buffer() noexcept {
  transport().add_starved(*this);
}

void StreamCore::report_sent(std::size_t bytes) {
  transport().loop().counters().bytes_sent.add(bytes);
  progress_ += bytes;
  Chain sent = queue_.accepted(bytes);
  if (!writable_ && queue_.bytes() <= options_.low_watermark_bytes) {
    writable_ = true;
    report_writable_ = true;
  }
  if (recording_) {
    released_.append(std::move(sent));
  } else {
    sent.clear();
    report_progress();
  }
}

void StreamCore::report_send_error(int error) {
  break_with(stream_error(error));
}

void StreamCore::break_with(std::error_code error) {
  if (closed_ || ending_) return;
  if (!broken_) broken_ = error;
  settle();
}

StreamCore::SendStep StreamCore::send_step() {
  transport().loop().counters().system_calls.add(1);
  const SendQueue::Sent sent =
      queue_.send_next(transport().sockets(), descriptor(), transport().loop().pool());
  if (!sent.error) {
    report_sent(sent.bytes);
    return SendStep::sent;
  }
  if (sent.error == std::errc::interrupted) {
    mark_dirty();
  } else if (sent.error == std::errc::resource_unavailable_try_again) {
    return SendStep::blocked;
  } else if (sent.error == errc::pool_exhausted) {
    transport().add_starved(*this);
  } else if (sent.error.category() == std::system_category()) {
    report_send_error(sent.error.value());
  } else {
    break_with(sent.error);
  }
  return SendStep::stopped;
}

void StreamCore::operation_finished() {
  LINKSPAN_ASSERT(operations_ != 0, "each operation finishes once");
  if (--operations_ == 0 && ending_) mark_dirty();
}

// Memory goes first: its owners may want it back at once.
void StreamCore::tell_progress() {
  release();
  if (progress_ != 0) {
    const std::size_t bytes = std::exchange(progress_, 0);
    if (handler_ != nullptr) handler_->on_write_progress(bytes);
  }
  if (!closed_) complete_writes();
  if (report_writable_) {
    report_writable_ = false;
    if (handler_ != nullptr && !aborting_ && writable_) handler_->on_writable();
  }
}

void StreamCore::release() {
  if (released_.empty()) return;
  Chain gone = std::move(released_);
  gone.clear();
}

void StreamCore::complete_writes() {
  // Only those that are here now: a completion that writes nothing, or is refused, again and again must not
  // keep the loop here for ever.
  for (std::size_t count = writes_.size(); count != 0 && writes_.front().end <= queue_.begin(); --count) {
    PendingWrite write = writes_.pop_front();
    write.complete(write.refused, write.end - write.begin);
  }
}

void StreamCore::PendingWrite::complete(std::error_code error, std::uint64_t accepted) {
  file.reset();
  if (completion) completion(error, static_cast<std::size_t>(accepted));
}

// Fails what is queued, in order. Nothing of it will be sent; on_closed hands back what is memory.
void StreamCore::fail_writes(std::error_code error) {
  // Only those that are here now: a completion that writes again must not keep the loop here for ever.
  for (std::size_t count = writes_.size(); count != 0; --count) {
    PendingWrite write = writes_.pop_front();
    const std::uint64_t accepted = std::clamp(queue_.begin(), write.begin, write.end) - write.begin;
    write.complete(write.refused ? write.refused : error, accepted);
  }
}

void StreamCore::tell_break() {
  fail_writes(broken_);
  if (write_closed_reported_) return;
  write_closed_reported_ = true;
  if (handler_ != nullptr) handler_->on_write_closed(broken_);
}

// --- the end
// ---------------------------------------------------------------------------------------------------------

void StreamCore::finish(std::error_code error, bool with_reset) {
  ending_ = true;
  end_error_ = error;
  end_with_reset_ = with_reset;
  deadline_.reset();
  if (connector_ != nullptr) std::exchange(connector_, nullptr)->cancel();
  if (socket_) cancel_operations();
  close_if_reaped();
}

void StreamCore::close_if_reaped() {
  if (closed_ || !ending_ || operations_ != 0) return;
  report_progress();
  const std::error_code cancelled = make_error_code(errc::cancelled);
  if (broken_ && broken_ == end_error_ && !aborting_) {
    tell_break();
  } else {
    fail_writes(aborting_ ? cancelled : end_error_);
  }
  received_.complete_refused();
  received_.fail_memory(aborting_ || !end_error_ ? cancelled : end_error_);
  // Of a completion, or a release: refused, and over before on_closed.
  if (!writes_.empty() || received_.memory_waits() || !released_.empty()) {
    mark_dirty();
    return;
  }
  if (socket_) {
    forget_descriptor();
    transport().sockets().before_close(descriptor(), end_with_reset_);
    socket_.close();
  }
  received_.drop_held();
  closed_ = true;
  Chain unsent = queue_.take_unsent();
  transport().bury(*this);
  if (handle_ != nullptr) std::exchange(handle_, nullptr)->core_ = nullptr;
  if (StreamHandler* handler = std::exchange(handler_, nullptr)) {
    handler->on_closed(end_error_, std::move(unsent));
  }
}

void StreamCore::start_deadline(Duration deadline) {
  if (deadline_ == nullptr) {
    deadline_ = std::make_unique<Timer>(transport().loop(), [this] { deadline_passed(); });
  }
  deadline_->start(deadline);
}

void StreamCore::deadline_passed() {
  if (closed_ || ending_) return;
  if (!connected_ && !closing_) {
    fail_to_open(make_error_code(errc::timed_out));
  } else if (shutdown_done_) {
    finish({}, false);  // everything was sent; the peer only did not end its own side in time
  } else {
    finish(make_error_code(errc::timed_out), true);
  }
}

// --- Stream: the handle
// ----------------------------------------------------------------------------------------------

StreamHandler::~StreamHandler() = default;
void StreamHandler::on_open() {}
void StreamHandler::on_descriptors(std::vector<Socket>&& descriptors) {
  descriptors.clear();
}
void StreamHandler::on_write_progress(std::size_t) {}
void StreamHandler::on_writable() {}
void StreamHandler::on_write_closed(std::error_code) {}

Stream::Stream(StreamCore* core) noexcept : core_(core) {
  core_->handle_ = this;
}

Stream::Stream(Stream&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {
  if (core_ != nullptr) core_->handle_ = this;
}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->abandon();
  core_ = std::exchange(other.core_, nullptr);
  if (core_ != nullptr) core_->handle_ = this;
  return *this;
}

Stream::~Stream() {
  if (core_ != nullptr) core_->abandon();
}

namespace {

StreamCore& opened(StreamCore* core) {
  LINKSPAN_ASSERT(core != nullptr, "a stream is not used in or after on_closed");
  return *core;
}

}  // namespace

void Stream::start_read() {
  opened(core_).start_read();
}
void Stream::pause_read() {
  opened(core_).pause_read();
}
void Stream::write(Chain&& data, WriteCompletion completion) {
  opened(core_).write(std::move(data), std::move(completion));
}
void Stream::write(Chain&& data, std::vector<Socket>&& descriptors, WriteCompletion completion) {
  opened(core_).write(std::move(data), std::move(descriptors), std::move(completion));
}
void Stream::receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) {
  opened(core_).receive_into(std::move(memory), size, std::move(completion));
}
void Stream::write_file(FileRange&& range, WriteCompletion completion) {
  opened(core_).write_file(std::move(range), std::move(completion));
}
void Stream::flush() {
  opened(core_).flush();
}
void Stream::shutdown_write() {
  opened(core_).shutdown_write();
}
void Stream::close(Duration deadline) {
  opened(core_).close(deadline);
}
void Stream::abort() {
  opened(core_).abort();
}
std::size_t Stream::queued_bytes() const noexcept {
  return opened(core_).queued_bytes();
}
std::uint64_t Stream::sent_bytes() const noexcept {
  return opened(core_).sent_bytes();
}
bool Stream::writable() const noexcept {
  return opened(core_).writable();
}
Endpoint Stream::local_endpoint() const {
  const StreamCore& core = opened(core_);
  return core.transport().sockets().local_endpoint(core.descriptor());
}
Endpoint Stream::peer_endpoint() const {
  const StreamCore& core = opened(core_);
  return core.peer_endpoint();
}
EventLoop& Stream::loop() const noexcept {
  return opened(core_).transport().loop();
}

}  // namespace linkspan
