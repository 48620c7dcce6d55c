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
      socket_(std::move(setup.socket)),
      high_watermark_bytes_(setup.options.high_watermark_bytes),
      low_watermark_bytes_(setup.options.low_watermark_bytes),
      linger_(setup.options.linger),
      receive_descriptors_(static_cast<std::uint32_t>(
          std::min(setup.options.receive_descriptors, DescriptorMessage::kDescriptorsMost))) {
  if (setup.error) {
    broken_ = setup.error;
    set(kBroken);
  } else if (setup.peers.empty()) {
    set(kConnected);
    limit_descriptors();
    peer_.remember(transport.sockets().peer_endpoint(descriptor()));
  }
  if (!setup.peers.empty())
    connector_ = std::make_unique<Connector>(*this, std::move(setup.peers), setup.options);
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
  if (--pauses_ != 0) return;
  clear(kPaused);
  mark_dirty();
}

void StreamCore::pause_read() {
  assert_open();
  if (++pauses_ != 1) return;
  set(kPaused);
  mark_dirty();
}

std::error_code StreamCore::write_refusal() const noexcept {
  if (is(kAborting | kEnding)) return make_error_code(errc::cancelled);
  if (is(kBroken)) return broken_;
  if (is(kShutdownRequested)) return make_error_code(errc::shut_down);
  return {};
}

void StreamCore::note_queued() noexcept {
  if (queue_.bytes() > high_watermark_bytes_) set(kUnwritable);
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
  if (is(kRefusesWrites)) return write(std::move(data), {}, std::move(completion));
  assert_open();
  if (!completion && data.empty()) return;
  if (completion) writes_.reserve_one();  // what may throw comes first
  const std::uint64_t begin = queue_.end();
  if (!data.empty()) {
    queue_.append(std::move(data), descriptor());
    note_queued();
  }
  if (completion) {
    writes_.emplace_back(begin, queue_.end(), std::error_code(), std::move(completion), nullptr);
  }
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
    aside().released.append(std::move(data));  // a borrow's completion must not run inside this call
    descriptors.clear();
  } else {
    queue_.append(std::move(data), std::move(descriptors), descriptor());
    note_queued();
  }
  if (completion) {
    writes_.emplace_back(begin, queue_.end(), refused, std::move(completion), nullptr);
  } else if (empty) {
    return;
  }
  mark_dirty();
}

void StreamCore::receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) {
  assert_open();
  LINKSPAN_ASSERT(size <= memory.size(), "what is received fits into the memory");
  aside().received.add_memory(std::move(memory), size, std::move(completion));
  mark_dirty();
}

std::span<std::byte> StreamCore::receive_memory() noexcept {
  return aside_ != nullptr && reading() ? aside_->received.target() : std::span<std::byte>();
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
  if (is(kRecording) || sending_ || !is(kOpenReported) || !send_wanted()) return;
  // Results are recorded, not reported: no callback runs inside a call.
  set(kRecording);
  start_send(SendCall::own);
  if (sending_) submit_sends();
  clear(kRecording);
  mark_dirty();
}

void StreamCore::shutdown_write() {
  assert_open();
  set(kShutdownRequested);
  mark_dirty();
}

void StreamCore::close(Duration deadline) {
  assert_open();
  if (is(kClosing | kAborting)) return;
  set(kClosing);
  set(kShutdownRequested);
  start_deadline(deadline);
  mark_dirty();
}

void StreamCore::abort() {
  assert_open();
  set(kAborting);
  mark_dirty();
}

void StreamCore::abandon() noexcept {
  handler_ = nullptr;
  handle_ = nullptr;
  set(kAborting);
  mark_dirty();
}

void StreamCore::stop() noexcept {
  set(kAborting);
  mark_dirty();
}

// --- bringing the stream up to date
// --------------------------------------------------------------------------------

void StreamCore::service() {
  if (!ordinary()) return service_rest();
  update_receive(!is(kPaused));
  continue_sending(transport().serves_one() ? SendCall::own : SendCall::shared);
}

void StreamCore::service_rest() {
  if (is(kClosed)) return;
  if (is(kOpenReported)) {
    report_progress();
  } else {
    release();  // of what was refused; completions come after on_open
  }
  if (is(kAborting) && !is(kEnding)) finish(make_error_code(errc::aborted), true);
  if (is(kEnding)) {
    close_if_reaped();
    return;
  }
  if (!is(kConnected)) {
    if (is(kBroken)) {
      fail_to_open(broken_);
    } else {
      connect();
    }
    if (!is(kConnected) || is(kEnding)) return;
  }
  if (!is(kOpenReported)) {
    set(kOpenReported);
    if (!is(kClosing)) deadline_.reset();  // that of connecting
    if (handler_ != nullptr) handler_->on_open();
  }
  if (is(kReceiveEnded | kClosing | kBroken) || (aside_ != nullptr && aside_->received.has_work())) {
    deliver();
    if (is(kEnding)) return;
  }
  update_receive(receive_wanted());
  continue_sending();
}

