// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Stream: a connected byte stream (TCP or unix) on a loop, completion-shaped on every transport: writes take
// Chains, received bytes arrive as Chains that belong to the receiver. docs/CONTRACT.md has the promises in
// full.
// Not for: messages, codecs, many writers; that is a Channel.
// Cost: a pointer here and one object in the transport. write() queues; all that was queued in a tick leaves
// in one gathered system call at its end.
// Threads: the loop's thread only. No callback runs inside a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>
#include <vector>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/file_range.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/socket_options.hpp"

namespace linkspan {

class EventLoop;
class StreamCore;
class Transport;

struct StreamOptions {
  std::size_t high_watermark_bytes = 64 * 1024;  ///< writable() turns false above it
  std::size_t low_watermark_bytes = 32 * 1024;   ///< on_writable comes at or below it
  SocketOptions socket;
  Duration connect_timeout = std::chrono::seconds(10);  ///< for all addresses together
  /// Connecting to several addresses: how long one may leave unanswered before the next is tried as well; 10
  /// ms to 2 s, what is beyond is brought there.
  Duration connect_attempt_delay = std::chrono::milliseconds(250);
  /// Connecting: where from, port 0 for any; no Endpoint: as the system likes. Only addresses of its family
  /// can be connected to then. The path of a unix socket is the program's to remove.
  Endpoint local_address;
  /// Connecting, TCP_FASTOPEN_CONNECT: once the peer's cookie is known, a connection counts as open at once,
  /// and the first bytes sent make it. So only for protocols in which this side speaks first; and of several
  /// addresses the first whose cookie is known is taken, whether it answers or not.
  std::optional<bool> fast_open;
  /// How long close() goes on reading, and discarding, after its last byte, so that a peer that still sends
  /// does not get a reset that destroys what it has not read yet.
  Duration linger = std::chrono::seconds(1);

  /// Sends whose slices have this size on average are read by the network card from where they are, instead
  /// of being copied by the kernel, if the transport can (capability "zero_copy_send"); 0: never. 16 KiB and
  /// more may pay, on a real network only: on loopback the kernel copies all the same, which costs more, and
  /// a stream whose sends turn out to be copied goes back to plain ones. Memory is released when the peer has
  /// acknowledged it.
  std::size_t zero_copy_bytes = 0;

  /// Unix sockets: how many descriptors one message may bring, at most 253. 0: none; those that are sent all
  /// the same are closed by the system.
  std::size_t receive_descriptors = 0;

  StreamOptions() = default;
};

/// Called once for each write: without an error when all its bytes were accepted by the kernel; with the
/// number of bytes that were accepted otherwise. An empty write completes like any other.
using WriteCompletion = unique_function<void(std::error_code error, std::size_t accepted_bytes)>;

/// Called once for each receive_into, with the memory: without an error when all its bytes have come; with
/// the number of bytes that have come, and are at its front, otherwise.
using ReceiveCompletion = unique_function<void(std::error_code error, Block&& memory, std::size_t bytes)>;

/// What happens on a stream. Implementations must not throw. All calls come from the loop, none inside a call
/// of the stream; every call of the stream is legal in every callback but on_closed, and so is destroying it.
class LINKSPAN_API StreamHandler {
 public:
  virtual ~StreamHandler();

