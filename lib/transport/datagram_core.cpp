// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/datagram_core.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "lib/transport/socket_system.hpp"
#include "lib/transport/transport_core.hpp"
#include "linkspan/base/assert.hpp"

namespace linkspan {
namespace {

// A message of more slices is copied into one: the system takes a bounded number.
constexpr std::size_t kSlicesPerMessage = 64;
// One call, on the stack: 7 KiB.
constexpr std::size_t kSendsPerCall = 32;
constexpr std::size_t kSlicesPerCall = 256;
// One tick of one socket, so that others get their turn.
constexpr std::size_t kCallsPerTick = 8;
constexpr std::size_t kSingleCallsPerTick = 64;
constexpr std::size_t kRefusalsPerTick = 64;

// What the kernel takes in one segmented send.
constexpr std::size_t kSegments = 64;
constexpr std::size_t kSegmentedBytes = 65'507;
// Every network carries messages of this size whole: when these are refused, it is not for their size.
constexpr std::size_t kSafeBytes = 1'200;

// How long to wait for what no event tells of: memory, the queue of a network device.
constexpr Duration kRetryDelay = std::chrono::milliseconds(1);

// Memory for this many received messages stays for the next ones.
constexpr std::size_t kReceivedKept = 16;

}  // namespace

// The head of the queue, as one system call takes it.
struct DatagramCore::SendBatch {
  std::array<MessageHeader, kSendsPerCall> headers;
  std::array<std::size_t, kSendsPerCall> messages;  // of each header
  std::array<iovec, kSlicesPerCall> vectors;
  alignas(cmsghdr) std::array<SegmentControl, kSendsPerCall> controls;
  std::size_t count = 0;
};

DatagramCore::DatagramCore(TransportCore& transport, DatagramSetup setup)
    : SocketCore(transport),
      handler_(&setup.handler),
      options_(setup.options),
      socket_(std::move(setup.ready.socket)),
      family_(setup.ready.family),
      coalesces_(setup.ready.coalesces),
      path_(std::move(setup.ready.path)),
      segment_limit_(setup.ready.segments ? kSegmentedBytes : 0),
      send_timer_(transport.loop(), [this] { send_timer_fired(); }),
      deadline_(transport.loop(), [this] { finish(make_error_code(errc::timed_out)); }) {
  mark_dirty();
}

DatagramCore::~DatagramCore() {
  if (handle_ != nullptr) handle_->core_ = nullptr;
}

void DatagramCore::mark_dirty() noexcept {
  transport().add_dirty(*this);
}

// --- the owner's calls
// ---------------------------------------------------------------------------------------------

void DatagramCore::start_read() {
  LINKSPAN_ASSERT(pauses_ != 0, "each start_read answers one pause; a socket starts paused");
  if (--pauses_ == 0) mark_dirty();
}

void DatagramCore::pause_read() {
  if (++pauses_ == 1) mark_dirty();
}

void DatagramCore::send(const Endpoint& to, Chain&& data, DatagramCompletion completion) {
  std::error_code refused;
  if (aborting_ || ending_) {
    refused = make_error_code(errc::cancelled);
  } else if (closing_) {
    refused = make_error_code(errc::shut_down);
  } else if (!queue_.empty() && (full() || data.size() > options_.queue_bytes - queued_bytes_)) {
    refused = make_error_code(errc::limit_exceeded);
    writable_ = false;
  }
  // What may throw comes first.
  finished_.reserve_one();
  mark_dirty();
  if (refused) {  // later: a borrow's completion must not run inside this call
    finished_.push_back({{std::move(data), {}, std::move(completion)}, refused});
    return;
  }
  queue_.reserve_one();
  if (data.slice_count() > kSlicesPerMessage) {
    Slice whole = data.flatten(CopyPlace::write);
    finished_.push_back({{std::move(data), {}, nullptr}, {}});
    data.append(std::move(whole));
  }
  queued_bytes_ += data.size();
  queue_.push_back({std::move(data), to, std::move(completion)});
  if (full()) writable_ = false;
}

void DatagramCore::close(Duration deadline) {
  if (closing_ || aborting_) return;
  closing_ = true;
  deadline_.start(deadline);
  mark_dirty();
}

void DatagramCore::abort() noexcept {
  aborting_ = true;
  mark_dirty();
}

void DatagramCore::abandon() noexcept {
  handler_ = nullptr;
  handle_ = nullptr;
  abort();
}

// --- bringing the socket up to date
// --------------------------------------------------------------------------------

void DatagramCore::service() {
  if (closed_) return;
  complete_finished();
  if (ending_) {
    close_if_reaped();
    return;
  }
  if (refusals_left_) static_cast<void>(drain_refusals());
  deliver();
  update_receive(receive_wanted());
  continue_sending();
}

// Decides what can be decided; every path that changes something ends here.
void DatagramCore::settle() {
  if (closed_ || ending_) return;
  if (report_writable_) {
    report_writable_ = false;
    if (writable_ && handler_ != nullptr && !aborting_ && !closing_) handler_->on_writable();
  }
  if (aborting_) {
    finish(make_error_code(errc::aborted));
  } else if (closing_ && queue_.empty()) {
    finish({});
  }
}

// --- sending
// ---------------------------------------------------------------------------------------------------------

void DatagramCore::continue_sending() {
  const std::size_t calls = options_.batched_calls ? kCallsPerTick : kSingleCallsPerTick;
  for (std::size_t call = 0; call < calls && send_wanted(); ++call) {
    SendBatch batch;
    fill(batch);
    transport().loop().counters().system_calls.add(1);
    const int sent = transport().sockets().send_messages(
        descriptor(), std::span(batch.headers).first(batch.count), options_.batched_calls);
    if (sent < 0) {
      on_send_error(errno, batch.messages[0]);
      continue;
    }
    std::size_t messages = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(sent); ++i) messages += batch.messages[i];
    for (; messages != 0; --messages) complete_front({});
  }
  if (send_wanted()) mark_dirty();
  settle();
}

