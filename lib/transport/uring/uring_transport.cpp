// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/uring/uring_transport.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lib/transport/uring/uring_attempt.hpp"
#include "lib/transport/uring/uring_datagram.hpp"
#include "lib/transport/uring/uring_listener.hpp"
#include "lib/transport/uring/uring_stream.hpp"
#include "linkspan/base/log.hpp"

namespace linkspan {
namespace {

// Kept for the next gathered sends, 2 KiB each; more of them are in use only while many peers do not read.
constexpr std::size_t kSendVectorsKept = 64;

// Sockets that leave the bulk ring in one tick because it is idle; each needs a cancel and a new receive.
constexpr std::size_t kResetsPerTick = 64;

Result<BufferRings> make_buffer_rings(Ring& ring, BlockPool& pool, const UringOptions& options) {
  unsigned small = BufferRing::affordable_slots(pool, ReceiveClass::small, options.small_buffers);
  const unsigned bulk = BufferRing::affordable_slots(pool, ReceiveClass::bulk, options.bulk_buffers);
  if (small == 0 && bulk == 0) small = 1;  // however little there is
  BufferRings rings;
  if (bulk != 0) {
    Result<std::unique_ptr<BufferRing>> made = BufferRing::create(ring, pool, ReceiveClass::bulk, bulk);
    if (!made) return made.error();
    rings.bulk = std::move(made).value();
  }
  if (small != 0) {
    Result<std::unique_ptr<BufferRing>> made = BufferRing::create(ring, pool, ReceiveClass::small, small);
    if (made) {
      rings.small = std::move(made).value();
    } else if (rings.bulk == nullptr) {
      return made.error();
    } else {
      log(LogLevel::info, "transport",
          "io_uring has one buffer ring for all streams: " + made.error().message());
    }
  }
  return rings;
}

}  // namespace

UringTransport::UringTransport(EventLoop& loop, Socket wake_up, std::unique_ptr<Ring> ring,
                               BufferRings buffers, const UringOptions& options)
    : TransportCore(loop),
      options_(options),
      wake_up_(std::move(wake_up)),
      buffers_(std::move(buffers)),
      bulk_idle_(loop, [this] { look_after_bulk(); }),
      ring_(std::move(ring)),
      files_(*ring_) {
  send_vectors_.reserve(kSendVectorsKept);
  await_wake_up();
}

UringTransport::~UringTransport() {
  ring_.reset();  // first of all: from here on the kernel touches nothing of ours
  // But for what is on its way to a peer that has not acknowledged it: that memory is never released.
  while (!zero_copy_sends_.empty()) zero_copy_sends_.pop_front().forget_stream();
  delete_all();
}

std::vector<std::string> UringTransport::capabilities() const {
  std::vector<std::string> names{"buffer_ring"};
  const auto add_if = [&names](bool active, const char* name) {
    if (active) names.emplace_back(name);
  };
  add_if(has_receive_classes(), "receive_classes");
  add_if(files_.knows(FileCall::Kind::read), "files");
  add_if(options_.multishot_accept, "multishot_accept");
  add_if(options_.multishot_receive, "multishot_receive");
  add_if(options_.zero_copy_send, "zero_copy_send");
  add_if(ring_->registered(), "registered_ring");
  add_if((ring_->setup_flags() & IORING_SETUP_COOP_TASKRUN) != 0, "coop_taskrun");
  add_if((ring_->setup_flags() & IORING_SETUP_SINGLE_ISSUER) != 0, "single_issuer");
  add_if((ring_->setup_flags() & IORING_SETUP_DEFER_TASKRUN) != 0, "defer_taskrun");
  add_datagram_capabilities(names);
  return names;
}

void UringTransport::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_up_.descriptor(), &one, sizeof(one)));
  ring_->interrupt_wait();
}

void UringTransport::await_wake_up() {
  io_uring_sqe& entry = ring_->next_entry();
  io_uring_prep_read(&entry, wake_up_.descriptor(), &wake_up_value_, sizeof(wake_up_value_), 0);
  entry.user_data = key(0);
}

void UringTransport::on_completion(unsigned, int, unsigned) {
  await_wake_up();
}

bool UringTransport::wait(Duration timeout) {
  ring_->wait(timeout);
  return ring_->dispatch(options_.completions_per_poll) != 0;
}

