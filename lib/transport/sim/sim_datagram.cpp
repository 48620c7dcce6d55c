// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/sim/sim_datagram.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/transport/sim/sim_kernel.hpp"
#include "lib/transport/sim/sim_machine.hpp"

namespace linkspan {
namespace {

// What a message counts besides its bytes, so that empty ones fill a queue as well.
constexpr std::size_t kMessageCost = 512;
// As on Linux, where net.unix.max_dgram_qlen is 10: that many, and one more.
constexpr std::size_t kUnixMessages = 11;
constexpr std::size_t kUnixOverhead = 32;
// What fits into an IP packet.
constexpr std::size_t kMostBytesIpv4 = 65'507;
constexpr std::size_t kMostBytesIpv6 = 65'527;
// A message that is late is so by at most this many latencies more.
constexpr int kLateLatencies = 4;

std::size_t cost_of(const SimMessage& message) noexcept {
  return message.bytes.size() + kMessageCost;
}

Endpoint address_of(const msghdr& header) noexcept {
  if (header.msg_name == nullptr) return {};
  return {static_cast<const sockaddr*>(header.msg_name), header.msg_namelen};
}

std::vector<std::byte> bytes_of(const msghdr& header) {
  std::vector<std::byte> bytes;
  for (const iovec& vector : std::span(header.msg_iov, header.msg_iovlen)) {
    const auto* from = static_cast<const std::byte*>(vector.iov_base);
    bytes.insert(bytes.end(), from, from + vector.iov_len);
  }
  return bytes;
}

// As recvmsg does.
std::size_t fill(msghdr& header, const SimMessage& message) {
  std::size_t size = 0;
  for (const iovec& vector : std::span(header.msg_iov, header.msg_iovlen)) {
    const std::size_t part = std::min(vector.iov_len, message.bytes.size() - size);
    if (part == 0) continue;
    std::memcpy(vector.iov_base, message.bytes.data() + size, part);
    size += part;
  }
  if (header.msg_name != nullptr) {
    const std::size_t room = header.msg_namelen;
    std::memcpy(header.msg_name, message.from.address(), std::min(room, message.from.address_size()));
    header.msg_namelen = static_cast<socklen_t>(message.from.address_size());
  }
  header.msg_controllen = 0;
  header.msg_flags = size < message.bytes.size() ? MSG_TRUNC : 0;
  return size;
}

}  // namespace

SimDatagram::SimDatagram(SimMachine& machine, int number, int family)
    : SimSocket(machine, Type::datagram, number, family) {}

// --- connecting

int SimDatagram::connect(const Endpoint& peer) {
  if (peer.family() != family()) return is_unix() ? -EINVAL : -EAFNOSUPPORT;
  kernel().note(SimEvent::connect, number(), peer.port());
  if (is_unix()) return connect_unix(peer);
  const Endpoint to = SimMachine::destination(peer);
  if (machine().route(to) == nullptr) return -ENETUNREACH;
  const Endpoint source = machine().source_for(*this, to);
  if (source.address_size() == 0) return -EADDRNOTAVAIL;
  set_local(source, true);
  remote_ = to;
  return 0;
}

int SimDatagram::connect_unix(const Endpoint& peer) {
  int error = 0;
  auto* const to = static_cast<SimDatagram*>(machine().socket_at(peer.unix_path(), Type::datagram, error));
  if (to == nullptr) return -error;
  if (!to->takes_from(*this)) return -EPERM;
  disconnect();
  remote_ = peer;
  peer_ = to->number();
  return 0;
}

// What came over a connection goes with it, as on Linux.
void SimDatagram::disconnect() noexcept {
  if (peer_ == 0) return;
  peer_ = 0;
  remote_ = Endpoint();
  for (const SimMessage& message : std::exchange(received_, {})) release(kernel(), message);
  received_bytes_ = 0;
}

// --- sending

int SimDatagram::send(std::span<MessageHeader> messages) {
  int sent = 0;
  for (MessageHeader& message : messages) {
    const int result = send_one(message.msg_hdr);
    if (result < 0) return sent != 0 ? sent : result;
    message.msg_len = static_cast<unsigned>(result);
    ++sent;
  }
  return sent;
}

int SimDatagram::send_one(const msghdr& header) {
  if (error_ != 0) return -take_error();
  const Endpoint to = address_of(header);
  const bool addressed = to.address_size() != 0;
  if (!addressed && !connected()) return is_unix() ? -ENOTCONN : -EDESTADDRREQ;
  SimMessage message{bytes_of(header), {}, addressed ? to : remote_, number()};
  const auto size = static_cast<int>(message.bytes.size());
  const int error = is_unix() ? send_unix(std::move(message), addressed) : send_udp(std::move(message));
  return error == 0 ? size : -error;
}

int SimDatagram::send_udp(SimMessage&& message) {
  if (message.to.family() != family()) return EAFNOSUPPORT;
  if (message.to.port() == 0) return EINVAL;
  if (message.bytes.size() > (family() == AF_INET6 ? kMostBytesIpv6 : kMostBytesIpv4)) return EMSGSIZE;
  if (!has_send_room()) return EAGAIN;
  message.to = SimMachine::destination(message.to);
  SimMachine* const target = machine().route(message.to);
  if (target == nullptr) return ENETUNREACH;
  message.from = machine().source_for(*this, message.to);
  if (message.from.address_size() == 0) return ENETUNREACH;
  if (target != &machine() && SimMachine::is_loopback(message.from)) return EINVAL;
  kernel().note(SimEvent::datagram_send, number(), message.bytes.size());
  launch(*target, std::move(message));
  return 0;
}

int SimDatagram::send_unix(SimMessage&& message, bool addressed) {
  if (message.to.family() != family() || message.to.unix_path().empty()) return EINVAL;
  if (message.bytes.size() + kUnixOverhead > send_capacity_) return EMSGSIZE;
  if (!has_send_room()) return EAGAIN;
  int error = ECONNREFUSED;
  SimDatagram* to = nullptr;
  if (addressed) {
    to = static_cast<SimDatagram*>(machine().socket_at(message.to.unix_path(), Type::datagram, error));
  } else {
    to = kernel().find_datagram(peer_);
    if (to == nullptr) disconnect();
  }
  if (to == nullptr) return error;
  if (!to->takes_from(*this)) return EPERM;
  if (to->is_full_for(*this)) return EAGAIN;
  kernel().note(SimEvent::datagram_send, number(), message.bytes.size());
  if (!local().unix_path().empty()) message.from = local();
  charge(cost_of(message));
  to->take_in(std::move(message));
  return 0;
}

bool SimDatagram::takes_from(const SimDatagram& other) const noexcept {
  return peer_ == 0 || peer_ == other.number();
}

bool SimDatagram::is_full_for(const SimDatagram& other) const noexcept {
  return &other != this && peer_ != other.number() && received_.size() >= kUnixMessages;
}

void SimDatagram::release(std::size_t bytes) {
  unsent_bytes_ -= bytes;
  touch();
}

// Of a unix message that is gone: its sender has room again.
void SimDatagram::release(SimKernel& kernel, const SimMessage& message) {
  SimDatagram* const sender = kernel.find_datagram(message.sender);
  if (sender != nullptr && sender->is_unix()) sender->release(cost_of(message));
}

// --- on the way

void SimDatagram::launch(SimMachine& target, SimMessage&& message) {
  SimKernel& all = kernel();
  link_free_ = std::max(link_free_, all.now());
  if (const std::uint64_t rate = all.options().bytes_per_second; rate != 0) {
    const std::size_t cost = cost_of(message);
    link_free_ += Duration(static_cast<Duration::rep>(message.bytes.size() * 1'000'000'000 / rate));
    charge(cost);
    all.after(link_free_ - all.now(), [&all, number = number(), cost] {
      if (SimDatagram* socket = all.find_datagram(number)) socket->release(cost);
    });
  }
  const SimDatagramFaults& faults = all.datagram_faults(machine(), target);
  const int copies = all.chance(faults.repeated) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    if (all.chance(faults.lost)) {
      all.note(SimEvent::datagram_lost, number(), 0);
      continue;
    }
    TimePoint arrives = link_free_ + all.latency();
    if (all.chance(faults.late)) {
      for (int more = 0; more < kLateLatencies; ++more) arrives += all.latency();
    } else {
      arrives = last_arrival_ = std::max(last_arrival_, arrives);
    }
    all.after(arrives - all.now(), [&from = machine(), &target, travels = message]() mutable {
      arrive(from, target, std::move(travels));
    });
  }
}

void SimDatagram::arrive(SimMachine& from, SimMachine& at, SimMessage&& message) {
  SimKernel& all = at.kernel();
  if (all.separated(from, at)) {
    all.note(SimEvent::datagram_lost, message.sender, 1);
  } else if (SimDatagram* to = at.udp_socket(message.to, message.from)) {
    to->take_in(std::move(message));
  } else if (SimDatagram* sender = all.find_datagram(message.sender)) {
    sender->answer_refusal(at, message.to);
  }
}

void SimDatagram::answer_refusal(SimMachine& from, const Endpoint& to) {
  SimKernel& all = kernel();
  if (all.chance(all.datagram_faults(machine(), from).lost)) return;
  last_refusal_ = std::max(last_refusal_, all.now() + all.latency());
  all.after(last_refusal_ - all.now(), [&all, &from, number = number(), to] {
    SimDatagram* sender = all.find_datagram(number);
    if (sender != nullptr && !all.separated(from, sender->machine())) sender->take_refusal_in(to);
  });
}

void SimDatagram::take_refusal_in(const Endpoint& to) {
  kernel().note(SimEvent::datagram_refused, number(), to.port());
  error_ = ECONNREFUSED;
  if (received_bytes_ < receive_capacity_) {
    received_bytes_ += kMessageCost;
    refusals_.push_back(to);
  }
  touch();
}

// An empty queue takes any message.
void SimDatagram::take_in(SimMessage&& message) {
  if (!is_unix() && received_bytes_ >= receive_capacity_) {
    kernel().note(SimEvent::datagram_lost, number(), 2);
    return;
  }
  kernel().note(SimEvent::datagram_arrive, number(), message.bytes.size());
  received_bytes_ += cost_of(message);
  received_.push_back(std::move(message));
  touch();
}

// --- receiving

int SimDatagram::receive(std::span<MessageHeader> messages) {
  if (error_ != 0) return -take_error();
  const bool was_full = received_.size() >= kUnixMessages;
  int count = 0;
  for (MessageHeader& header : messages) {
    if (received_.empty()) break;
    const SimMessage message = std::move(received_.front());
    received_.pop_front();
    received_bytes_ -= cost_of(message);
    header.msg_len = static_cast<unsigned>(fill(header.msg_hdr, message));
    kernel().note(SimEvent::datagram_receive, number(), message.bytes.size());
    if (is_unix()) release(kernel(), message);
    ++count;
  }
  if (is_unix() && was_full) machine().touch_senders_to(number());
  return count != 0 ? count : -EAGAIN;
}

std::optional<Refusal> SimDatagram::take_refusal() {
  if (refusals_.empty()) return std::nullopt;
  const Refusal refusal{ECONNREFUSED, refusals_.front()};
  refusals_.pop_front();
  received_bytes_ -= kMessageCost;
  error_ = refusals_.empty() ? 0 : ECONNREFUSED;
  return refusal;
}

// --- the end, and watching

void SimDatagram::close() {
  SimMachine& host = machine();
  const int closed = number();
  kernel().note(SimEvent::close, closed, received_.size());
  if (is_unix()) {
    for (const SimMessage& message : std::exchange(received_, {})) release(kernel(), message);
  }
  kernel().erase(*this);
  host.touch_senders_to(closed);
}

SimSocket::Ready SimDatagram::ready() const noexcept {
  bool room = unsent_bytes_ * 2 < send_capacity_;
  if (is_unix()) {
    room = unsent_bytes_ * 4 <= send_capacity_;
    const SimDatagram* const to = kernel().find_datagram(peer_);
    if (to != nullptr && to->is_full_for(*this)) room = false;
  }
  return {!received_.empty(), room, error_ != 0 || !refusals_.empty(), false};
}

}  // namespace linkspan
