// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "tests/transport/harness.hpp"

#include <netinet/in.h>
#include <poll.h>
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
#include <span>

#include "lib/transport/descriptor_message.hpp"
#include "lib/transport/sim/sim_kernel.hpp"
#include "lib/transport/sim/sim_machine.hpp"
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

/// nullptr: the system's.
SimMachine* machine_of(const Socket& socket) {
  return dynamic_cast<SimMachine*>(socket.space());
}

// Like the system's calls. None waits.

ssize_t send_now(const Socket& socket, std::string_view text) {
  if (SimMachine* machine = machine_of(socket)) {
    iovec vector{const_cast<char*>(text.data()), text.size()};
    return machine->send(socket.descriptor(), {&vector, 1}, {});
  }
  return ::send(socket.descriptor(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t receive_now(const Socket& socket, std::span<char> memory) {
  if (SimMachine* machine = machine_of(socket)) {
    return machine->receive(socket.descriptor(), std::as_writable_bytes(memory));
  }
  return ::recv(socket.descriptor(), memory.data(), memory.size(), MSG_DONTWAIT);
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
void for_each_of(const std::vector<std::string>& transports, std::span<const Mode> modes,
                 const std::function<void(const Mode&)>& body) {
  std::exception_ptr failure;
  for (const std::string& transport : transports) {
    for (Mode mode : modes) {
      if (mode.family == Family::tcp6 && transport != "sim" && !has_ipv6()) continue;
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

// Without their transports.
std::vector<Mode> one_mode() {
  return {{"", Family::tcp4}};
}
std::vector<Mode> all_modes() {
  return {{"", Family::tcp4},
          {"", Family::tcp6},
          {"", Family::unix_path},
          {"", Family::tcp4, true},
          {"", Family::unix_path, true}};
}

std::function<void(const Mode&)> in_world(const std::function<void(World&)>& body) {
  return [&body](const Mode& mode) {
    World world(mode);
    body(world);
  };
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

std::vector<std::string> with_sim() {
  std::vector<std::string> names = tested_transports();
  names.emplace_back("sim");
  return names;
}

std::string Mode::name() const {
  return transport + ", " + std::string(family_name(family)) + (small_buffers ? ", small buffers" : "");
}

void for_each_mode_name(const std::function<void(const Mode&)>& body) {
  for_each_of(with_sim(), all_modes(), body);
}
void for_each_transport_name(const std::function<void(const Mode&)>& body) {
  for_each_of(with_sim(), one_mode(), body);
}
void for_each_kernel_mode_name(const std::function<void(const Mode&)>& body) {
  for_each_of(tested_transports(), all_modes(), body);
}
void for_each_kernel_transport_name(const std::function<void(const Mode&)>& body) {
  for_each_of(tested_transports(), one_mode(), body);
}

void for_each_mode(const std::function<void(World&)>& body) {
  for_each_mode_name(in_world(body));
}
void for_each_roomy_mode(const std::function<void(World&)>& body) {
  for_each_mode_name([&](const Mode& mode) {
    if (!mode.small_buffers) in_world(body)(mode);
  });
}
void for_each_transport(const std::function<void(World&)>& body) {
  for_each_transport_name(in_world(body));
}
void for_each_kernel_mode(const std::function<void(World&)>& body) {
  for_each_kernel_mode_name(in_world(body));
}
void for_each_kernel_transport(const std::function<void(World&)>& body) {
  for_each_kernel_transport_name(in_world(body));
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
  if (SimMachine* machine = machine_of(socket_)) {
    machine->end_sending(descriptor());
  } else {
    static_cast<void>(::shutdown(descriptor(), SHUT_WR));
  }
}

void Peer::reset() {
  if (SimMachine* machine = machine_of(socket_)) {
    machine->before_close(descriptor(), true);
  } else {
    const linger now{1, 0};
    static_cast<void>(::setsockopt(descriptor(), SOL_SOCKET, SO_LINGER, &now, sizeof(now)));
  }
  close();
}

bool arrives(const Peer& peer) {
  constexpr int kPatienceMs = 5000;
  pollfd readable{peer.descriptor(), POLLIN, 0};
  return ::poll(&readable, 1, kPatienceMs) == 1;
}

void Peer::pump() {
  std::size_t sent = 0;
  while (socket_ && sent < outgoing_.size()) {
    const ssize_t now = send_now(socket_, std::string_view(outgoing_).substr(sent));
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
    const ssize_t got = receive_now(socket_, std::span(buffer).first(std::min(bytes, buffer.size())));
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

World::World(const Mode& mode, EventLoopOptions options) : mode_(mode) {
  if (mode.is_sim()) {
    SimOptions network;
    // LINKSPAN_SIM_SEED: another run of what is random in the simulated network.
    if (const char* seed = std::getenv("LINKSPAN_SIM_SEED")) network.seed = std::strtoull(seed, nullptr, 10);
    network_ = std::make_unique<SimNetwork>(network);
    sim_host_ = &network_->add_host("host", {"10.0.0.1", "fd00::1"});
    host_ = make_own_host(sim_host_->engine(), sim_host_->loop_options(std::move(options)));
  } else {
    host_ = make_host(mode, std::move(options));
  }
  make_directory();
}

World::World(Mode mode, const EngineFactory& engine, EventLoopOptions options)
    : mode_(std::move(mode)), host_(make_own_host(engine, std::move(options))) {
  make_directory();
}

void World::make_directory() {
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
  connections_.clear();  // before the network of their sockets
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

bool World::is_guest() const {
  return mode_.transport == kGuest;
}

SimMachine* World::machine() const {
  return sim_host_ == nullptr ? nullptr : &SimMachine::of(*sim_host_);
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
  // Ticks do not wait for what takes its time in the simulated network.
  const Clock& clock = loop().environment().clock;
  const TimePoint end = clock.now() + std::chrono::milliseconds(10);
  for (int tick = 0; tick < 10 || (network_ != nullptr && clock.now() < end); ++tick) {
    for (Connection& connection : connections_) connection.peer.pump();
    turn(std::chrono::milliseconds(1));
  }
}

void World::let_arrive() {
  if (network_ == nullptr) return;
  SimKernel& kernel = SimMachine::of(*sim_host_).kernel();
  // Twice: there and, where something is answered, back.
  kernel.advance_to(kernel.now() + 2 * kernel.options().latency_max);
}

std::size_t World::open_descriptors() const {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  if (network_ == nullptr) return count;
  for (const auto& [number, socket] : SimMachine::of(*sim_host_).kernel().sockets()) {
    ++count;
    if (socket->type() == SimSocket::Type::stream) {
      count -= static_cast<const SimStream&>(*socket).unread_descriptors();
    }
  }
  return count;
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

bool World::exists(const Endpoint& path) const {
  if (sim_host_ != nullptr) return machine()->has_path(path.unix_path());
  return std::filesystem::exists(path.unix_path());
}

Socket World::raw_listener(int backlog) {
  const Endpoint endpoint = free_endpoint();
  if (sim_host_ != nullptr) {
    ListenOptions options;
    options.backlog = backlog;
    Socket socket = SimMachine::of(*sim_host_).make_listening(endpoint, options).value_or_throw();
    if (mode_.small_buffers) set_small_buffers(socket);
    return socket;
  }
  Socket socket = make_socket(endpoint);
  if (mode_.small_buffers) set_small_buffers(socket);
  REQUIRE(bind_to(socket, endpoint));
  REQUIRE(::listen(socket.descriptor(), backlog) == 0);
  return socket;
}

Socket World::raw_connecting(const Endpoint& endpoint) {
  if (sim_host_ != nullptr) {
    SimMachine& machine = SimMachine::of(*sim_host_);
    Socket socket = machine.make_connecting(endpoint, {}).value_or_throw();
    if (mode_.small_buffers) set_small_buffers(socket);
    static_cast<void>(machine.connect(socket.descriptor(), endpoint));
    let_arrive();
    return socket;
  }
  Socket socket(::socket(endpoint.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  static_cast<void>(
      ::connect(socket.descriptor(), endpoint.address(), static_cast<socklen_t>(endpoint.address_size())));
  return socket;
}

Socket World::raw_connect(const Endpoint& endpoint) {
  if (sim_host_ != nullptr) {
    Socket socket = raw_connecting(endpoint);
    SimMachine& machine = SimMachine::of(*sim_host_);
    SimKernel& kernel = machine.kernel();
    const SimStream& simulated = *machine.stream_of(socket.descriptor());
    while (simulated.state() == SimStream::State::connecting) kernel.advance_to(kernel.next_event());
    REQUIRE(simulated.connected());
    return socket;
  }
  Socket socket = make_socket(endpoint);
  if (mode_.small_buffers) set_small_buffers(socket);
  REQUIRE(::connect(socket.descriptor(), endpoint.address(),
                    static_cast<socklen_t>(endpoint.address_size())) == 0);
  return socket;
}

Socket World::raw_accept(const Socket& listener) {
  if (SimMachine* machine = machine_of(listener)) {
    SimKernel& kernel = machine->kernel();
    Socket socket = machine->accept(listener.descriptor());
    while (!socket) {
      REQUIRE(kernel.next_event() != TimePoint::max());
      kernel.advance_to(kernel.next_event());
      socket = machine->accept(listener.descriptor());
    }
    return socket;
  }
  Socket socket(::accept(listener.descriptor(), nullptr, nullptr));
  REQUIRE(socket);
  return socket;
}

std::pair<Socket, Socket> World::raw_pair(bool small_buffers) {
  small_buffers = small_buffers || mode_.small_buffers;
  const Socket listener = raw_listener();
  if (small_buffers) set_small_buffers(listener);
  const Endpoint endpoint = local_endpoint(listener);
  Socket near;
  if (sim_host_ != nullptr) {
    near = raw_connect(endpoint);
    if (small_buffers) set_small_buffers(near);
  } else {
    near = make_socket(endpoint);
    if (small_buffers) set_small_buffers(near);
    REQUIRE(::connect(near.descriptor(), endpoint.address(),
                      static_cast<socklen_t>(endpoint.address_size())) == 0);
  }
  Socket far = raw_accept(listener);
  if (small_buffers) set_small_buffers(far);
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
  if (is_unix()) raw_send(sockets.first, "!");
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
  connection.peer = Peer(raw_accept(listener));
  if (mode_.small_buffers) set_small_buffers(connection.peer.socket());
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

FullListener::FullListener(World& world)
    : listener(world.raw_listener(0)), endpoint(local_endpoint(listener)) {
  for (int i = 0; i < 4; ++i) waiting.push_back(world.raw_connecting(endpoint));
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

Endpoint local_endpoint(const Socket& socket) {
  SimMachine* machine = machine_of(socket);
  return machine != nullptr ? machine->local_endpoint(socket.descriptor())
                            : local_endpoint(socket.descriptor());
}

void set_small_buffers(const Socket& socket) {
  const int size = 4096;
  const int descriptor = socket.descriptor();
  if (SimMachine* machine = machine_of(socket)) {
    SocketOptions options;
    options.send_buffer_bytes = options.receive_buffer_bytes = size;
    machine->socket_of(descriptor)->set_options(options);
    return;
  }
  static_cast<void>(::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
  static_cast<void>(::setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
}

void raw_send(const Socket& socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send_now(socket, text);
    REQUIRE(sent > 0);
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void raw_send(const Socket& socket, Message message) {
  iovec vector{message.text.data(), message.text.size()};
  ssize_t sent = 0;
  if (SimMachine* machine = machine_of(socket)) {
    sent = machine->send(socket.descriptor(), {&vector, 1}, message.descriptors);
  } else {
    DescriptorMessage with;
    sent = ::sendmsg(socket.descriptor(), &with.to_send({&vector, 1}, message.descriptors), MSG_NOSIGNAL);
  }
  REQUIRE(sent > 0);
  if (const auto size = static_cast<std::size_t>(sent); size != message.text.size()) {
    raw_send(socket, std::string_view(message.text).substr(size));
  }
}

Message raw_receive(const Socket& socket) {
  constexpr std::size_t kMost = 253;
  std::string text(100'000, '\0');
  const std::span memory = std::as_writable_bytes(std::span(text));
  Result<std::vector<Socket>, std::error_code> descriptors = std::vector<Socket>();
  ssize_t got = 0;
  if (SimMachine* machine = machine_of(socket)) {
    got = machine->receive(socket.descriptor(), memory, kMost, descriptors);
  } else {
    DescriptorMessage with;
    got = ::recvmsg(socket.descriptor(), &with.to_receive(memory, kMost), MSG_DONTWAIT);
    if (got >= 0) descriptors = with.take(kMost);
  }
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return {std::move(text), std::move(descriptors).value()};
}

}  // namespace linkspan::conformance
