// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/readiness_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/transport/readiness_transport.hpp"

namespace linkspan {
namespace {

// One tick of one stream, so that others get their turn.
constexpr std::size_t kSendsPerTick = 4;
constexpr std::size_t kReceivesPerTick = 8;
// recv takes at most 2^31 - 1 bytes, rounded down to pages on Linux.
constexpr std::size_t kReceiveBytes = std::size_t{1} << 30;
// A receive that brings this much is followed by another one at once.
constexpr std::size_t kMuchBytes = 64 * 1024;
constexpr std::size_t kAcceptsPerTick = 64;

}  // namespace

ReadinessStream::ReadinessStream(ReadinessTransport& transport, StreamSetup setup)
    : StreamCore(transport, std::move(setup)), watch_(transport.reactor(), *this) {}

ReadinessTransport& ReadinessStream::readiness_transport() const noexcept {
  return static_cast<ReadinessTransport&>(transport());
}

void ReadinessStream::update_receive(bool wanted) {
  waits_to_read_ = wanted;
  update_watch();
}

void ReadinessStream::update_watch() {
  if (ending()) return;
  const int error = watch_.want(descriptor(), waits_to_read_, waits_to_write_);
  if (error != 0) report_broken(error);
}

void ReadinessStream::on_ready(Readiness ready) {
  if (ready.error) {
    on_error();
  } else {
    if (ready.readable) on_readable();
    if (ready.writable) on_writable_again();
  }
}

void ReadinessStream::on_readable() {
  // Goes on only while much comes: for small messages, a last receive that finds nothing costs more than it
  // brings; in bulk it costs less than another wait.
  for (std::size_t i = 0; i < kReceivesPerTick && waits_to_read_ && receive_wanted(); ++i) {
    if (!receive_once()) return;
  }
}

// True when there is likely to be more: the block was filled, or much came.
bool ReadinessStream::receive_once() {
  if (const std::span<std::byte> memory = receive_memory(); !memory.empty()) {
    return receive_into_memory(memory);
  }
  const auto [block, receive_class] = readiness_transport().receive_block(sizer_.receive_class());
  if (!block) {
    waits_to_read_ = false;
    update_watch();
    report_no_buffer();
    return false;
  }
  std::vector<Socket> descriptors;
  const std::size_t size =
      receive_descriptors() == 0 ? receive(block.writable()) : receive_message(block.writable(), descriptors);
  if (size == 0) return false;
  const bool filled = size == block.size();
  sizer_.received(size, filled);
  Chain data(take_received(block, size, receive_class, transport().loop().pool()));
  if (descriptors.empty()) {
    report_received(std::move(data));
  } else {
    report_received(std::move(data), std::move(descriptors));
  }
  return filled || size >= kMuchBytes;
}

bool ReadinessStream::receive_into_memory(std::span<std::byte> memory) {
  std::vector<Socket> descriptors;
  memory = memory.first(std::min(memory.size(), kReceiveBytes));
  const std::size_t size =
      receive_descriptors() == 0 ? receive(memory) : receive_message(memory, descriptors);
  if (size == 0) return false;
  report_received_into(size, std::move(descriptors));
  return size == memory.size() || size >= kMuchBytes;
}

// 0: there is nothing to be taken; why was reported.
std::size_t ReadinessStream::receive(std::span<std::byte> memory) {
  transport().loop().counters().system_calls.add(1);
  const ssize_t received = transport().sockets().receive(descriptor(), memory);
  return received > 0 ? static_cast<std::size_t>(received) : report_receive_result(received);
}

std::size_t ReadinessStream::receive_message(std::span<std::byte> memory, std::vector<Socket>& descriptors) {
  transport().loop().counters().system_calls.add(1);
  Result<std::vector<Socket>, std::error_code> taken = std::vector<Socket>();
  const ssize_t received = transport().sockets().receive(descriptor(), memory, receive_descriptors(), taken);
  if (!taken) {
    report_receive_failure(taken.error());
    return 0;
  }
  descriptors = std::move(taken).value();
  return received > 0 ? static_cast<std::size_t>(received) : report_receive_result(received);
}

std::size_t ReadinessStream::report_receive_result(ssize_t received) {
  if (received == 0) {
    report_receive_end();
  } else if (errno != EAGAIN && errno != EINTR) {
    report_receive_error(errno);
  }
  return 0;
}

void ReadinessStream::start_send(SendCall) {
  if (waits_to_write_) return;
  for (std::size_t sends = 0; send_wanted() && sends < kSendsPerTick; ++sends) {
    const SendStep step = send_step();
    if (step == SendStep::blocked) {
      waits_to_write_ = true;
      update_watch();
    }
    if (step != SendStep::sent || waits_to_write_) return;
  }
  if (send_wanted()) mark_dirty();
}

void ReadinessStream::on_writable_again() {
  if (!waits_to_write_ || ending()) return;
  waits_to_write_ = false;
  continue_sending();
  update_watch();
}

void ReadinessStream::on_error() {
  // Taken at once: after data, an end and a reset, recv would report the data and an end only.
  const int error = transport().sockets().take_error(descriptor());
  if (error != 0) report_broken(error);
  if (!ending()) on_readable();
}

ReadinessAttempt::ReadinessAttempt(ReadinessTransport& transport, AttemptSetup setup)
    : ConnectAttempt(transport, std::move(setup)), watch_(transport.reactor(), *this) {}

void ReadinessAttempt::start() {
  const int result = transport().sockets().connect(descriptor(), peer());
  int error = result == 0 ? 0 : errno;  // EAGAIN: a unix listener whose backlog is full
  const bool waits = error == EINPROGRESS || error == EINTR;
  if (waits) error = watch_.want(descriptor(), false, true);
  if (!waits || error != 0) finish(error);
}

void ReadinessAttempt::on_ready(Readiness) {
  finish(transport().sockets().take_error(descriptor()));
}

void ReadinessAttempt::finish(int error) {
  watch_.stop();
  report(error);
}

ReadinessListener::ReadinessListener(ReadinessTransport& transport, Socket socket, ListenerHandler& handler)
    : ListenerCore(transport, std::move(socket), handler), watch_(transport.reactor(), *this) {}

void ReadinessListener::start_accepting() {
  const int error = watch_.want(descriptor(), true, false);
  if (error != 0) static_cast<void>(report_accept_error(error));
}

void ReadinessListener::on_ready(Readiness) {
  for (std::size_t i = 0; i < kAcceptsPerTick && !closed(); ++i) {
    transport().loop().counters().system_calls.add(1);
    if (Socket accepted = transport().sockets().accept(descriptor())) {
      report_accepted(std::move(accepted));
      continue;
    }
    const int error = errno;
    if (!report_accept_error(error) || error == EAGAIN) return;
  }
}

}  // namespace linkspan
