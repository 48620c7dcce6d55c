// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// StreamCore: everything of the stream contract that does not depend on how a transport talks to the kernel.
// Write queue and completions, pauses, the order of data, end and error, close, abort and the one on_closed
// are decided here, once for all transports. A backend derives from it and only starts, stops and reports
// kernel operations.
//
// Calls of the owner change state and mark the stream dirty; the transport services dirty streams before each
// poll. So callbacks come from service() and from the backend's reports, never from inside a call.
//
// Owned by the transport, which deletes it after on_closed, when no function of it is on the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "lib/transport/connector.hpp"
#include "lib/transport/peer_address.hpp"
#include "lib/transport/receive_queue.hpp"
#include "lib/transport/send_queue.hpp"
#include "lib/transport/socket_core.hpp"
#include "linkspan/base/ring_queue.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

/// What a stream starts from.
struct StreamSetup {
  Socket socket;                // connected
  std::vector<Endpoint> peers;  // or to connect to, then there is no socket yet
  std::error_code error;        // why there is neither
  const StreamOptions& options;
  StreamHandler& handler;
};

class StreamCore : public SocketCore {
 public:
  StreamCore(TransportCore& transport, StreamSetup setup);
  ~StreamCore() override;

  [[nodiscard]] Stream make_handle() noexcept { return Stream(this); }