void UringTransport::receive_armed(BulkUser& user, const BufferRing& buffers) noexcept {
  if (!goes_idle(buffers)) return;
  bulk_users_.push_back(user);
  if (!bulk_idle_.active()) bulk_idle_.start(options_.bulk_idle);
}

void UringTransport::look_after_bulk() noexcept {
  if (!buffers_.bulk->was_used()) {
    if (bulk_users_.empty()) {
      buffers_.bulk->withdraw();
      return;
    }
    BulkUser* user = bulk_users_.first();
    for (std::size_t i = 0; i < kResetsPerTick && user != nullptr; ++i) {
      user->leave_bulk_ring();
      user = bulk_users_.next(*user);
    }
  }
  bulk_idle_.start(options_.bulk_idle);
}

void UringTransport::memory_returned() {
  if (buffers_.small != nullptr) buffers_.small->memory_returned();
  if (buffers_.bulk != nullptr) buffers_.bulk->memory_returned();
}

std::unique_ptr<StreamCore> UringTransport::make_stream(StreamSetup setup) {
  return std::make_unique<UringStream>(*this, std::move(setup));
}

std::unique_ptr<ConnectAttempt> UringTransport::make_attempt(AttemptSetup setup) {
  return std::make_unique<UringAttempt>(*this, std::move(setup));
}

std::unique_ptr<ListenerCore> UringTransport::make_listener(Socket socket, ListenerHandler& handler) {
  return std::make_unique<UringListener>(*this, std::move(socket), handler);
}

std::unique_ptr<DatagramCore> UringTransport::make_datagram(DatagramSetup setup) {
  // Small blocks have no room for messages that were coalesced.
  if (buffers_.bulk == nullptr) stop_coalescing(setup.ready);
  return std::make_unique<UringDatagram>(*this, std::move(setup));
}

std::unique_ptr<SendVector> UringTransport::take_send_vector() {
  if (send_vectors_.empty()) return std::make_unique<SendVector>();
  std::unique_ptr<SendVector> vector = std::move(send_vectors_.back());
  send_vectors_.pop_back();
  return vector;
}

void UringTransport::give_back(std::unique_ptr<SendVector> vector) noexcept {
  if (send_vectors_.size() < send_vectors_.capacity()) send_vectors_.push_back(std::move(vector));
}

ZeroCopySend& UringTransport::send_zero_copy(UringStream& stream, std::unique_ptr<SendVector> vector,
                                             Chain&& held) {
  auto* const send = new ZeroCopySend(*this, stream, std::move(vector), std::move(held));
  zero_copy_sends_.push_back(*send);
  send->prepare(ring_->next_entry(), stream.descriptor(), usage_reports_);
  return *send;
}

void UringTransport::end_zero_copy(ZeroCopySend& send) noexcept {
  static_cast<ListNode<InKernelTag>&>(send).unlink();
  delete &send;
}

void UringTransport::count_zero_copy(bool copied) noexcept {
  loop().counters().zero_copy_sends.add(1);
  if (copied) loop().counters().zero_copy_copied.add(1);
}

Result<std::unique_ptr<Engine>> make_uring_transport(EventLoop& loop) {
  return make_uring_transport(loop, UringOptions());
}

Result<std::unique_ptr<Engine>> make_uring_transport(EventLoop& loop, const UringOptions& options) {
  Result<std::unique_ptr<Ring>> ring = Ring::create(options, loop.counters().system_calls);
  if (!ring) return ring.error();
  Result<BufferRings> buffers = make_buffer_rings(*ring.value(), loop.pool(), options);
  if (!buffers) return buffers.error();
  // A blocking one: io_uring reads a non-blocking one only when there is something to read.
  Socket wake_up(::eventfd(0, EFD_CLOEXEC));
  if (!wake_up) return Error(system_error_code(errno), "eventfd");
  const Ring::Multishot known = ring.value()->probe_multishot();
  UringOptions in_use = options;
  in_use.multishot_accept = options.multishot_accept && known.accept;
  in_use.multishot_receive = options.multishot_receive && known.receive;
  in_use.zero_copy_send = options.zero_copy_send && ring.value()->knows(IORING_OP_SENDMSG_ZC);
  return std::unique_ptr<Engine>(std::make_unique<UringTransport>(
      loop, std::move(wake_up), std::move(ring).value(), std::move(buffers).value(), in_use));
}

}  // namespace linkspan