  /// The connection is there; first of all events. Not called when connecting fails.
  virtual void on_open();
  /// Bytes, never none; they are the handler's for good.
  virtual void on_read(Chain&& data) = 0;
  /// Descriptors of a message, directly before what brings the byte that they were sent with: the next
  /// on_read, or completion of a receive_into. They are the handler's; this closes them.
  virtual void on_descriptors(std::vector<Socket>&& descriptors);
  /// The peer will send no more; once, after all data, only while reading. Writing is still possible.
  virtual void on_end() = 0;
  /// `bytes` more were accepted by the kernel.
  virtual void on_write_progress(std::size_t bytes);
  /// The queue was above the high watermark and is now at or below the low one; once a crossing.
  virtual void on_writable();
  /// Nothing can be written any more, because the connection broke; at most once, after the queued writes
  /// have failed.
  virtual void on_write_closed(std::error_code error);
  /// Last, exactly once, after every write has completed. No error after close, or when both sides had ended.
  /// `unsent` are the bytes that the kernel did not take, those of files aside. Calling the stream asserts;
  /// destroying it is fine.
  virtual void on_closed(std::error_code error, Chain&& unsent) = 0;
};

/// A handle with one owner. Destroying it before on_closed aborts the connection: its handler hears nothing
/// more, but the completions of writes and borrowed memory still come. The handler has to live until
/// on_closed or until the handle is gone.
class LINKSPAN_API Stream {
 public:
  Stream() noexcept = default;
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  /// False once on_closed has been called.
  explicit operator bool() const noexcept { return core_ != nullptr; }

  /// Reading starts paused; each pause_read has to be answered by one start_read. One start_read too many
  /// asserts.
  void start_read();
  /// After it returns there is no on_read and no on_end. What the transport has received by then is kept.
  void pause_read();

  /// The next `size` bytes of the stream go to the front of `memory` instead of to on_read: those that are
  /// here already are copied (CopyPlace::receive_into), what comes later is received there. At most
  /// kReceivesMost may wait; another one fails with errc::limit_exceeded, and takes nothing from the stream.
  /// Obeys pause_read. When the peer ends before, errc::truncated; a break completes it with its error, close
  /// and abort with errc::cancelled. The memory comes back when the kernel no longer writes to it.
  void receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion);
  static constexpr std::size_t kReceivesMost = 64;

  /// Queues `data`; bytes leave in order. Fails with errc::shut_down after shutdown_write or close.
  void write(Chain&& data, WriteCompletion completion = nullptr);
  /// Descriptors travel with the first byte of `data`, over unix sockets, and are closed here when they are
  /// on their way. The write alone fails, and they are closed, with errc::unavailable on other sockets,
  /// errc::invalid_argument without data or for an empty Socket, errc::limit_exceeded for more than 253.
  void write(Chain&& data, std::vector<Socket>&& descriptors, WriteCompletion completion = nullptr);
  /// Queues a part of a file, in its place among the chains; counts like their bytes. A file that ends before
  /// the range does, or cannot be read, breaks the stream with errc::truncated or the system's error, and
  /// resets it: the peer must not take a part for the whole. errc::limit_exceeded for ranges that no file can
  /// have. Asserts that there is a file.
  void write_file(FileRange&& range, WriteCompletion completion = nullptr);
  /// Starts sending what is queued now, instead of at the end of the tick. Before on_open: no effect.
  void flush();
  /// Ends the sending side after the last queued byte.
  void shutdown_write();
  /// Reads no more, sends what is queued, ends the sending side, and closes. What is not sent when `deadline`
  /// has passed is dropped: abort, and on_closed(errc::timed_out). Again and after abort: no effect.
  void close(Duration deadline = std::chrono::seconds(5));
  /// Resets the connection. Queued writes complete with errc::cancelled; then on_closed(errc::aborted).
  void abort();

  /// Bytes written that the kernel has not taken yet.
  [[nodiscard]] std::size_t queued_bytes() const noexcept;
  /// Bytes that the kernel has taken so far.
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept;
  [[nodiscard]] bool writable() const noexcept;
  /// No address before on_open.
  [[nodiscard]] Endpoint local_endpoint() const;
  /// Also after the connection has broken.
  [[nodiscard]] Endpoint peer_endpoint() const;
  [[nodiscard]] EventLoop& loop() const noexcept;

 private:
  friend class StreamCore;

  explicit Stream(StreamCore* core) noexcept;

  StreamCore* core_ = nullptr;  // owned by the transport, which clears this when the stream has closed
};

}  // namespace linkspan