void StreamCore::connect() {
  if (!connector_->started()) {
    if (!is(kClosing)) start_deadline(connector_->options().connect_timeout);
    connector_->start();
  }
  std::optional<Connector::Outcome> outcome = connector_->take_outcome();
  if (!outcome) return;
  const std::unique_ptr<Connector> connector = std::move(connector_);
  if (outcome->error) return fail_to_open(outcome->error);
  socket_ = std::move(outcome->socket);
  if (const Status status =
          transport().sockets().set_connected_options(descriptor(), connector->options().socket);
      !status) {
    log(LogLevel::warning, "transport", status.error().message());
    return fail_to_open(status.error().code);
  }
  limit_descriptors();
  peer_.remember(outcome->peer);
  set(kConnected);
}

Endpoint StreamCore::peer_endpoint() const noexcept {
  Endpoint remembered = peer_.endpoint();
  if (remembered.family() != AF_UNSPEC || !is(kConnected)) return remembered;
  return transport().sockets().peer_endpoint(descriptor());
}

void StreamCore::limit_descriptors() noexcept {
  if (receive_descriptors_ != 0 && !transport().sockets().local_endpoint(descriptor()).is_unix()) {
    receive_descriptors_ = 0;
  }
}

void StreamCore::continue_sending(SendCall call) {
  if (is(kClosed | kEnding)) return;
  if (!sending_ && send_wanted()) start_send(call);
  settle();
}

bool StreamCore::receive_wanted() const noexcept {
  // A stream that closes goes on receiving, and discards, so that its peer can finish.
  constexpr Flags kDecisive = kConnected | kEnding | kAborting | kReceiveEnded;
  return (flags_ & kDecisive) == kConnected && (!is(kPaused) || is(kClosing));
}

bool StreamCore::nothing_unread() const noexcept {
  if (is(kClosing)) return true;
  return (aside_ == nullptr || aside_->received.nothing_held()) &&
         (is(kReceiveEnded) || transport().sockets().unread_bytes(descriptor()) == 0);
}

void StreamCore::decide() {
  if (is(kClosed | kEnding | kRecording)) return;
  complete_writes();
  if (is(kBroken) && !sending_) tell_break();
  if (is(kClosed | kEnding)) return;
  if (is(kConnected) && is(kShutdownRequested) && !is(kShutdownDone) && !is(kBroken) && queue_.empty() &&
      !sending_) {
    set(kShutdownDone);
    transport().sockets().end_sending(descriptor());
  }
  if (is(kShutdownDone) && is(kClosing) && !is(kLingering)) {
    set(kLingering);
    start_deadline(linger_);
  }
  if (is(kAborting)) {
    finish(make_error_code(errc::aborted), true);
  } else if (is(kBroken) && broken_ != errc::connection_lost) {
    // Our own failure, in the middle of the data: only a reset keeps the peer from taking it for the end. A
    // send that waits for the peer to read would not come back by itself.
    finish(broken_, true);
  } else if (is(kBroken) && !sending_ && nothing_unread() && receive_stopped()) {
    finish(broken_, false);
  } else if (is(kShutdownDone) && (is(kEndReported) || (is(kClosing) && is(kReceiveEnded)))) {
    finish({}, false);
  }
}

void StreamCore::deliver() {
  if (aside_ != nullptr) deliver_from(aside_->received);
  if (reading() && is(kReceiveEnded) && !is(kEndReported | kBroken) && received_idle()) {
    set(kEndReported);
    if (handler_ != nullptr) handler_->on_end();
  }
  settle();
}

void StreamCore::deliver_from(ReceiveQueue& received) {
  received.complete_refused();
  // Receives of no bytes use nothing up: completions that ask for more of them must not keep the loop here.
  std::size_t empty_ones = Stream::kReceivesMost;
  while (reading() && handler_ != nullptr) {
    if (received.next_memory_is_empty() && empty_ones-- == 0) break;
    if (!received.deliver_one(*handler_)) break;
  }
  if (is(kClosing)) {
    received.drop_held();
    if (!memory_in_kernel_) received.fail_memory(make_error_code(errc::cancelled));
  }
  if (reading() && received.nothing_held() && is(kReceiveEnded)) {
    received.fail_memory(is(kBroken) ? broken_ : make_error_code(errc::truncated));
  }
}

// --- the backend's reports
// -----------------------------------------------------------------------------------------

void StreamCore::fail_to_open(std::error_code error) {
  if (is(kClosed | kEnding)) return;
  broken_ = error;
  set(kBroken | kWriteClosedReported);  // it never was open
  finish(error, false);
}

void StreamCore::report_received(Chain&& data) {
  transport().loop().counters().bytes_received.add(data.size());
  if (!is(kNotReading | kClosed) && received_idle()) {
    handler_->on_read(std::move(data));
  } else {
    hold(std::move(data), {});
  }
}