// The messages' memory and addresses stay in the queue.
void DatagramCore::fill(SendBatch& batch) {
  std::size_t first = 0;
  std::size_t slices = 0;
  while (batch.count < kSendsPerCall && first < queue_.size() &&
         queue_[first].data.slice_count() <= kSlicesPerCall - slices) {
    const std::size_t messages = messages_in_one_send(first, kSlicesPerCall - slices);
    msghdr& header = batch.headers[batch.count].msg_hdr;
    header = {};
    Endpoint& to = queue_[first].to;
    if (to.address_size() != 0) {
      header.msg_name = const_cast<sockaddr*>(to.address());
      header.msg_namelen = static_cast<socklen_t>(to.address_size());
    }
    header.msg_iov = batch.vectors.data() + slices;
    if (messages > 1) {
      send_in_segments(header, batch.controls[batch.count], queue_[first].data.size());
    }
    for (const std::size_t end = first + messages; first < end; ++first) {
      slices += queue_[first].data.export_iovec(std::span(batch.vectors).subspan(slices)).count;
    }
    header.msg_iovlen = static_cast<std::size_t>(batch.vectors.data() + slices - header.msg_iov);
    batch.messages[batch.count++] = messages;
  }
}

// Messages of one size to one destination, the last of which may be shorter, go as one.
std::size_t DatagramCore::messages_in_one_send(std::size_t first, std::size_t slices) noexcept {
  const Message& head = queue_[first];
  const std::size_t size = head.data.size();
  if (size == 0 || size > segment_limit_ || first < single_sends_) return 1;
  std::size_t bytes = size;
  slices -= head.data.slice_count();
  std::size_t count = 1;
  for (bool last = false; !last && count < kSegments && first + count < queue_.size(); ++count) {
    const Message& next = queue_[first + count];
    if (next.data.empty() || next.data.size() > size || bytes + next.data.size() > kSegmentedBytes ||
        next.data.slice_count() > slices || !(next.to == head.to)) {
      break;
    }
    bytes += next.data.size();
    slices -= next.data.slice_count();
    last = next.data.size() < size;
  }
  return count;
}

