// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "tests/transport/datagram_harness.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

#include "lib/transport/sim/sim_machine.hpp"

namespace linkspan::conformance {
namespace {

constexpr int kUdpSegment = 103;
constexpr int kUdpGro = 104;

std::string_view datagram_family_name(Family family) {
  switch (family) {
    case Family::tcp4: return "UDP IPv4";
    case Family::tcp6: return "UDP IPv6";
    case Family::unix_path: break;
  }
  return "unix";
}

bool has_ipv6() {
  static const bool has = [] {
    const Endpoint loopback = Endpoint::parse("[::1]:0").value();
    const Socket socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const bool works =
        ::bind(socket.descriptor(), loopback.address(), static_cast<socklen_t>(loopback.address_size())) == 0;
    if (!works) MESSAGE("this machine has no IPv6: UDP IPv6 is left out");
    return works;
  }();
  return has;
}

}  // namespace

// As in harness.cpp: a failure must not leave the loop of subcases.
namespace {

void for_each_mode_of(const std::vector<std::string>& transports, std::initializer_list<Family> families,
                      const std::function<void(const Mode&)>& body) {
  std::exception_ptr failure;
  for (const std::string& transport : transports) {
    for (const Family family : families) {
      if (family == Family::tcp6 && transport != "sim" && !has_ipv6()) continue;
      const Mode mode{transport, family};
      const std::string name = mode.transport + ", " + std::string(datagram_family_name(family));
      SUBCASE(name.c_str()) {
        try {
          body(mode);
        } catch (...) {
          failure = std::current_exception();
        }
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

std::function<void(const Mode&)> in_world(const std::function<void(DatagramWorld&)>& body) {
  return [&body](const Mode& mode) {
    DatagramWorld world(mode);
    body(world);
  };
}

constexpr std::initializer_list<Family> kAll{Family::tcp4, Family::tcp6, Family::unix_path};
constexpr std::initializer_list<Family> kUdp{Family::tcp4, Family::tcp6};
constexpr std::initializer_list<Family> kUnix{Family::unix_path};

}  // namespace

void for_each_datagram_mode_name(std::initializer_list<Family> families,
                                 const std::function<void(const Mode&)>& body) {
  for_each_mode_of(with_sim(), families, body);
}

void for_each_datagram_mode(const std::function<void(DatagramWorld&)>& body) {
  for_each_mode_of(with_sim(), kAll, in_world(body));
}
void for_each_udp_mode(const std::function<void(DatagramWorld&)>& body) {
  for_each_mode_of(with_sim(), kUdp, in_world(body));
}
void for_each_unix_mode(const std::function<void(DatagramWorld&)>& body) {
  for_each_mode_of(with_sim(), kUnix, in_world(body));
}
void for_each_kernel_datagram_mode(const std::function<void(DatagramWorld&)>& body) {
  for_each_mode_of(tested_transports(), kAll, in_world(body));
}
void for_each_kernel_udp_mode(const std::function<void(DatagramWorld&)>& body) {
  for_each_mode_of(tested_transports(), kUdp, in_world(body));
}
void for_each_kernel_unix_mode(const std::function<void(DatagramWorld&)>& body) {
  for_each_mode_of(tested_transports(), kUnix, in_world(body));
}

// --- DatagramRecorder, SendLog

std::size_t DatagramRecorder::count(Event event) const {
  return static_cast<std::size_t>(std::ranges::count(events, event));
}

std::vector<std::string> DatagramRecorder::data() const {
  std::vector<std::string> all;
  for (const Message& message : messages) all.push_back(message.data);
  return all;
}

void DatagramRecorder::record(Event event) {
  events.push_back(event);
  if (inside_call) ++calls_inside_calls;
  if (during) during(event);
}

void DatagramRecorder::on_receive(std::span<Datagram> received) {
  batches.push_back(received.size());
  for (Datagram& datagram : received) {
    messages.push_back(
        {keeps_data ? std::string() : std::string(datagram.data.view()), datagram.from, datagram.truncated});
    if (keeps_data) kept.push_back(std::move(datagram.data));
  }
  record(Event::receive);
}

void DatagramRecorder::on_error(std::error_code error, const Endpoint& to) {
  failures.push_back({error, to});
  record(Event::error);
}

void DatagramRecorder::on_writable() {
  record(Event::writable);
}

void DatagramRecorder::on_closed(std::error_code error) {
  closed_error = error;
  record(Event::closed);
}

DatagramCompletion SendLog::next() {
  return [this, send = issued_++](std::error_code error) {
    entries.push_back({send, error});
    if (during) during(Entry(entries.back()));
  };
}

bool SendLog::completed_in_order() const {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].send != static_cast<int>(i)) return false;
  }
  return all_completed();
}

std::size_t SendLog::failed() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(entries, [](const Entry& entry) { return static_cast<bool>(entry.error); }));
}