void StreamCore::report_received(Chain&& data, std::vector<Socket>&& descriptors) {
  if (descriptors.empty()) return report_received(std::move(data));
  transport().loop().counters().bytes_received.add(data.size());
  hold(std::move(data), std::move(descriptors));
}

void StreamCore::hold(Chain&& data, std::vector<Socket>&& descriptors) {
  if (is(kClosed | kEnding | kAborting | kClosing)) {
    data.clear();
    descriptors.clear();
  } else {
    aside().received.hold(std::move(data), std::move(descriptors));
    if (reading()) deliver();
  }
}

void StreamCore::report_received_into(std::size_t bytes, std::vector<Socket>&& descriptors) {
  transport().loop().counters().bytes_received.add(bytes);
  ReceiveQueue& received = aside_->received;  // the memory is there, so it is
  if (!descriptors.empty()) received.hold(Chain(), std::move(descriptors));
  received.received_into(bytes);
  if (!is(kClosed | kEnding) && reading()) deliver();
}

void StreamCore::report_receive_end() {
  if (is(kClosed | kEnding)) return;
  set(kReceiveEnded);
  deliver();
  if (!is(kClosed | kEnding)) update_receive(false);
}

void StreamCore::report_receive_error(int error) {
  if (is(kClosed | kEnding)) return;
  set(kReceiveEnded);
  report_broken(error);
}

void StreamCore::report_receive_failure(std::error_code error) {
  if (is(kClosed | kEnding)) return;
  log(LogLevel::warning, "transport",
      "a stream breaks: not all descriptors of a message could be received, "
      "StreamOptions::receive_descriptors "
      "is " +
          std::to_string(receive_descriptors_) + ": " + error.message());
  set(kReceiveEnded);
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
  if (!is(kRecording) && queue_.is_one_slice(bytes)) {
    queue_.accepted_slice();  // released by the end of this statement
    note_sent();
    report_progress();
    return;
  }
  Chain sent = queue_.accepted(bytes);
  note_sent();
  if (is(kRecording)) {
    aside().released.append(std::move(sent));
  } else {
    sent.clear();
    report_progress();
  }
}

void StreamCore::report_send_error(int error) {
  break_with(stream_error(error));
}

void StreamCore::break_with(std::error_code error) {
  if (is(kClosed | kEnding)) return;
  if (!is(kBroken)) broken_ = error;
  set(kBroken);
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

// Memory goes first: its owners may want it back at once.
void StreamCore::tell_progress() {
  release();
  if (progress_ != 0) {
    const std::size_t bytes = std::exchange(progress_, 0);
    if (handler_ != nullptr) handler_->on_write_progress(bytes);
  }
  if (!is(kClosed)) complete_writes();
  if (is(kReportWritable)) {
    clear(kReportWritable);
    if (handler_ != nullptr && !is(kAborting | kUnwritable)) handler_->on_writable();
  }
}

void StreamCore::release() {
  if (nothing_to_release()) return;
  Chain gone = std::move(aside_->released);
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
  if (is(kWriteClosedReported)) return;
  set(kWriteClosedReported);
  if (handler_ != nullptr) handler_->on_write_closed(broken_);
}

// --- the end
// ---------------------------------------------------------------------------------------------------------

void StreamCore::finish(std::error_code error, bool with_reset) {
  set(kEnding);
  end_error_ = error;
  if (with_reset) set(kEndWithReset);
  deadline_.reset();
  if (connector_ != nullptr) std::exchange(connector_, nullptr)->cancel();
  if (socket_) cancel_operations();
  close_if_reaped();
}

void StreamCore::close_if_reaped() {
  if (is(kClosed) || !is(kEnding) || operations_ != 0) return;
  report_progress();
  const std::error_code cancelled = make_error_code(errc::cancelled);
  if (is(kBroken) && broken_ == end_error_ && !is(kAborting)) {
    tell_break();
  } else {
    fail_writes(is(kAborting) ? cancelled : end_error_);
  }
  if (aside_ != nullptr) {
    aside_->received.complete_refused();
    aside_->received.fail_memory(is(kAborting) || !end_error_ ? cancelled : end_error_);
  }
  // Of a completion, or a release: refused, and over before on_closed.
  if (!writes_.empty() || !nothing_to_release() || (aside_ != nullptr && aside_->received.memory_waits())) {
    mark_dirty();
    return;
  }
  if (socket_) {
    forget_descriptor();
    transport().sockets().before_close(descriptor(), is(kEndWithReset));
    socket_.close();
  }
  if (aside_ != nullptr) aside_->received.drop_held();
  set(kClosed);
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
  if (is(kClosed | kEnding)) return;
  if (!is(kConnected | kClosing)) {  // neither
    fail_to_open(make_error_code(errc::timed_out));
  } else if (is(kShutdownDone)) {
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
