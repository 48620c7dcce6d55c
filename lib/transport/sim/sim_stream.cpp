// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/sim/sim_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "lib/transport/sim/sim_kernel.hpp"
#include "lib/transport/sim/sim_machine.hpp"
#include "lib/transport/sim/sim_reactor.hpp"

namespace linkspan {
namespace {

// A connect that finds no room in the listener's queue asks again after so long.
constexpr Duration kAskAgain = std::chrono::seconds(1);

}  // namespace

SimStream::SimStream(SimMachine& machine, int number, int family)
    : SimSocket(machine, Type::stream, number, family) {}

SimStream* SimStream::peer() const noexcept {
  return kernel().find_stream(peer_);
}

std::size_t SimStream::unread_descriptors() const noexcept {
  std::size_t count = 0;
  for (const Segment& segment : received_) count += segment.descriptors.size();
  return count;
}

// --- setting up

void SimStream::set_options(const SocketOptions& options) noexcept {
  SimSocket::set_options(options);
  if (options.linger) reset_on_close(options.linger->count() == 0);
}

void SimStream::listen(int backlog) noexcept {
  state_ = State::listening;
  backlog_ = backlog;
}

void SimStream::reset_on_close(bool reset) noexcept {
  resets_ = reset && !is_unix();  // as with the kernel's
}

// --- connecting

int SimStream::connect(const Endpoint& peer) {
  if (state_ != State::fresh) return -EISCONN;
  if (peer.family() != family()) return -EAFNOSUPPORT;
  kernel().note(SimEvent::connect, number(), peer.port());
  if (is_unix()) return connect_unix(peer);
  SimMachine* const target = machine().route(peer);
  if (target == nullptr) return -ENETUNREACH;
  const Endpoint source = machine().source_for(*this, peer);
  if (source == Endpoint()) return -EADDRNOTAVAIL;
  set_local(source, true);
  remote_ = peer;
  other_ = target;
  state_ = State::connecting;
  put(Kind::open);
  return -EINPROGRESS;
}

int SimStream::connect_unix(const Endpoint& peer) {
  int error = ECONNREFUSED;
  auto* const listener = static_cast<SimStream*>(machine().socket_at(peer.unix_path(), Type::stream, error));
  if (listener == nullptr || listener->state_ != State::listening) return -error;
  if (listener->waiting_.size() > static_cast<std::size_t>(listener->backlog_)) return -EAGAIN;
  remote_ = peer;
  other_ = &machine();
  state_ = State::connected;
  peer_ = listener->add_waiting(*this).number();
  return 0;
}

// Of a listener: the other end of a connection.
SimStream& SimStream::add_waiting(SimStream& client) {
  SimStream& end = kernel().make_stream(machine(), family());
  end.set_local(is_unix() ? local_ : client.remote_, false);
  end.remote_ = client.local_;
  end.other_ = &client.machine();
  end.peer_ = client.number();
  end.state_ = State::connected;
  end.receive_capacity_ = receive_capacity_;
  end.send_capacity_ = send_capacity_;
  end.resets_ = resets_;
  end.add_descriptor();
  waiting_.push_back(end.number());
  touch();
  return end;
}

int SimStream::accept() noexcept {
  while (!waiting_.empty()) {
    const int number = waiting_.front();
    waiting_.pop_front();
    if (kernel().find(number) != nullptr) return number;
  }
  return 0;
}

// --- data

std::size_t SimStream::window() const noexcept {
  const std::size_t used = received_bytes_ + coming_bytes_;
  return receive_capacity_ > used ? receive_capacity_ - used : 0;
}

std::size_t SimStream::send_room() const noexcept {
  if (is_unix()) {
    const SimStream* to = peer();
    return to == nullptr ? 0 : to->window();
  }
  const std::size_t used = unsent_bytes_ + flying_bytes_;
  return send_capacity_ > used ? send_capacity_ - used : 0;
}

std::size_t SimStream::shortened(std::size_t bytes, double chance) const noexcept {
  if (bytes <= 1 || !kernel().chance(chance)) return bytes;
  return 1 + kernel().below(bytes - 1);
}

ssize_t SimStream::send(std::span<const iovec> vectors, std::vector<Socket>&& descriptors) {
  if (error_ != 0) return -take_error();
  if (state_ == State::fresh || state_ == State::connecting) return -ENOTCONN;
  if (state_ != State::connected || end_wanted_) return -EPIPE;
  if (is_unix() && peer() == nullptr) return -EPIPE;
  std::size_t left = 0;
  for (const iovec& vector : vectors) left += vector.iov_len;
  const std::size_t room = send_room();
  if (room == 0) return -EAGAIN;
  left = shortened(std::min(left, room), kernel().options().short_sends);
  kernel().note(SimEvent::send, number(), left);
  const auto sent = static_cast<ssize_t>(left);

  std::size_t offset = 0;  // in the first of `vectors`
  while (left != 0) {
    Segment segment;
    segment.descriptors = std::move(descriptors);
    descriptors.clear();
    const std::size_t most = std::min(left, kernel().options().segment_bytes);
    segment.bytes.reserve(most);
    while (segment.bytes.size() < most) {
      const iovec& vector = vectors.front();
      const auto* from = static_cast<const std::byte*>(vector.iov_base) + offset;
      const std::size_t size = std::min(vector.iov_len - offset, most - segment.bytes.size());
      segment.bytes.insert(segment.bytes.end(), from, from + size);
      left -= size;
      offset += size;
      if (offset == vector.iov_len) {
        vectors = vectors.subspan(1);
        offset = 0;
      }
    }
    if (is_unix()) {
      peer()->take_in(std::move(segment));
    } else {
      unsent_bytes_ += segment.size();
      unsent_.push_back(std::move(segment));
    }
  }
  transmit();
  return sent;
}

// Of the one that receives.
void SimStream::take_in(Segment&& segment) {
  received_bytes_ += segment.size();
  received_.push_back(std::move(segment));
  touch();
}

ssize_t SimStream::receive(std::span<std::byte> memory, std::vector<Socket>* descriptors) {
  if (received_.empty()) {
    if (error_ != 0) return -take_error();
    if (end_received_ || state_ == State::broken) return 0;
    return state_ == State::connected ? -EAGAIN : -ENOTCONN;
  }
  const std::size_t most =
      shortened(std::min(memory.size(), received_bytes_), kernel().options().short_receives);
  std::size_t size = 0;
  bool with_descriptors = false;
  while (size != most && !received_.empty() && !with_descriptors) {
    Segment& segment = received_.front();
    // As with the kernel's: what comes with descriptors is the last of its message.
    with_descriptors = !segment.descriptors.empty();
    if (descriptors != nullptr && with_descriptors) *descriptors = std::move(segment.descriptors);
    segment.descriptors.clear();
    const std::size_t part = std::min(segment.size(), most - size);
    std::memcpy(memory.data() + size, segment.bytes.data() + segment.begin, part);
    size += part;
    segment.begin += part;
    if (segment.size() == 0) received_.pop_front();
  }
  received_bytes_ -= size;
  kernel().note(SimEvent::receive, number(), size);
  if (SimStream* from = peer()) {
    from->transmit();
    from->touch();
  }
  return static_cast<ssize_t>(size);
}

void SimStream::end_sending() {
  if (state_ != State::connected || end_wanted_) return;
  end_wanted_ = true;
  if (!is_unix()) {
    transmit();
  } else if (SimStream* to = peer()) {
    to->end_received_ = true;
    to->touch();
  }
  touch();
}

// What fits into the peer's window goes on its way.
void SimStream::transmit() {
  if (state_ != State::connected || is_unix()) return;
  while (!unsent_.empty()) {
    SimStream* to = peer();
    const std::size_t room = to == nullptr ? std::numeric_limits<std::size_t>::max() : to->window();
    if (room == 0) break;
    Segment& next = unsent_.front();
    Segment segment;
    if (next.size() <= room) {
      segment = std::move(next);
      unsent_.pop_front();
    } else {
      const auto begin = next.bytes.begin() + static_cast<std::ptrdiff_t>(next.begin);
      segment.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(room));
      next.begin += room;
    }
    const std::size_t size = segment.size();
    unsent_bytes_ -= size;
    flying_bytes_ += size;
    if (to != nullptr) to->coming_bytes_ += size;
    put(Kind::data, std::move(segment));
  }
  if (end_wanted_ && !end_sent_ && unsent_.empty()) {
    end_sent_ = true;
    put(Kind::end);
  }
}

