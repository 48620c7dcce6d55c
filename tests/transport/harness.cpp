// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "tests/transport/harness.hpp"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>

#if LINKSPAN_HAVE_ASIO
#include "tests/transport/asio_guest.hpp"
#endif

namespace linkspan::conformance {
namespace {

// A test that waits longer has failed. Generous: sanitizers and loaded machines are slow.
constexpr Duration kPatience = std::chrono::seconds(20);

std::string_view family_name(Family family) {
  switch (family) {
    case Family::tcp4: return "TCP IPv4";
    case Family::tcp6: return "TCP IPv6";
    case Family::unix_path: break;
  }
  return "unix";
}

Socket make_socket(const Endpoint& endpoint) {
  return Socket(::socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
}

bool bind_to(const Socket& socket, const Endpoint& endpoint) {
  return ::bind(socket.descriptor(), endpoint.address(), static_cast<socklen_t>(endpoint.address_size())) ==
         0;
}

bool has_ipv6() {
  static const bool has = [] {
    const Endpoint loopback = Endpoint::parse("[::1]:0").value();
    const bool works = bind_to(make_socket(loopback), loopback);
    if (!works) MESSAGE("this machine has no IPv6: TCP IPv6 is left out");
    return works;
  }();
  return has;
}

constexpr std::string_view kGuest = "asio guest";

// A loop of its own, on the test's thread.
class OwnHost final : public Host {
 public:
  explicit OwnHost(std::unique_ptr<EventLoop> loop) : loop_(std::move(loop)) {}

  [[nodiscard]] EventLoop& loop() override { return *loop_; }
  void turn(Duration max_wait) override { loop_->run_once(max_wait); }
  void run() override { loop_->run(); }

 private:
  std::unique_ptr<EventLoop> loop_;
};

std::unique_ptr<Host> make_own_host(const EngineFactory& engine, EventLoopOptions options) {
  return std::make_unique<OwnHost>(EventLoop::create(engine, std::move(options)).value_or_throw());
}

std::unique_ptr<Host> make_host(const Mode& mode, EventLoopOptions options) {
#if LINKSPAN_HAVE_ASIO
  if (mode.transport == kGuest) return make_asio_guest(std::move(options));
#endif
  return make_own_host(transport_engine(mode.transport).value_or_throw(), std::move(options));
}

// doctest enters one subcase a run, and only comes back for the others if it has seen them: so a failure must
// not leave the loop.
void for_each_of(std::initializer_list<Mode> modes, const std::function<void(const Mode&)>& body) {
  std::exception_ptr failure;
  for (const std::string& transport : tested_transports()) {
    for (Mode mode : modes) {
      if (mode.family == Family::tcp6 && !has_ipv6()) continue;
      mode.transport = transport;
      SUBCASE(mode.name().c_str()) {
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

}  // namespace

std::vector<std::string> tested_transports() {
  const std::vector<std::string_view> built = transport_names();
  std::vector<std::string> names(built.begin(), built.end());
#if LINKSPAN_HAVE_ASIO
  names.emplace_back(kGuest);
#endif
  return names;
}

std::string Mode::name() const {
  return transport + ", " + std::string(family_name(family)) + (small_buffers ? ", small buffers" : "");
}

void for_each_mode_name(const std::function<void(const Mode&)>& body) {
  for_each_of({{"", Family::tcp4},
               {"", Family::tcp6},
               {"", Family::unix_path},
               {"", Family::tcp4, true},
               {"", Family::unix_path, true}},
              body);
}

void for_each_transport_name(const std::function<void(const Mode&)>& body) {
  for_each_of({{"", Family::tcp4}}, body);
}

void for_each_mode(const std::function<void(World&)>& body) {
  for_each_mode_name([&](const Mode& mode) {
    World world(mode);
    body(world);
  });
}

void for_each_roomy_mode(const std::function<void(World&)>& body) {
  for_each_mode_name([&](const Mode& mode) {
    if (mode.small_buffers) return;
    World world(mode);
    body(world);
  });
}

void for_each_transport(const std::function<void(World&)>& body) {
  for_each_transport_name([&](const Mode& mode) {
    World world(mode);
    body(world);
  });
}

std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint64_t state = 0x9E3779B97F4A7C15;
  for (char& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

Chain in_slices(std::string_view text, std::size_t piece) {
  Chain chain;
  const Slice all = Slice::copy(text);
  for (std::size_t at = 0; at < all.size(); at += piece) {
    chain.append(all.slice(at, std::min(piece, all.size() - at)));
  }
  return chain;
}

// --- Recorder, WriteLog, Acceptor

std::size_t Recorder::count(Event event) const {
  return static_cast<std::size_t>(std::ranges::count(events, event));
}

void Recorder::record(Event event) {
  events.push_back(event);
  if (inside_call) ++calls_inside_calls;
  if (during) during(event);
}

void Recorder::on_open() {
  record(Event::open);
}
void Recorder::on_read(Chain&& data) {
  if (keeps_data) {
    kept.append(std::move(data));
  } else {
    for (const Slice& slice : data) received.append(slice.view());
  }
  record(Event::read);
}
void Recorder::on_descriptors(std::vector<Socket>&& sockets) {
  descriptors.push_back(std::move(sockets));
  record(Event::descriptors);
}
void Recorder::on_end() {
  record(Event::end);
}
void Recorder::on_write_progress(std::size_t bytes) {
  progress += bytes;
  record(Event::progress);
}
void Recorder::on_writable() {
  record(Event::writable);
}
void Recorder::on_write_closed(std::error_code error) {
  write_closed_error = error;
  record(Event::write_closed);
}
void Recorder::on_closed(std::error_code error, Chain&& rest) {
  closed_error = error;
  if (!keeps_data) unsent = rest.to_string();
  record(Event::closed);
}

WriteCompletion WriteLog::next() {
  return [this, write = issued_++](std::error_code error, std::size_t accepted) {
    entries.push_back({write, error, accepted});
    if (during) during(Entry(entries.back()));
  };
}

bool WriteLog::complete_and_in_order() const {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].write != static_cast<int>(i)) return false;
  }
  return entries.size() == static_cast<std::size_t>(issued_);
}

void Acceptor::on_accept(Socket socket) {
  sockets.push_back(std::move(socket));
  if (during) during();
}
void Acceptor::on_accept_error(std::error_code error) {
  errors.push_back(error);
  if (during) during();
}

// --- Peer

void Peer::shutdown_write() {
  static_cast<void>(::shutdown(descriptor(), SHUT_WR));
}

void Peer::reset() {
  const linger now{1, 0};
  static_cast<void>(::setsockopt(descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
  close();
}

void Peer::pump() {
  std::size_t sent = 0;
  while (socket_ && sent < outgoing_.size()) {
    const ssize_t now =
        ::send(descriptor(), outgoing_.data() + sent, outgoing_.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (now < 0) {
      if (errno == EAGAIN) break;
      error = errno;
      sent = outgoing_.size();
      break;
    }
    sent += static_cast<std::size_t>(now);
  }
  outgoing_.erase(0, sent);
  if (reads) receive_at_most(std::size_t{8} << 20);
}

void Peer::receive_at_most(std::size_t bytes) {
  std::array<char, 64 * 1024> buffer;
  while (socket_ && !ended && error == 0 && bytes != 0) {
    const ssize_t got = ::recv(descriptor(), buffer.data(), std::min(bytes, buffer.size()), MSG_DONTWAIT);
    if (got < 0) {
      if (errno != EAGAIN) error = errno;
      return;
    }
    if (got == 0) {
      ended = true;
      return;
    }
    received.append(buffer.data(), static_cast<std::size_t>(got));
    bytes -= static_cast<std::size_t>(got);
  }
}

// --- World

World::World(const Mode& mode, EventLoopOptions options) : World(mode, make_host(mode, std::move(options))) {}

World::World(Mode mode, const EngineFactory& engine, EventLoopOptions options)
    : World(std::move(mode), make_own_host(engine, std::move(options))) {}

World::World(Mode mode, std::unique_ptr<Host> host) : mode_(std::move(mode)), host_(std::move(host)) {
  char directory[] = "/tmp/linkspan-XXXXXX";
  REQUIRE(::mkdtemp(directory) != nullptr);
  directory_ = directory;
}

World::~World() {
  // What a test does in callbacks uses its variables, which are gone.
  for (Connection& connection : connections_) {
    connection.events.during = nullptr;
    connection.writes.during = nullptr;
  }
  // The loop first: completions that come while it stops are written into connections_.
  host_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

bool World::is_guest() const {
  return mode_.transport == kGuest;
}

void World::run_until(const std::function<bool()>& done) {
  const TimePoint deadline = monotonic_clock().now() + kPatience;
  while (!done()) {
    if (monotonic_clock().now() > deadline) FAIL("what the test waits for did not happen");
    for (Connection& connection : connections_) connection.peer.pump();
    turn(std::chrono::milliseconds(1));
  }
}

void World::settle() {
  for (int tick = 0; tick < 10; ++tick) {
    for (Connection& connection : connections_) connection.peer.pump();
    turn(std::chrono::milliseconds(1));
  }
}

void World::check_quiet() {
  settle();
  bool over = false;
  Timer timer(loop(), [&over] { over = true; });
  timer.start(std::chrono::milliseconds(30));
  const LoopCounters& counters = loop().counters();
  const std::uint64_t ticks = counters.ticks.get();
  const std::uint64_t system_calls = counters.system_calls.get();
  while (!over && counters.ticks.get() - ticks < 1000) turn(std::chrono::milliseconds(30));
  CHECK(counters.ticks.get() - ticks <= 10);
  CHECK(counters.system_calls.get() - system_calls <= 20);
}

Endpoint World::free_endpoint() {
  switch (mode_.family) {
    case Family::tcp4: return Endpoint::parse("127.0.0.1:0").value();
    case Family::tcp6: return Endpoint::parse("[::1]:0").value();
    case Family::unix_path: break;
  }
  return Endpoint::parse("unix:" + directory_ + "/" + std::to_string(paths_++)).value();
}

Socket World::raw_listener(int backlog) {
  const Endpoint endpoint = free_endpoint();
  Socket socket = make_socket(endpoint);
  if (mode_.small_buffers) set_small_buffers(socket.descriptor());
  REQUIRE(bind_to(socket, endpoint));
  REQUIRE(::listen(socket.descriptor(), backlog) == 0);
  return socket;
}

Socket World::raw_connect(const Endpoint& endpoint) {
  Socket socket = make_socket(endpoint);
  if (mode_.small_buffers) set_small_buffers(socket.descriptor());
  REQUIRE(::connect(socket.descriptor(), endpoint.address(),
                    static_cast<socklen_t>(endpoint.address_size())) == 0);
  return socket;
}

std::pair<Socket, Socket> World::raw_pair(bool small_buffers) {
  small_buffers = small_buffers || mode_.small_buffers;
  const Socket listener = raw_listener();
  if (small_buffers) set_small_buffers(listener.descriptor());
  const Endpoint endpoint = local_endpoint(listener.descriptor());
  Socket near = make_socket(endpoint);
  if (small_buffers) set_small_buffers(near.descriptor());
  REQUIRE(::connect(near.descriptor(), endpoint.address(), static_cast<socklen_t>(endpoint.address_size())) ==
          0);
  Socket far(::accept(listener.descriptor(), nullptr, nullptr));
  REQUIRE(far);
  if (small_buffers) set_small_buffers(far.descriptor());
  return {std::move(near), std::move(far)};
}

Connection& World::adopt(std::pair<Socket, Socket> sockets, const StreamOptions& options) {
  Connection& connection = connections_.emplace_back();
  connection.peer = Peer(std::move(sockets.second));
  connection.stream = transport().open(std::move(sockets.first), options, connection.events);
  return connection;
}

Connection& World::open(const StreamOptions& options, bool small_buffers) {
  Connection& connection = adopt(raw_pair(small_buffers), options);
  run_until([&] { return connection.events.count(Event::open) == 1; });
  return connection;
}

Connection& World::open_resettable(const StreamOptions& options) {
  std::pair<Socket, Socket> sockets = raw_pair(false);
  if (is_unix()) REQUIRE(::send(sockets.first.descriptor(), "!", 1, 0) == 1);
  Connection& connection = adopt(std::move(sockets), options);
  connection.peer.reads = false;
  run_until([&] { return connection.events.count(Event::open) == 1; });
  return connection;
}

Connection& World::connect(const Endpoint& endpoint, const StreamOptions& options) {
  return connect(std::vector{endpoint}, options);
}

Connection& World::connect(const std::vector<Endpoint>& endpoints, const StreamOptions& options) {
  Connection& connection = connections_.emplace_back();
  connection.stream = transport().connect(endpoints, options, connection.events);
  return connection;
}

void World::accept_raw(const Socket& listener, Connection& connection) {
  run_until([&] { return connection.events.count(Event::open) == 1; });
  connection.peer = Peer(Socket(::accept(listener.descriptor(), nullptr, nullptr)));
  if (mode_.small_buffers) set_small_buffers(connection.peer.descriptor());
  REQUIRE(connection.peer);
}

std::string World::fill(Connection& connection, std::size_t piece) {
  std::string written;
  connection.peer.reads = false;
  const std::string bytes = pattern(piece);
  std::size_t progress = 0;
  do {
    progress = connection.events.progress;
    connection.write(bytes);
    written += bytes;
    settle();
  } while (connection.events.progress != progress || connection.stream.queued_bytes() == 0);
  return written;
}

// --- child processes

ChildResult in_child(const std::function<void()>& body) {
  std::array<int, 2> ends;
  REQUIRE(::pipe(ends.data()) == 0);
  std::cout.flush();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    static_cast<void>(std::signal(SIGABRT, SIG_DFL));  // not doctest's
    const rlimit no_core{0, 0};
    static_cast<void>(::setrlimit(RLIMIT_CORE, &no_core));
    static_cast<void>(::dup2(ends[1], STDERR_FILENO));
    int code = 0;
    try {
      body();
    } catch (...) {
      code = 1;
    }
    std::cout.flush();
    ::_exit(code);
  }
  ::close(ends[1]);
  ChildResult result;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = ::read(ends[0], buffer.data(), buffer.size())) > 0) {
    result.errors.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

Endpoint local_endpoint(int descriptor) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  REQUIRE(::getsockname(descriptor, address, &size) == 0);
  return {address, size};
}

void set_small_buffers(int descriptor) {
  const int size = 4096;
  static_cast<void>(::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
  static_cast<void>(::setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
}

}  // namespace linkspan::conformance
