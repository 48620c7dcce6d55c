// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the conformance tests share. A test case runs once for each transport of the build, and the simulated
// network, on each kind of socket, as a subcase that is named after both:
//
//   TEST_CASE("a sentence that says what every transport does") {
//     for_each_mode([](World& world) { ... });
//   }
//
// A World drives one loop on the test's own thread; what it talks to are plain sockets of the system, so that
// no code under test is on both sides. In the simulated network they are plain sockets of the loop's own
// host. "asio guest" is an AsioLoop on a context that the World runs.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/sim_network.hpp"
#include "linkspan/transport/transport.hpp"
#include "tests/transport/host.hpp"

namespace linkspan {
class SimMachine;
}  // namespace linkspan

namespace linkspan::conformance {

enum class Family { tcp4, tcp6, unix_path };

struct Mode {
  std::string transport;
  Family family;
  bool small_buffers = false;  ///< of the kernel, so that reads and writes are partial

  [[nodiscard]] std::string name() const;
  [[nodiscard]] bool is_sim() const { return transport == "sim"; }
};

class World;

/// The transports of the build, and the guest.
[[nodiscard]] std::vector<std::string> tested_transports();
/// And the simulated network.
[[nodiscard]] std::vector<std::string> with_sim();
/// Every one of them with every family, and over TCP IPv4 and unix sockets once more with small buffers; IPv6
/// is left out, with a message, where the machine has none.
void for_each_mode(const std::function<void(World&)>& body);
/// Without the small buffers: for what only shows where the kernel has its usual room.
void for_each_roomy_mode(const std::function<void(World&)>& body);
/// Only TCP over IPv4: for what takes long or does not depend on the family.
void for_each_transport(const std::function<void(World&)>& body);
/// The same for tests that make their own worlds.
void for_each_mode_name(const std::function<void(const Mode&)>& body);
void for_each_transport_name(const std::function<void(const Mode&)>& body);
/// The same without the simulated network: for what the test, or the promise, asks of the system itself.
void for_each_kernel_mode(const std::function<void(World&)>& body);
void for_each_kernel_transport(const std::function<void(World&)>& body);
void for_each_kernel_mode_name(const std::function<void(const Mode&)>& body);
void for_each_kernel_transport_name(const std::function<void(const Mode&)>& body);

/// `size` bytes of which no two places look alike.
[[nodiscard]] std::string pattern(std::size_t size);
/// `text` as a chain of slices of `piece` bytes.
[[nodiscard]] Chain in_slices(std::string_view text, std::size_t piece);
[[nodiscard]] inline Chain chain_of(std::string_view text) {
  return Chain(Slice::copy(text));
}

enum class Event { open, read, descriptors, end, progress, writable, write_closed, closed };

/// Writes down what happens on a stream.
class Recorder final : public StreamHandler {
 public:
  std::vector<Event> events;
  std::string received;
  std::size_t progress = 0;
  std::error_code write_closed_error;
  std::error_code closed_error;
  std::string unsent;
  std::vector<std::vector<Socket>> descriptors;
  bool keeps_data = false;  ///< `kept` instead of `received`; `unsent` is not looked at
  Chain kept;
  bool inside_call = false;  ///< set by the test around its own calls
  int calls_inside_calls = 0;
  std::function<void(Event)> during;  ///< what the test does inside a callback

  [[nodiscard]] std::size_t count(Event event) const;
  [[nodiscard]] bool closed() const { return count(Event::closed) != 0; }

  void on_open() override;
  void on_read(Chain&& data) override;
  void on_descriptors(std::vector<Socket>&& sockets) override;
  void on_end() override;
  void on_write_progress(std::size_t bytes) override;
  void on_writable() override;
  void on_write_closed(std::error_code error) override;
  void on_closed(std::error_code error, Chain&& rest) override;

 private:
  void record(Event event);
};

/// Writes down the completions of writes, which are numbered from 0 in the order of write().
class WriteLog {
 public:
  struct Entry {
    int write;
    std::error_code error;
    std::size_t accepted;
  };
  std::vector<Entry> entries;
  std::function<void(const Entry&)> during;

  [[nodiscard]] WriteCompletion next();
  [[nodiscard]] int issued() const { return issued_; }
  /// Each write has completed once, in order.
  [[nodiscard]] bool complete_and_in_order() const;

 private:
  int issued_ = 0;
};

/// The other end: a plain socket that never blocks. World pumps it with each tick.
class Peer {
 public:
  bool reads = true;
  std::string received;
  bool ended = false;  ///< an orderly end was read
  int error = 0;       ///< errno of a failed read or write

  Peer() = default;
  explicit Peer(Socket socket) : socket_(std::move(socket)) {}

  void send(std::string_view bytes) {
    outgoing_.append(bytes);
    pump();
  }
  [[nodiscard]] bool all_sent() const { return outgoing_.empty(); }
  void shutdown_write();
  void close() { socket_ = Socket(); }
  /// TCP: a reset. Unix: a close, which resets if there is something that was not read.
  void reset();
  void pump();
  void receive_at_most(std::size_t bytes);

  [[nodiscard]] int descriptor() const { return socket_.descriptor(); }
  [[nodiscard]] const Socket& socket() const { return socket_; }
  [[nodiscard]] Socket take_socket() { return std::move(socket_); }
  explicit operator bool() const { return static_cast<bool>(socket_); }