// --- the flight: what is on its way, in order. One event is expected at a time, that of its head.

void SimStream::put(Kind kind) {
  put(kind, Segment());
}

void SimStream::put(Kind kind, Segment&& segment) {
  last_arrival_ = std::max(last_arrival_, kernel().now() + kernel().latency());
  if (const std::uint64_t rate = kernel().options().bytes_per_second; rate != 0) {
    last_arrival_ += Duration(static_cast<Duration::rep>(segment.size() * 1'000'000'000 / rate));
  }
  flight_.push_back({kind, std::move(segment), last_arrival_});
  if (flight_.size() == 1 && !stalled_) expect_head();
}

void SimStream::expect_head() {
  const Duration left = std::max(flight_.front().arrives - kernel().now(), Duration::zero());
  kernel().after(left, [&all = kernel(), number = number(), flight = flights_] {
    SimStream* socket = all.find_stream(number);
    if (socket != nullptr && socket->flights_ == flight) socket->head_arrives();
  });
}

void SimStream::head_arrives() {
  if (kernel().separated(machine(), *other_)) {
    stall();
    return;
  }
  Packet packet = std::move(flight_.front());
  flight_.pop_front();
  if (!flight_.empty()) expect_head();
  SimKernel& all = kernel();
  const int number = this->number();
  deliver(std::move(packet));
  if (SimStream* socket = all.find_stream(number)) socket->erase_if_done();
}

void SimStream::stall() {
  stalled_ = true;
  kernel().note(SimEvent::stall, number(), flight_.size());
  kernel().after(kernel().options().give_up, [&all = kernel(), number = number(), flight = ++flights_] {
    SimStream* socket = all.find_stream(number);
    if (socket != nullptr && socket->flights_ == flight) socket->lose(ETIMEDOUT);
  });
}

void SimStream::resume() {
  if (!stalled_ || kernel().separated(machine(), *other_)) return;
  stalled_ = false;
  ++flights_;
  flight_.front().arrives = kernel().now() + kernel().latency();
  last_arrival_ = std::max(last_arrival_, flight_.front().arrives);
  expect_head();
}

// Nothing of it arrives any more.
void SimStream::ground() noexcept {
  ++flights_;
  flight_.clear();
  stalled_ = false;
  flying_bytes_ = 0;
  unsent_.clear();
  unsent_bytes_ = 0;
}

void SimStream::deliver(Packet&& packet) {
  SimStream* const to = peer();
  switch (packet.kind) {
    case Kind::open: deliver_open(); return;
    case Kind::opened:
      if (to == nullptr || to->state_ != State::connecting) return;
      kernel().note(SimEvent::arrive_opened, to->number(), 0);
      to->state_ = State::connected;
      to->touch();
      return;
    case Kind::data: deliver_data(std::move(packet.segment)); return;
    case Kind::end:
      if (to == nullptr || to->state_ != State::connected) return;
      kernel().note(SimEvent::arrive_end, to->number(), 0);
      to->end_received_ = true;
      to->touch();
      return;
    case Kind::reset:
      if (to == nullptr) return;
      kernel().note(SimEvent::arrive_reset, to->number(), 0);
      to->lose(ECONNRESET);
      return;
  }
}

void SimStream::deliver_open() {
  if (state_ != State::connecting) return;
  SimStream* const listener = other_->tcp_listener(remote_);
  kernel().note(SimEvent::arrive_open, number(), listener == nullptr ? 0 : 1);
  if (listener == nullptr || other_->refuses() || kernel().chance(kernel().options().refused_connects)) {
    kernel().answer_reset(number(), *other_, ECONNREFUSED);
    return;
  }
  if (listener->waiting_.size() > static_cast<std::size_t>(listener->backlog_)) {
    kernel().after(kAskAgain, [&all = kernel(), number = number()] {
      SimStream* socket = all.find_stream(number);
      if (socket != nullptr && socket->state_ == State::connecting && socket->flight_.empty())
        socket->put(Kind::open);
    });
    return;
  }
  SimStream& end = listener->add_waiting(*this);
  peer_ = end.number();
  end.put(Kind::opened);
}

void SimStream::deliver_data(Segment&& segment) {
  SimStream* const to = peer();
  const std::size_t size = segment.size();
  flying_bytes_ -= size;
  kernel().note(SimEvent::arrive_data, to == nullptr ? 0 : to->number(), size);
  if (to == nullptr || to->orphan() || to->state_ != State::connected) {
    // Nobody reads it: a closed socket that gets data is gone, whatever it had to send.
    kernel().answer_reset(number(), *other_, ECONNRESET);
    if (to != nullptr && to->orphan()) kernel().erase(*to);
    return;
  }
  to->coming_bytes_ -= size;
  if (kernel().chance(kernel().options().resets)) {
    to->lose(ECONNRESET);
    kernel().answer_reset(number(), *other_, ECONNRESET);
    return;
  }
  to->take_in(std::move(segment));
  touch();  // there is room again
}

// --- the end

void SimStream::lose(int error) {
  if (state_ != State::connecting && state_ != State::connected) return;
  if (end_received_ && end_sent_ && flight_.empty() && unsent_.empty()) return;  // both have ended
  kernel().note(SimEvent::lost, number(), static_cast<std::uint64_t>(error));
  state_ = State::broken;
  error_ = error;
  ground();
  if (orphan()) {
    kernel().erase(*this);
  } else {
    touch();
  }
}

void SimStream::close() {
  kernel().note(SimEvent::close, number(), static_cast<std::uint64_t>(state_));
  switch (state_) {
    case State::connected: close_connected(); return;
    case State::connecting:
      if (peer_ != 0) kernel().answer_reset(peer_, machine(), ECONNRESET);
      break;
    case State::listening:
      for (const int number : std::exchange(waiting_, {})) {
        SimStream* end = kernel().find_stream(number);
        if (end == nullptr) continue;
        end->resets_ = !is_unix();
        end->remove_descriptor();
      }
      break;
    case State::fresh:
    case State::broken: break;
  }
  kernel().erase(*this);
}

void SimStream::close_connected() {
  const bool unread = received_bytes_ != 0;
  if (is_unix()) {
    if (SimStream* to = peer()) {
      to->end_received_ = true;
      to->peer_ = 0;
      if (unread) to->error_ = ECONNRESET;
      to->touch();
    }
    kernel().erase(*this);
    return;
  }
  if (resets_ || unread) {
    unsent_.clear();
    unsent_bytes_ = 0;
    end_wanted_ = end_sent_ = true;
    put(Kind::reset);
  } else {
    end_wanted_ = true;
    transmit();
  }
  received_.clear();
  received_bytes_ = 0;
  erase_if_done();
}

void SimStream::erase_if_done() {
  if (orphan() && flight_.empty() && unsent_.empty() && (end_sent_ || state_ != State::connected)) {
    kernel().erase(*this);
  }
}

SimStream::Ready SimStream::ready() const noexcept {
  switch (state_) {
    case State::fresh:
    case State::connecting: return {};
    case State::listening: return {!waiting_.empty(), false, false, false};
    case State::broken: return {true, true, error_ != 0, true};
    case State::connected: break;
  }
  const bool gone = is_unix() && peer_ == 0;
  const SimStream* const to = peer();
  const std::size_t most = is_unix() && to != nullptr ? to->receive_capacity_ : send_capacity_;
  const bool room = send_room() * 4 >= most;  // as on Linux, not for every byte
  return {received_bytes_ != 0 || end_received_, room || end_wanted_ || gone, error_ != 0,
          gone || (end_received_ && end_wanted_)};
}

}  // namespace linkspan