// The first `messages` of the queue, sent as one, were refused.
void DatagramCore::on_send_error(int error, std::size_t messages) {
  switch (error) {
    case EINTR: return;
    case EAGAIN: wait_for_room(); return;
    case ENOBUFS:
    case ENOMEM: retry_later(); return;
    default: break;
  }
  // A refusal of an earlier message ends one call, which has sent nothing then.
  if (drain_refusals() != 0) return;
  if (error == ECONNREFUSED && !is_unix()) {
    if (!kHasRefusalQueue) tell_error(error, {});
    return;
  }
  if (messages == 1) {
    complete_front(system_error_code(error));
    return;
  }
  // One by one, so that each one has its own result. The network's limit is not known; or nothing can be sent
  // in segments, for want of a checksum in hardware.
  single_sends_ = messages;
  const std::size_t size = queue_.front().data.size();
  if (error == EIO || error == EOPNOTSUPP || error == ENOPROTOOPT) {
    segment_limit_ = 0;
  } else if (error == EINVAL || error == EMSGSIZE) {
    segment_limit_ = size > kSafeBytes ? size - 1 : 0;
  }
}

void DatagramCore::wait_for_room() {
  const Endpoint& to = queue_.front().to;
  int descriptor = socket_.descriptor();
  if (!waiting_ && is_unix() && to.address_size() != 0 &&
      transport().sockets().has_send_room(socket_.descriptor())) {
    // A socket that is not connected counts as writable, however full its peers are.
    room_probe_ = transport().sockets().make_room_probe(to);
    descriptor = room_probe_.descriptor();
  }
  if (waiting_ || descriptor < 0 || !wait_writable(descriptor)) {
    retry_later();  // it waits for another peer; or the next try will tell what is wrong
    return;
  }
  waiting_ = true;
  block(options_.send_timeout);
}

void DatagramCore::retry_later() {
  block(kRetryDelay);
}

void DatagramCore::block(Duration at_most) {
  const TimePoint now = transport().loop().now();
  if (blocked_since_ == TimePoint()) blocked_since_ = now;
  blocked_ = true;
  send_timer_.start(std::min(at_most, options_.send_timeout - (now - blocked_since_)));
}

void DatagramCore::send_timer_fired() {
  if (closed_ || ending_ || !blocked_) return;
  blocked_ = false;
  if (transport().loop().now() - blocked_since_ >= options_.send_timeout) {
    const Endpoint to = queue_.front().to;
    for (std::size_t count = queue_.size(); count != 0 && queue_.front().to == to; --count) {
      complete_front(make_error_code(errc::timed_out));
    }
  }
  continue_sending();
}

void DatagramCore::report_writable() {
  waiting_ = false;
  room_probe_ = Socket();
  if (closed_ || ending_) return;
  blocked_ = false;
  send_timer_.cancel();
  continue_sending();
}

// Memory goes first: its owner may want it back at once.
void DatagramCore::complete(Message&& message, std::error_code error) {
  message.data.clear();
  if (message.completion) message.completion(error);
}

void DatagramCore::complete_front(std::error_code error) {
  Message message = queue_.pop_front();
  const std::size_t size = message.data.size();
  queued_bytes_ -= size;
  blocked_since_ = TimePoint();
  if (single_sends_ != 0) --single_sends_;
  if (!error) transport().loop().counters().bytes_sent.add(size);
  if (!writable_ && queue_.size() <= options_.queue_messages / 2 &&
      queued_bytes_ <= options_.queue_bytes / 2) {
    writable_ = true;
    report_writable_ = true;
  }
  complete(std::move(message), error);
}

