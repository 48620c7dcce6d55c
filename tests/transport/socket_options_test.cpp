// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Options get into sockets on every transport, or are refused by name.
#include "linkspan/transport/socket_options.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>

#include "tests/support/log_capture.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

int option_of(int descriptor, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  REQUIRE(::getsockopt(descriptor, level, name, &value, &size) == 0);
  return value;
}

std::string text_of(int descriptor, int level, int name) {
  char value[64] = {};
  socklen_t size = sizeof(value);
  REQUIRE(::getsockopt(descriptor, level, name, value, &size) == 0);
  return value;
}

linger linger_of(int descriptor) {
  linger value{};
  socklen_t size = sizeof(value);
  REQUIRE(::getsockopt(descriptor, SOL_SOCKET, SO_LINGER, &value, &size) == 0);
  return value;
}

// The descriptor of this process for which `matches` holds.
int descriptor_where(const std::function<bool(int)>& matches) {
  int found = -1;
  DIR* const open = ::opendir("/proc/self/fd");
  REQUIRE(open != nullptr);
  while (const dirent* entry = ::readdir(open)) {
    const int descriptor = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && matches(descriptor)) found = descriptor;
  }
  ::closedir(open);
  REQUIRE(found >= 0);
  return found;
}

Endpoint endpoint_of(int (*function)(int, sockaddr*, socklen_t*), int descriptor) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  return function(descriptor, address, &size) == 0 ? Endpoint(address, size) : Endpoint();
}

int descriptor_of(const Stream& stream) {
  return descriptor_where([&](int descriptor) {
    return endpoint_of(&::getpeername, descriptor) == stream.peer_endpoint() &&
           endpoint_of(&::getsockname, descriptor) == stream.local_endpoint();
  });
}

int descriptor_of(const Listener& listener) {
  return descriptor_where([&](int descriptor) {
    int listening = 0;
    socklen_t size = sizeof(listening);
    return ::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0 &&
           endpoint_of(&::getsockname, descriptor) == listener.local_endpoint();
  });
}

SocketOptions every_option() {
  SocketOptions options;
  options.no_delay = false;
  options.keep_alive = true;
  options.keep_alive_idle = seconds(77);
  options.keep_alive_interval = seconds(7);
  options.keep_alive_count = 3;
  options.linger = seconds(5);
  options.user_timeout = milliseconds(12'345);
  options.quick_ack = false;
  options.congestion_control = "reno";
  options.interface = "lo";
  options.reuse_address = true;
  options.reuse_port = true;
  options.ipv6_only = true;
  options.send_buffer_bytes = 50'000;
  options.receive_buffer_bytes = 60'000;
  return options;
}

void check_options(const World& world, int descriptor) {
  CHECK(option_of(descriptor, SOL_SOCKET, SO_SNDBUF) == 100'000);
  CHECK(option_of(descriptor, SOL_SOCKET, SO_RCVBUF) == 120'000);
  if (world.is_unix()) return;
  CHECK(option_of(descriptor, IPPROTO_TCP, TCP_NODELAY) == 0);
  CHECK(option_of(descriptor, SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option_of(descriptor, IPPROTO_TCP, TCP_KEEPIDLE) == 77);
  CHECK(option_of(descriptor, IPPROTO_TCP, TCP_KEEPINTVL) == 7);
  CHECK(option_of(descriptor, IPPROTO_TCP, TCP_KEEPCNT) == 3);
  CHECK(linger_of(descriptor).l_onoff == 1);
  CHECK(linger_of(descriptor).l_linger == 5);
  CHECK(option_of(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT) == 12'345);
  CHECK(text_of(descriptor, IPPROTO_TCP, TCP_CONGESTION) == "reno");
  CHECK(text_of(descriptor, SOL_SOCKET, SO_BINDTODEVICE) == "lo");
}

void check_unbound_options(const World& world, int descriptor) {
  check_options(world, descriptor);
  if (world.is_unix()) return;
  CHECK(option_of(descriptor, SOL_SOCKET, SO_REUSEADDR) == 1);
  CHECK(option_of(descriptor, SOL_SOCKET, SO_REUSEPORT) == 1);
  if (world.mode().family == Family::tcp6) CHECK(option_of(descriptor, IPPROTO_IPV6, IPV6_V6ONLY) == 1);
}

}  // namespace

TEST_CASE("a stream that connects has every socket option that was asked for") {
  for_each_kernel_mode([](World& world) {
    const Socket listener = world.raw_listener();
    StreamOptions options;
    options.socket = every_option();
    options.fast_open = true;
    Connection& c = world.connect(local_endpoint(listener), options);
    world.accept_raw(listener, c);
    const int descriptor = descriptor_of(c.stream);
    check_unbound_options(world, descriptor);
    if (world.is_unix()) return;
    CHECK(option_of(descriptor, IPPROTO_TCP, TCP_QUICKACK) == 0);
    CHECK(option_of(descriptor, IPPROTO_TCP, TCP_FASTOPEN_CONNECT) == 1);
  });
}

TEST_CASE("a listener has every socket option, and accepted sockets inherit them") {
  for_each_kernel_mode([](World& world) {
    ListenOptions options;
    options.socket = every_option();
    options.fast_open_queue = 9;
    options.defer_accept = seconds(3);
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), options, acceptor).value_or_throw();
    const int descriptor = descriptor_of(listener);
    check_unbound_options(world, descriptor);
    if (!world.is_unix()) {
      CHECK(option_of(descriptor, IPPROTO_TCP, TCP_FASTOPEN) == 9);
      CHECK(option_of(descriptor, IPPROTO_TCP, TCP_DEFER_ACCEPT) == 3);
    }
    const Socket client = world.raw_connect(listener.local_endpoint());
    raw_send(client, "!");
    world.run_until([&] { return !acceptor.sockets.empty(); });
    if (!world.is_unix()) check_unbound_options(world, acceptor.sockets[0].descriptor());
  });
}

TEST_CASE("a socket that is opened gets the options of its stream, whatever its listener had") {
  for_each_kernel_mode([](World& world) {
    ListenOptions inherited;
    inherited.socket.no_delay = true;
    inherited.socket.keep_alive = false;
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), inherited, acceptor).value_or_throw();
    const Socket client = world.raw_connect(listener.local_endpoint());
    world.run_until([&] { return !acceptor.sockets.empty(); });
    const int descriptor = acceptor.sockets[0].descriptor();
    StreamOptions options;
    options.socket = every_option();
    Recorder events;
    const Stream stream = world.transport().open(std::move(acceptor.sockets[0]), options, events);
    world.run_until([&] { return events.count(Event::open) == 1; });
    check_options(world, descriptor);
    if (!world.is_unix()) CHECK(option_of(descriptor, IPPROTO_TCP, TCP_QUICKACK) == 0);
  });
}