  // The owner's calls: see Stream.
  void start_read();
  void pause_read();
  void write(Chain&& data, WriteCompletion&& completion);
  void write(Chain&& data, std::vector<Socket>&& descriptors, WriteCompletion&& completion);
  void write_file(FileRange&& range, WriteCompletion&& completion);
  void receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion);
  void flush();
  void shutdown_write();
  void close(Duration deadline);
  void abort();
  void abandon() noexcept;
  [[nodiscard]] std::size_t queued_bytes() const noexcept { return static_cast<std::size_t>(queue_.bytes()); }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return queue_.begin(); }
  [[nodiscard]] bool writable() const noexcept { return writable_; }
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }  // -1 while it connects
  [[nodiscard]] Endpoint peer_endpoint() const noexcept;

  // The transport's calls.
  void service() override;
  void stop() noexcept override;

 protected:
  // What a backend does, once the socket has connected. Only called from service() and the reports below.

  /// Starts or stops receiving. Reports may still come after a stop; they are kept. While it does not
  /// receive, a backend watches for a reset. Called whenever either may have changed; `wanted` is often what
  /// it was.
  virtual void update_receive(bool wanted) = 0;
  /// The connection is broken: true when nothing that was received is still to be reported; otherwise the
  /// backend sees to that, and then marks the stream dirty.
  [[nodiscard]] virtual bool receive_stopped() { return true; }
  /// Sends the head of queue(); called when send_wanted() and no send is in flight. Ends in report_sent or
  /// report_send_error, at once or later; may do nothing when it waits for the kernel and will call
  /// continue_sending.
  virtual void start_send() = 0;
  /// flush(): what start_send has begun goes to the kernel now.
  virtual void submit_sends() {}
  /// Asks the kernel to give all operations back. Called once.
  virtual void cancel_operations() = 0;
  /// The descriptor is about to be closed; nothing is in flight.
  virtual void forget_descriptor() {}

  [[nodiscard]] const SendQueue& queue() const noexcept { return queue_; }
  [[nodiscard]] bool receive_wanted() const noexcept;
  /// The owner's memory that the next bytes belong in; empty: they go to a block of the pool. Stays until
  /// report_received_into; a backend that has given it to the kernel sets memory_in_kernel_ until it is back.
  [[nodiscard]] std::span<std::byte> receive_memory() noexcept;
  /// How many descriptors a message may bring; 0: none are received.
  [[nodiscard]] std::size_t receive_descriptors() const noexcept { return options_.receive_descriptors; }
  /// There is something to send, and it may be sent. Any report can change it.
  [[nodiscard]] bool send_wanted() const noexcept {
    return !queue_.empty() && connected_ && !ending_ && !aborting_ && !broken_;
  }
  [[nodiscard]] bool ending() const noexcept { return ending_; }
  void mark_dirty() noexcept;

  // What a backend reports. Each may run callbacks; afterwards the stream may be closed (but is still there).

  void report_received(Chain&& data, std::vector<Socket>&& descriptors = {});
  /// `bytes` were received into receive_memory().
  void report_received_into(std::size_t bytes, std::vector<Socket>&& descriptors = {});
  void report_receive_end();
  /// Receiving failed with `error`: nothing more can be read.
  void report_receive_error(int error);
  /// What was received cannot be taken: the stream breaks.
  void report_receive_failure(std::error_code error);
  /// The pool had no block; the transport calls update_receive again when one is back.
  void report_no_buffer() noexcept;
  /// `bytes` of the head of queue() were accepted. They are released.
  void report_sent(std::size_t bytes);
  void report_send_error(int error);
  enum class SendStep : std::uint8_t {
    sent,     ///< something
    blocked,  ///< nothing, until the socket can be written to
    stopped,  ///< nothing; what is to be done about that has been done
  };
  /// Sends the head of queue() with one call that does not wait for the peer, and reports it.
  [[nodiscard]] SendStep send_step();
  /// A reset was seen while not receiving.
  void report_broken(int error);
  /// A kernel operation has come back: the last one lets a stream that ends be closed.
  void operation_started() noexcept { ++operations_; }
  void operation_finished();
  void continue_sending();

  /// A send is in the kernel's hands: queued slices must stay, and what it did is not known yet.
  bool sending_ = false;
  bool memory_in_kernel_ = false;
  std::uint32_t operations_ = 0;

 private:
  friend class Stream;
  friend class Connector;
  friend class ConnectAttempt;

  struct PendingWrite {
    std::uint64_t begin = 0;  // position in the stream, of its first byte
    std::uint64_t end = 0;    // and behind its last one
    std::error_code refused;  // set when it was refused at the call; then begin == end
    WriteCompletion completion;
    std::shared_ptr<const File> file;  // of a file range: open until then

    void complete(std::error_code error, std::uint64_t accepted);
  };

  void assert_open() const;
  [[nodiscard]] std::error_code write_refusal() const noexcept;
  [[nodiscard]] std::error_code descriptor_refusal(const Chain& data,
                                                   const std::vector<Socket>& descriptors) const noexcept;
  void note_queued() noexcept;
  void connect();
  void limit_descriptors() noexcept;
  void fail_to_open(std::error_code error);
  /// Runs the callbacks for what has been accepted.
  void report_progress() {
    if (!released_.empty() || progress_ != 0 || report_writable_ || !writes_.empty()) tell_progress();
  }
  void tell_progress();
  /// Releases what was accepted, or refused.
  void release();
  void break_with(std::error_code error);
  /// What is queued fails; then the handler hears why.
  void tell_break();
  void complete_writes();
  void fail_writes(std::error_code error);
  void deliver();
  /// Decides what can be decided; every path that changes something ends here. After flush() service() does
  /// it.
  void settle() {
    if (!writes_.empty() || broken_ || shutdown_requested_ || aborting_) decide();
  }
  void decide();
  void finish(std::error_code error, bool with_reset);
  void close_if_reaped();
  void start_deadline(Duration deadline);
  void deadline_passed();
  [[nodiscard]] bool nothing_unread() const noexcept;
  [[nodiscard]] bool reading() const noexcept { return pauses_ == 0 && !closing_ && !aborting_ && !ending_; }

  StreamHandler* handler_;    // nullptr once the owner has let go
  Stream* handle_ = nullptr;  // the owner's, told when this goes
  StreamOptions options_;
  Socket socket_;
  PeerAddress peer_;

  std::uint32_t pauses_ = 1;
  bool connected_ : 1;
  bool open_reported_ : 1 = false;
  bool writable_ : 1 = true;
  bool report_writable_ : 1 = false;
  bool shutdown_requested_ : 1 = false;
  bool shutdown_done_ : 1 = false;
  bool write_closed_reported_ : 1 = false;
  bool receive_ended_ : 1 = false;  // nothing more comes from the kernel
  bool end_reported_ : 1 = false;
  bool closing_ : 1 = false;
  bool lingering_ : 1 = false;  // it closes, and has ended the sending side
  bool aborting_ : 1 = false;
  bool ending_ : 1 = false;  // operations are being reaped; on_closed comes next
  bool end_with_reset_ : 1 = false;
  bool closed_ : 1 = false;
  bool recording_ : 1 = false;  // flush() runs: what happens is reported by service()

  std::error_code broken_;     // why nothing can be sent any more
  std::error_code end_error_;  // what on_closed will say

  std::unique_ptr<Connector> connector_;  // until the socket is there

  SendQueue queue_;                  // not accepted by the kernel yet
  Chain released_;                   // accepted or refused, to be released outside of calls
  ReceiveQueue received_;            // not delivered yet
  std::size_t progress_ = 0;         // accepted, not reported yet
  RingQueue<PendingWrite> writes_;   // those with a completion, a file, or without bytes
  std::unique_ptr<Timer> deadline_;  // of connecting, then of closing
};

}  // namespace linkspan