 private:
  Socket socket_;
  std::string outgoing_;
};

/// Something is there to be read, or comes, although the loop does not run: the kernel has it. Not for
/// simulated sockets.
[[nodiscard]] bool arrives(const Peer& peer);

/// A stream under test, what it reported, and its peer.
struct Connection {
  Recorder events;
  WriteLog writes;
  Peer peer;
  Stream stream;

  void write(Chain&& data) { stream.write(std::move(data), writes.next()); }
  void write(std::string_view text) { write(chain_of(text)); }
  [[nodiscard]] bool lost() const { return events.closed_error == errc::connection_lost; }
};

/// Writes down what a listener reports.
class Acceptor final : public ListenerHandler {
 public:
  std::vector<Socket> sockets;
  std::vector<std::error_code> errors;
  std::function<void()> during;

  void on_accept(Socket socket) override;
  void on_accept_error(std::error_code error) override;
};

class World {
 public:
  explicit World(const Mode& mode, EventLoopOptions options = {});
  /// With an engine that is made in another way.
  World(Mode mode, const EngineFactory& engine, EventLoopOptions options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] const Mode& mode() const { return mode_; }
  [[nodiscard]] bool is_unix() const { return mode_.family == Family::unix_path; }
  [[nodiscard]] bool is_guest() const;
  /// The simulated host of the loop; nullptr: it is on the system's.
  [[nodiscard]] SimMachine* machine() const;
  [[nodiscard]] EventLoop& loop() { return host_->loop(); }
  [[nodiscard]] Transport& transport() { return Transport::of(loop()); }

  void turn(Duration max_wait) { host_->turn(max_wait); }
  /// Until the loop has stopped.
  void run() { host_->run(); }
  /// Ticks until `done` holds; fails the test when that takes too long.
  void run_until(const std::function<bool()>& done);
  /// Enough ticks for everything that is due to happen.
  void settle();
  /// What is on its way arrives, without a tick: on the system's loopback it has already.
  void let_arrive();
  /// Nothing happens any more: the loop sleeps instead of turning round.
  void check_quiet();
  /// Destroys the loop, which stops it first.
  void destroy_loop() { host_.reset(); }

  /// An address that is free to be listened on.
  [[nodiscard]] Endpoint free_endpoint();
  /// Whether there is something at a unix path.
  [[nodiscard]] bool exists(const Endpoint& path) const;
  /// A listening socket of the system.
  [[nodiscard]] Socket raw_listener(int backlog = 16);
  /// Waits until it is connected.
  [[nodiscard]] Socket raw_connect(const Endpoint& endpoint);
  /// Begins to connect, and does not wait for what comes of it.
  [[nodiscard]] Socket raw_connecting(const Endpoint& endpoint);
  /// Waits until there is a connection.
  [[nodiscard]] Socket raw_accept(const Socket& listener);

  /// An open stream that does not read yet.
  Connection& open(const StreamOptions& options = {}, bool small_buffers = false);
  /// The same whose peer can reset it: it does not read, and on unix sockets has something unread.
  Connection& open_resettable(const StreamOptions& options = {});
  /// A stream that connects; accept_raw gives it its peer.
  Connection& connect(const Endpoint& endpoint, const StreamOptions& options = {});
  Connection& connect(const std::vector<Endpoint>& endpoints, const StreamOptions& options = {});
  void accept_raw(const Socket& listener, Connection& connection);

  /// The process has these and, in the simulated network, the hosts; those on their way to a peer aside.
  [[nodiscard]] std::size_t open_descriptors() const;

  /// Writes until the kernel takes no more, `piece` bytes at a time; returns all that was written.
  std::string fill(Connection& connection, std::size_t piece = std::size_t{1} << 20);

 private:
  [[nodiscard]] std::pair<Socket, Socket> raw_pair(bool small_buffers);
  Connection& adopt(std::pair<Socket, Socket> sockets, const StreamOptions& options);
  void make_directory();

  Mode mode_;
  std::unique_ptr<SimNetwork> network_;
  SimHost* sim_host_ = nullptr;
  std::string directory_;
  int paths_ = 0;
  std::unique_ptr<Host> host_;
  std::deque<Connection> connections_;
};

/// A listener whose queue of connections is full, and the sockets that fill it: nobody answers a TCP connect
/// to it, and a unix connect to it is refused at once.
struct FullListener {
  Socket listener;
  std::vector<Socket> waiting;
  Endpoint endpoint;

  explicit FullListener(World& world);
};

/// How a child process ended, and what it wrote to stderr.
struct ChildResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string errors;
};
/// Runs `body` in a child process; the exit code is 0 unless a REQUIRE failed. It makes its own World: loops
/// do not survive a fork.
[[nodiscard]] ChildResult in_child(const std::function<void()>& body);

// Calls on plain sockets, the system's or simulated ones.

[[nodiscard]] Endpoint local_endpoint(const Socket& socket);
[[nodiscard]] Endpoint local_endpoint(int descriptor);
void set_small_buffers(const Socket& socket);
/// All of `text`, for which there is room.
void raw_send(const Socket& socket, std::string_view text);
/// One message of a unix socket.
struct Message {
  std::string text;
  std::vector<Socket> descriptors;
};
void raw_send(const Socket& socket, Message message);
[[nodiscard]] Message raw_receive(const Socket& socket);

}  // namespace linkspan::conformance