TEST_CASE("a stream without wishes sends without delay, and leaves the rest to the system") {
  for_each_kernel_mode([](World& world) {
    if (world.mode().small_buffers) return;
    const Socket listener = world.raw_listener();
    const Socket plain = world.raw_connect(local_endpoint(listener));
    Connection& c = world.connect(local_endpoint(listener));
    world.run_until([&] { return c.events.count(Event::open) == 1; });
    const int descriptor = descriptor_of(c.stream);
    if (!world.is_unix()) CHECK(option_of(descriptor, IPPROTO_TCP, TCP_NODELAY) == 1);
    for (const int name : {SO_KEEPALIVE, SO_RCVBUF, SO_REUSEADDR, SO_REUSEPORT}) {
      CHECK(option_of(descriptor, SOL_SOCKET, name) == option_of(plain.descriptor(), SOL_SOCKET, name));
    }
    CHECK(linger_of(descriptor).l_onoff == 0);
  });
}

TEST_CASE("a stream connects from the address that it was given") {
  for_each_kernel_transport([](World& world) {
    const Socket listener = world.raw_listener();
    StreamOptions options;
    options.local_address = Endpoint::parse("127.0.0.2:0").value();
    Connection& c = world.connect(local_endpoint(listener), options);
    world.accept_raw(listener, c);
    CHECK(c.stream.local_endpoint().to_string().starts_with("127.0.0.2:"));
    CHECK(c.stream.local_endpoint().port() != 0);
    CHECK(endpoint_of(&::getpeername, c.peer.descriptor()) == c.stream.local_endpoint());
  });
}