void DatagramCore::complete_finished() {
  // Only those that are here now: a completion that sends again must not keep the loop here for ever.
  for (std::size_t count = finished_.size(); count != 0; --count) {
    Finished finished = finished_.pop_front();
    complete(std::move(finished.message), finished.error);
  }
}

// --- receiving
// -------------------------------------------------------------------------------------------------------

void DatagramCore::report_received(Slice&& data, const Endpoint& from, std::size_t segment_bytes,
                                   bool truncated) {
  transport().loop().counters().bytes_received.add(data.size());
  if (closed_ || ending_ || aborting_ || closing_ || handler_ == nullptr) return;
  const std::size_t limit = options_.max_receive_bytes;
  if (segment_bytes == 0) segment_bytes = data.size();
  while (data.size() > segment_bytes) {
    Slice message = data.split_front(segment_bytes);
    const bool cut = message.size() > limit;
    if (cut) message.drop_back(message.size() - limit);
    received_.push_back({std::move(message), from, cut});
  }
  const bool cut = data.size() > limit;
  if (cut) data.drop_back(data.size() - limit);
  received_.push_back({std::move(data), from, cut || truncated});
}

void DatagramCore::deliver() {
  if (received_.empty() || !reading() || handler_ == nullptr) return;
  std::vector<Datagram> messages = std::exchange(received_, {});
  std::size_t delivered = 0;
  while (delivered < messages.size() && reading() && handler_ != nullptr) {
    const std::span<Datagram> rest = std::span(messages).subspan(delivered);
    const std::span<Datagram> batch = rest.first(std::min(rest.size(), options_.receive_batch));
    delivered += batch.size();
    handler_->on_receive(batch);
  }
  if (delivered < messages.size()) {  // paused meanwhile
    messages.erase(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(delivered));
  } else {
    messages.clear();
    if (messages.capacity() > kReceivedKept) return;
  }
  received_ = std::move(messages);
}

void DatagramCore::report_no_buffer() noexcept {
  transport().add_starved(*this);
}

Slice take_message(Block& block, std::size_t offset, std::size_t size, std::size_t least_bytes,
                   BlockAllocator& allocator) noexcept {
  if (size == 0) return {};
  if (size < least_bytes) {
    if (Block copy = allocator.allocate(size)) {
      copy_bytes(copy.data(), block.data() + offset, size, CopyPlace::receive);
      return std::move(copy).freeze_all(size);
    }
  }
  Slice message = block.freeze(offset + size);
  message.drop_front(offset);
  return message;
}

// --- errors
// ----------------------------------------------------------------------------------------------------------

void DatagramCore::tell_error(int error, const Endpoint& to) {
  if (handler_ != nullptr && !aborting_ && !ending_) handler_->on_error(system_error_code(error), to);
}

std::size_t DatagramCore::drain_refusals() {
  refusals_left_ = false;
  if (is_unix()) return 0;
  std::size_t refusals = 0;
  for (std::size_t call = 0; call < kRefusalsPerTick; ++call) {
    transport().loop().counters().system_calls.add(1);
    const std::optional<Refusal> refusal = transport().sockets().take_refusal(descriptor());
    if (!refusal) return refusals;
    if (refusal->error == 0) continue;
    ++refusals;
    tell_error(refusal->error, refusal->to);
  }
  refusals_left_ = true;
  mark_dirty();
  return refusals;
}

void DatagramCore::report_error(int error) {
  if (closed_ || ending_) return;
  if (drain_refusals() == 0) {
    if (error == 0) error = transport().sockets().take_error(descriptor());
    if (error != 0 && (is_unix() || !kHasRefusalQueue)) tell_error(error, {});
  }
  settle();
}

// --- the end
// ---------------------------------------------------------------------------------------------------------

