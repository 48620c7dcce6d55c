// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the tests of datagram sockets share: for_each_datagram_mode runs a body once for each transport, and
// the simulated network, with each kind of socket, and a DatagramWorld has a loop, sockets under test and
// plain ones: of the system, or of the loop's own host in the simulated network.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "linkspan/transport/datagram.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {

class DatagramWorld;

void for_each_datagram_mode(const std::function<void(DatagramWorld&)>& body);
/// Only UDP, or only one kind.
void for_each_udp_mode(const std::function<void(DatagramWorld&)>& body);
void for_each_unix_mode(const std::function<void(DatagramWorld&)>& body);
/// The same without the simulated network: for what the test, or the promise, asks of the system itself.
void for_each_kernel_datagram_mode(const std::function<void(DatagramWorld&)>& body);
void for_each_kernel_udp_mode(const std::function<void(DatagramWorld&)>& body);
void for_each_kernel_unix_mode(const std::function<void(DatagramWorld&)>& body);
/// For tests that make their own worlds.
void for_each_datagram_mode_name(std::initializer_list<Family> families,
                                 const std::function<void(const Mode&)>& body);

/// Writes down what happens on a socket.
class DatagramRecorder final : public DatagramHandler {
 public:
  enum class Event { receive, error, writable, closed };
  struct Message {
    std::string data;
    Endpoint from;
    bool truncated;
  };
  struct Failure {
    std::error_code error;
    Endpoint to;
  };

  std::vector<Event> events;
  std::vector<Message> messages;
  std::vector<std::size_t> batches;
  std::vector<Failure> failures;
  std::error_code closed_error;
  bool keeps_data = false;  ///< `kept` instead of the data of `messages`
  std::vector<Slice> kept;
  bool inside_call = false;  ///< set by the test around its own calls
  int calls_inside_calls = 0;
  std::function<void(Event)> during;

  [[nodiscard]] std::size_t count(Event event) const;
  [[nodiscard]] bool closed() const { return count(Event::closed) != 0; }
  /// The data of all messages, in order.
  [[nodiscard]] std::vector<std::string> data() const;

  void on_receive(std::span<Datagram> received) override;
  void on_error(std::error_code error, const Endpoint& to) override;
  void on_writable() override;
  void on_closed(std::error_code error) override;

 private:
  void record(Event event);
};

/// Completions of sends, which are numbered from 0 in the order of send().
class SendLog {
 public:
  struct Entry {
    int send;
    std::error_code error;
  };
  std::vector<Entry> entries;
  std::function<void(const Entry&)> during;

  [[nodiscard]] DatagramCompletion next();
  [[nodiscard]] int issued() const { return issued_; }
  [[nodiscard]] bool all_completed() const { return entries.size() == static_cast<std::size_t>(issued_); }
  [[nodiscard]] bool completed_in_order() const;
  [[nodiscard]] std::size_t failed() const;
  /// Of one send, which has completed once.
  [[nodiscard]] std::error_code error_of(int send) const;

 private:
  int issued_ = 0;
};

/// A socket under test.
struct Party {
  DatagramRecorder events;
  SendLog sends;
  DatagramSocket socket;
  Endpoint endpoint;

  void send(const Endpoint& to, Chain&& data) { socket.send(to, std::move(data), sends.next()); }
  void send(const Endpoint& to, std::string_view text) { send(to, chain_of(text)); }
  void send(std::string_view text) { socket.send(chain_of(text), sends.next()); }
};

/// A plain datagram socket. What was sent to it, or by it, has arrived before its calls return.
class RawSocket {
 public:
  RawSocket(World& world, const Endpoint& at);
  /// Without an address of its own, connected to `peer`.
  [[nodiscard]] static RawSocket connected(World& world, const Endpoint& peer);

  /// An errno. No Endpoint: to the peer.
  int send(const Endpoint& to, std::string_view data);
  /// The system's alone.
  int send_in_segments(const Endpoint& to, std::string_view data, std::uint16_t segment_bytes);
  /// The next message. False: there is none.
  bool receive(std::string& data);
  /// All that are there.
  [[nodiscard]] std::vector<std::string> receive_all();
  /// The segment size of the last received message; 0: none.
  int segment_bytes = 0;

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] int descriptor() const { return socket_.descriptor(); }
  [[nodiscard]] Socket take_socket() { return std::move(socket_); }
  void close() { socket_ = Socket(); }

 private:
  RawSocket(World& world, Socket socket) : world_(&world), socket_(std::move(socket)) {}
  [[nodiscard]] ssize_t receive_now(msghdr& message);

  World* world_;
  Socket socket_;
  Endpoint endpoint_;
};

class DatagramWorld {
 public:
  explicit DatagramWorld(const Mode& mode, EventLoopOptions options = {})
      : world_(mode, std::move(options)) {}
  DatagramWorld(const Mode& mode, const EngineFactory& engine, EventLoopOptions options = {})
      : world_(mode, engine, std::move(options)) {}
  ~DatagramWorld();

  [[nodiscard]] World& base() { return world_; }
  [[nodiscard]] EventLoop& loop() { return world_.loop(); }
  [[nodiscard]] Transport& transport() { return world_.transport(); }
  [[nodiscard]] bool is_unix() const { return world_.is_unix(); }
  void run_until(const std::function<bool()>& done) { world_.run_until(done); }
  void settle() { world_.settle(); }

  /// A socket that reads.
  Party& open(const DatagramOptions& options = {});
  Party& open(const Endpoint& at, const DatagramOptions& options);
  Party& adopt(Socket socket, const DatagramOptions& options = {});
  [[nodiscard]] Endpoint free_endpoint() { return world_.free_endpoint(); }
  [[nodiscard]] RawSocket raw() { return raw_at(free_endpoint()); }
  [[nodiscard]] RawSocket raw_at(const Endpoint& at) { return {world_, at}; }
  /// An address that nobody has.
  [[nodiscard]] Endpoint dead_endpoint() { return raw().endpoint(); }

 private:
  Party& use(Party& party, Result<DatagramSocket> socket);

  std::deque<Party> parties_;  // outlive the loop
  World world_;
};

}  // namespace linkspan::conformance
