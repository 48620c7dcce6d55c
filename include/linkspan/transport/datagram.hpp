// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// DatagramSocket: sends and receives datagrams, UDP (IPv4, IPv6) or unix, on a loop, the same way on every
// transport. docs/CONTRACT.md has the promises in full.
// Not for: byte streams (Stream), and messages that have to arrive: UDP loses them as it pleases.
// Cost: a pointer here and one object in the transport. send() queues; all that was queued in a tick leaves
// at its end, many messages a system call. Received messages come in batches too.
// Threads: the loop's thread only. No callback runs inside a call.
#pragma once

#include <cstddef>
#include <span>
#include <system_error>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/socket_options.hpp"

namespace linkspan {

class DatagramCore;
class EventLoop;

struct DatagramOptions {
  SocketOptions socket;
  /// Connects to it: send() needs no destination, messages of others are not received. No Endpoint: none.
  Endpoint peer;
  /// What is longer is cut, and flagged. 1 byte to 64 KiB; the default cuts no UDP message. Memory that a
  /// message keeps alive depends on its own size, not on this.
  std::size_t max_receive_bytes = 64 * 1024;
  /// Messages in one on_receive, at most; at least 1.
  std::size_t receive_batch = 64;
  /// Messages that wait to be sent, at most; a send beyond either bound fails with errc::limit_exceeded. An
  /// empty queue takes a message of any size.
  std::size_t queue_messages = 1024;
  std::size_t queue_bytes = std::size_t{4} << 20;
  /// How long the first message of the queue waits for a system that takes no more, or a unix peer that does
  /// not read. Then it fails with errc::timed_out, as do those right behind it that go to the same address.
  Duration send_timeout = std::chrono::seconds(5);
  /// UDP_SEGMENT, UDP_GRO: the system takes and brings up to 64 messages of one size at once. Used where it
  /// has them; nothing else shows it.
  bool segment_sends = true;
  bool coalesce_receives = true;
  /// sendmmsg and recvmmsg, where the system has them. Off: one message a call, as on other systems.
  bool batched_calls = true;

  DatagramOptions() = default;
};

/// A message that was received.
struct Datagram {
  Slice data;              ///< empty when the message is; the receiver's for good
  Endpoint from;           ///< an unnamed unix socket has no path
  bool truncated = false;  ///< it was longer than DatagramOptions::max_receive_bytes
};

/// Called once for each message: without an error when the kernel has taken it, which does not mean that it
/// arrives.
using DatagramCompletion = unique_function<void(std::error_code error)>;

/// What happens on a socket. Implementations must not throw. All calls come from the loop, none inside a call
/// of the socket; every call of the socket is legal in every callback but on_closed, and so is destroying it.
class LINKSPAN_API DatagramHandler {
 public:
  virtual ~DatagramHandler();

  /// Messages, at least one, in the order of their arrival. What the handler wants to keep it moves out.
  virtual void on_receive(std::span<Datagram> messages) = 0;
  /// The network has refused what was sent earlier (ECONNREFUSED: nobody listens there), or receiving failed
  /// once; also while paused. `to` is where that message went, if the system knows. The socket goes on.
  virtual void on_error(std::error_code error, const Endpoint& to);
  /// The queue was at a bound and has fallen to half of it; once a crossing.
  virtual void on_writable();
  /// Last, exactly once, after every send has completed. No error after close(). Calling the socket asserts;
  /// destroying it is fine.
  virtual void on_closed(std::error_code error) = 0;
};

/// A handle with one owner. Destroying it before on_closed aborts: its handler hears nothing more, but the
/// completions of sends and borrowed memory still come. The handler has to live until on_closed or until the
/// handle is gone.
class LINKSPAN_API DatagramSocket {
 public:
  DatagramSocket() noexcept = default;
  DatagramSocket(DatagramSocket&& other) noexcept;
  DatagramSocket& operator=(DatagramSocket&& other) noexcept;
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;
  ~DatagramSocket();

  /// False once on_closed has been called.
  explicit operator bool() const noexcept { return core_ != nullptr; }

  /// Receiving starts paused; each pause_read has to be answered by one start_read. One start_read too many
  /// asserts.
  void start_read();
  /// After it returns there is no on_receive. What the transport has received by then is kept.
  void pause_read();

  /// Queues one message, an empty one too; messages leave in order. One that cannot be sent fails alone: with
  /// EMSGSIZE when it is too long, with ECONNREFUSED or ENOENT when a unix path has no socket. Fails with
  /// errc::shut_down after close.
  void send(const Endpoint& to, Chain&& message, DatagramCompletion completion = nullptr);
  /// To the peer of a connected socket.
  void send(Chain&& message, DatagramCompletion completion = nullptr);

  /// Receives no more, sends what is queued, and closes. What is not sent when `deadline` has passed fails
  /// with errc::timed_out, and so says on_closed. Again and after abort: no effect.
  void close(Duration deadline = std::chrono::seconds(5));
  /// Queued messages fail with errc::cancelled; then on_closed(errc::aborted).
  void abort();

  /// Messages, and their bytes, that the kernel has not taken yet.
  [[nodiscard]] std::size_t queued_messages() const noexcept;
  [[nodiscard]] std::size_t queued_bytes() const noexcept;
  /// False from the moment the queue is at a bound until on_writable.
  [[nodiscard]] bool writable() const noexcept;
  [[nodiscard]] Endpoint local_endpoint() const;
  /// No Endpoint unless it is connected.
  [[nodiscard]] Endpoint peer_endpoint() const;
  [[nodiscard]] EventLoop& loop() const noexcept;

 private:
  friend class DatagramCore;

  explicit DatagramSocket(DatagramCore* core) noexcept;

  DatagramCore* core_ = nullptr;  // owned by the transport, which clears this when the socket has closed
};

}  // namespace linkspan