std::error_code SendLog::error_of(int send) const {
  const Entry* found = nullptr;
  for (const Entry& entry : entries) {
    if (entry.send != send) continue;
    REQUIRE(found == nullptr);
    found = &entry;
  }
  REQUIRE(found != nullptr);
  return found->error;
}

// --- RawSocket

namespace {

Socket make_socket(int family) {
  return Socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

RawSocket::RawSocket(World& world, const Endpoint& at) : world_(&world) {
  if (SimMachine* machine = world.machine()) {
    socket_ = machine->make_datagram(at, {}).value_or_throw().socket;
  } else {
    socket_ = make_socket(at.family());
    REQUIRE(::bind(descriptor(), at.address(), static_cast<socklen_t>(at.address_size())) == 0);
  }
  endpoint_ = local_endpoint(socket_);
}

RawSocket RawSocket::connected(World& world, const Endpoint& peer) {
  if (SimMachine* machine = world.machine()) {
    DatagramOptions options;
    options.peer = peer;
    return {world, machine->make_datagram(Endpoint(), options).value_or_throw().socket};
  }
  RawSocket socket(world, make_socket(peer.family()));
  REQUIRE(::connect(socket.descriptor(), peer.address(), static_cast<socklen_t>(peer.address_size())) == 0);
  return socket;
}

int RawSocket::send(const Endpoint& to, std::string_view data) {
  return send_in_segments(to, data, 0);
}

int RawSocket::send_in_segments(const Endpoint& to, std::string_view data, std::uint16_t segment_bytes_in) {
  iovec vector{const_cast<char*>(data.data()), data.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> control{};
  msghdr message{};
  if (to.address_size() != 0) {
    message.msg_name = const_cast<sockaddr*>(to.address());
    message.msg_namelen = static_cast<socklen_t>(to.address_size());
  }
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (SimMachine* machine = world_->machine()) {
    REQUIRE(segment_bytes_in == 0);
    MessageHeader header{message, 0};
    const int sent = machine->send_messages(descriptor(), {&header, 1}, true);
    const int error = sent < 0 ? errno : 0;
    world_->let_arrive();
    return error;
  }
  if (segment_bytes_in != 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = IPPROTO_UDP;
    header->cmsg_type = kUdpSegment;
    header->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    std::memcpy(CMSG_DATA(header), &segment_bytes_in, sizeof(segment_bytes_in));
  }
  return ::sendmsg(descriptor(), &message, MSG_DONTWAIT) < 0 ? errno : 0;
}

ssize_t RawSocket::receive_now(msghdr& message) {
  SimMachine* const machine = world_->machine();
  if (machine == nullptr) return ::recvmsg(descriptor(), &message, MSG_DONTWAIT);
  world_->let_arrive();
  MessageHeader header{message, 0};
  const int received = machine->receive_messages(descriptor(), {&header, 1}, true);
  message = header.msg_hdr;
  return received < 0 ? -1 : static_cast<ssize_t>(header.msg_len);
}

bool RawSocket::receive(std::string& data) {
  data.resize(std::size_t{128} * 1024);
  iovec vector{data.data(), data.size()};
  alignas(cmsghdr) std::array<std::byte, 64> control{};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = receive_now(message);
  data.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  segment_bytes = 0;
  if (got < 0) return false;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == IPPROTO_UDP && header->cmsg_type == kUdpGro) {
      std::memcpy(&segment_bytes, CMSG_DATA(header), sizeof(segment_bytes));
    }
  }
  return true;
}

std::vector<std::string> RawSocket::receive_all() {
  std::vector<std::string> all;
  for (std::string data; receive(data);) all.push_back(data);
  return all;
}

// --- DatagramWorld

DatagramWorld::~DatagramWorld() {
  // What a test does in callbacks uses its variables, which are gone.
  for (Party& party : parties_) {
    party.events.during = nullptr;
    party.sends.during = nullptr;
  }
}

Party& DatagramWorld::use(Party& party, Result<DatagramSocket> socket) {
  if (!socket) FAIL("no socket: ", socket.error().message());
  party.socket = std::move(socket).value();
  party.endpoint = party.socket.local_endpoint();
  party.socket.start_read();
  return party;
}

Party& DatagramWorld::open(const DatagramOptions& options) {
  return open(free_endpoint(), options);
}

Party& DatagramWorld::open(const Endpoint& at, const DatagramOptions& options) {
  Party& party = parties_.emplace_back();
  return use(party, transport().open_datagram(at, options, party.events));
}

Party& DatagramWorld::adopt(Socket socket, const DatagramOptions& options) {
  Party& party = parties_.emplace_back();
  return use(party, transport().open_datagram(std::move(socket), options, party.events));
}

}  // namespace linkspan::conformance