void DatagramCore::operation_finished() {
  LINKSPAN_ASSERT(operations_ != 0, "each operation finishes once");
  if (--operations_ == 0 && ending_) mark_dirty();
}

void DatagramCore::finish(std::error_code error) {
  ending_ = true;
  end_error_ = error;
  send_timer_.cancel();
  deadline_.cancel();
  cancel_operations();
  close_if_reaped();
}

void DatagramCore::close_if_reaped() {
  if (closed_ || !ending_ || operations_ != 0) return;
  const std::error_code error = aborting_ ? make_error_code(errc::cancelled) : end_error_;
  while (!queue_.empty()) complete_front(error);
  complete_finished();
  if (!finished_.empty()) {  // a completion sent again; it was refused, and completes before on_closed
    mark_dirty();
    return;
  }
  if (!path_.empty()) transport().sockets().remove_path(path_);
  socket_ = Socket();
  room_probe_ = Socket();
  received_.clear();
  closed_ = true;
  transport().bury(*this);
  if (handle_ != nullptr) std::exchange(handle_, nullptr)->core_ = nullptr;
  if (DatagramHandler* handler = std::exchange(handler_, nullptr)) handler->on_closed(end_error_);
}

// --- DatagramSocket: the handle
// --------------------------------------------------------------------------------------

DatagramHandler::~DatagramHandler() = default;
void DatagramHandler::on_error(std::error_code, const Endpoint&) {}
void DatagramHandler::on_writable() {}

DatagramSocket::DatagramSocket(DatagramCore* core) noexcept : core_(core) {
  core_->handle_ = this;
}

DatagramSocket::DatagramSocket(DatagramSocket&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {
  if (core_ != nullptr) core_->handle_ = this;
}

DatagramSocket& DatagramSocket::operator=(DatagramSocket&& other) noexcept {
  if (this == &other) return *this;
  if (core_ != nullptr) core_->abandon();
  core_ = std::exchange(other.core_, nullptr);
  if (core_ != nullptr) core_->handle_ = this;
  return *this;
}

DatagramSocket::~DatagramSocket() {
  if (core_ != nullptr) core_->abandon();
}

namespace {

DatagramCore& opened(DatagramCore* core) {
  LINKSPAN_ASSERT(core != nullptr, "a datagram socket is not used in or after on_closed");
  LINKSPAN_ASSERT(core->transport().loop().in_loop_thread(),
                  "a datagram socket is used on its loop's thread");
  return *core;
}

}  // namespace

void DatagramSocket::start_read() {
  opened(core_).start_read();
}
void DatagramSocket::pause_read() {
  opened(core_).pause_read();
}
void DatagramSocket::send(const Endpoint& to, Chain&& message, DatagramCompletion completion) {
  opened(core_).send(to, std::move(message), std::move(completion));
}
void DatagramSocket::send(Chain&& message, DatagramCompletion completion) {
  opened(core_).send(Endpoint(), std::move(message), std::move(completion));
}
void DatagramSocket::close(Duration deadline) {
  opened(core_).close(deadline);
}
void DatagramSocket::abort() {
  opened(core_).abort();
}
std::size_t DatagramSocket::queued_messages() const noexcept {
  return opened(core_).queued_messages();
}
std::size_t DatagramSocket::queued_bytes() const noexcept {
  return opened(core_).queued_bytes();
}
bool DatagramSocket::writable() const noexcept {
  return opened(core_).writable();
}
Endpoint DatagramSocket::local_endpoint() const {
  const DatagramCore& core = opened(core_);
  return core.transport().sockets().local_endpoint(core.descriptor());
}
Endpoint DatagramSocket::peer_endpoint() const {
  const DatagramCore& core = opened(core_);
  return core.transport().sockets().peer_endpoint(core.descriptor());
}
EventLoop& DatagramSocket::loop() const noexcept {
  return opened(core_).transport().loop();
}

}  // namespace linkspan