namespace {

struct Refusal {
  const char* message;  // part of it
  std::error_condition code;
  void (*ask)(SocketOptions& options);
};

const Refusal kRefusals[] = {
    {"congestion_control = no-such-thing", std::errc::no_such_file_or_directory,
     [](SocketOptions& options) { options.congestion_control = "no-such-thing"; }},
    {"interface = no-such-thing", std::errc::no_such_device,
     [](SocketOptions& options) { options.interface = "no-such-thing"; }},
    {"keep_alive_idle = 0", std::errc::invalid_argument,
     [](SocketOptions& options) { options.keep_alive_idle = seconds(0); }},
    {"keep_alive_count = 1000", std::errc::invalid_argument,
     [](SocketOptions& options) { options.keep_alive_count = 1000; }},
    {"linger = -1", errc::invalid_argument, [](SocketOptions& options) { options.linger = seconds(-1); }},
    {"user_timeout = 5000000000", errc::invalid_argument,
     [](SocketOptions& options) { options.user_timeout = milliseconds(5'000'000'000); }},
    {"send_buffer_bytes = 2000000000", errc::unavailable,
     [](SocketOptions& options) { options.send_buffer_bytes = 2'000'000'000; }},
    {"receive_buffer_bytes = 2000000000", errc::unavailable,
     [](SocketOptions& options) { options.receive_buffer_bytes = 2'000'000'000; }},
};

}  // namespace

TEST_CASE("an option that the system refuses is an error that names it and its value") {
  for_each_kernel_transport([](World& world) {
    const Socket there = world.raw_listener();
    const Endpoint endpoint = local_endpoint(there);
    for (const Refusal& refusal : kRefusals) {
      CAPTURE(refusal.message);
      Acceptor acceptor;
      ListenOptions listen;
      refusal.ask(listen.socket);
      const Result<Listener> listener = world.transport().listen(world.free_endpoint(), listen, acceptor);
      REQUIRE_FALSE(listener.ok());
      CHECK(listener.error().code == refusal.code);
      CHECK(listener.error().message().find(refusal.message) != std::string::npos);

      const test::LogCapture log;
      StreamOptions options;
      refusal.ask(options.socket);
      Connection& connected = world.connect(endpoint, options);
      connected.write("queued");
      world.run_until([&] { return connected.events.closed(); });
      CHECK(connected.events.events == std::vector{Event::closed});
      CHECK(connected.events.closed_error == refusal.code);
      CHECK(connected.writes.entries.at(0).error == refusal.code);
      CHECK(log.lines().size() == 1);
      CHECK(log.contains(refusal.message));

      Recorder opened;
      const Stream stream = world.transport().open(world.raw_connect(endpoint), options, opened);
      world.run_until([&] { return opened.closed(); });
      CHECK(opened.events == std::vector{Event::closed});
      CHECK(opened.closed_error == refusal.code);
      CHECK(log.lines().size() == 2);
      CHECK(log.lines().back().find(refusal.message) != std::string::npos);
    }
  });
}

TEST_CASE("SO_LINGER never lets a stream that closes block the loop") {
  for_each_kernel_transport([](World& world) {
    StreamOptions options;
    options.socket.linger = std::chrono::hours(1);
    options.linger = milliseconds(10);
    const Socket listener = world.raw_listener();
    set_small_buffers(listener);
    Connection& c = world.connect(local_endpoint(listener), options);
    world.accept_raw(listener, c);
    c.peer.reads = false;
    c.write(pattern(100'000));  // the kernel takes them, the peer's does not
    c.stream.close();
    world.run_until([&] { return c.events.closed(); });
    CHECK_FALSE(c.events.closed_error);
    CHECK(c.writes.complete_and_in_order());
  });
}

TEST_CASE("a stream is opened over a connected stream socket only") {
  for_each_kernel_mode([](World& world) {
    const Endpoint any = world.free_endpoint();
    std::vector<std::pair<Socket, const char*>> sockets;
    sockets.emplace_back(Socket(), "a stream needs a socket");
    sockets.emplace_back(Socket(::open("/dev/null", O_RDWR | O_CLOEXEC)), "a stream needs a socket");
    sockets.emplace_back(Socket(::socket(any.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)),
                         "a stream needs a stream socket");
    sockets.emplace_back(Socket(::socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)),
                         "a stream needs a socket that is connected");
    sockets.emplace_back(world.raw_listener(), "a stream needs a socket that is connected");
    for (auto& [socket, message] : sockets) {
      Recorder events;
      const test::LogCapture log;
      const Stream stream = world.transport().open(std::move(socket), {}, events);
      CHECK(events.events.empty());
      world.run_until([&] { return events.closed(); });
      CHECK(events.events == std::vector{Event::closed});
      CHECK(events.closed_error == errc::invalid_argument);
      CHECK(log.contains(message));
    }
  });
}

}  // namespace linkspan::conformance
