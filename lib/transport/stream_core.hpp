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
#include "linkspan/base/assert.hpp"
#include "linkspan/base/clock.hpp"
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
  [[nodiscard]] bool writable() const noexcept { return !is(kUnwritable); }
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
  enum class SendCall : std::uint8_t {
    shared,  ///< others may send with the same system call
    own,     ///< nobody would share it, or it may not wait for others
  };
  /// Sends the head of queue(); called when send_wanted() and no send is in flight. Ends in report_sent or
  /// report_send_error, at once or later; may do nothing when it waits for the kernel and will call
  /// continue_sending.
  virtual void start_send(SendCall call) = 0;
  /// flush(): a send that start_send has left in flight goes to the kernel now.
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
  [[nodiscard]] std::size_t receive_descriptors() const noexcept { return receive_descriptors_; }
  /// There is something to send, and it may be sent. Any report can change it.
  [[nodiscard]] bool send_wanted() const noexcept {
    return (flags_ & (kConnected | kEnding | kAborting | kBroken)) == kConnected && !queue_.empty();
  }
  [[nodiscard]] bool ending() const noexcept { return is(kEnding); }
  void mark_dirty() noexcept;

  // What a backend reports. Each may run callbacks; afterwards the stream may be closed (but is still there).

  /// `data` is not empty; `descriptors` came with its first byte, if there are any.
  void report_received(Chain&& data);
  void report_received(Chain&& data, std::vector<Socket>&& descriptors);
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
  void operation_finished() {
    LINKSPAN_ASSERT(operations_ != 0, "each operation finishes once");
    if (--operations_ == 0 && ending()) mark_dirty();
  }
  void continue_sending(SendCall call = SendCall::shared);

  /// A send is in the kernel's hands: queued slices must stay, and what it did is not known yet.
  bool sending_ = false;
  bool memory_in_kernel_ = false;
  std::uint32_t operations_ = 0;

 private:
  friend class Stream;
  friend class Connector;
  friend class ConnectAttempt;

  // One word, since the common paths ask for many of them at once.
  using Flags = std::uint32_t;
  enum Flag : Flags {
    kConnected = 1U << 0U,
    kOpenReported = 1U << 1U,
    kUnwritable = 1U << 2U,
    kReportWritable = 1U << 3U,
    kShutdownRequested = 1U << 4U,
    kShutdownDone = 1U << 5U,
    kBroken = 1U << 6U,  // broken_ says why nothing can be sent any more
    kWriteClosedReported = 1U << 7U,
    kPaused = 1U << 8U,
    kReceiveEnded = 1U << 9U,  // nothing more comes from the kernel
    kEndReported = 1U << 10U,
    kClosing = 1U << 11U,
    kLingering = 1U << 12U,  // it closes, and has ended the sending side
    kAborting = 1U << 13U,
    kEnding = 1U << 14U,  // operations are being reaped; on_closed comes next
    kEndWithReset = 1U << 15U,
    kClosed = 1U << 16U,
    kRecording = 1U << 17U,  // flush() runs: what happens is reported by service()
  };
  static constexpr Flags kNotReading = kPaused | kClosing | kAborting | kEnding;
  static constexpr Flags kRefusesWrites = kAborting | kEnding | kBroken | kShutdownRequested;
  static constexpr Flags kUndecided = kBroken | kShutdownRequested | kAborting;

  /// Any of them.
  [[nodiscard]] bool is(Flags flags) const noexcept { return (flags_ & flags) != 0; }
  void set(Flags flags) noexcept { flags_ |= flags; }
  void clear(Flags flags) noexcept { flags_ &= ~flags; }

  /// What most streams never need, and idle ones should not hold.
  struct Aside {
    Chain released;         // accepted or refused, to be released outside of calls
    ReceiveQueue received;  // not delivered yet

    [[nodiscard]] bool has_work() const noexcept { return !released.empty() || received.has_work(); }
  };
  [[nodiscard]] Aside& aside() {
    if (aside_ == nullptr) aside_ = std::make_unique<Aside>();
    return *aside_;
  }
  [[nodiscard]] bool nothing_to_release() const noexcept {
    return aside_ == nullptr || aside_->released.empty();
  }
  [[nodiscard]] bool received_idle() const noexcept { return aside_ == nullptr || aside_->received.idle(); }

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
  void note_sent() noexcept {
    if (!is(kUnwritable) || queue_.bytes() > low_watermark_bytes_) return;
    clear(kUnwritable);
    set(kReportWritable);
  }
  /// An open stream of which nothing is to be reported, delivered or decided.
  [[nodiscard]] bool ordinary() const noexcept {
    constexpr Flags kOpen = kConnected | kOpenReported;
    constexpr Flags kDecisive = kOpen | kReportWritable | kReceiveEnded | kClosing | kEnding | kUndecided;
    return (flags_ & kDecisive) == kOpen && progress_ == 0 && !write_is_due() &&
           (aside_ == nullptr || !aside_->has_work());
  }
  /// One is there to be completed.
  [[nodiscard]] bool write_is_due() const noexcept {
    return !writes_.empty() && writes_.front().end <= queue_.begin();
  }
  void service_rest();
  void connect();
  void limit_descriptors() noexcept;
  void fail_to_open(std::error_code error);
  /// Runs the callbacks for what has been accepted.
  void report_progress() {
    if (progress_ != 0 || is(kReportWritable) || write_is_due() || !nothing_to_release()) tell_progress();
  }
  void tell_progress();
  /// Releases what was accepted, or refused.
  void release();
  void break_with(std::error_code error);
  /// What is queued fails; then the handler hears why.
  void tell_break();
  void complete_writes();
  void fail_writes(std::error_code error);
  void hold(Chain&& data, std::vector<Socket>&& descriptors);
  void deliver();
  void deliver_from(ReceiveQueue& received);
  /// Decides what can be decided; every path that changes something ends here. After flush() service() does
  /// it.
  void settle() {
    if (is(kUndecided) || write_is_due()) decide();
  }
  void decide();
  void finish(std::error_code error, bool with_reset);
  void close_if_reaped();
  void start_deadline(Duration deadline);
  void deadline_passed();
  [[nodiscard]] bool nothing_unread() const noexcept;
  [[nodiscard]] bool reading() const noexcept { return !is(kNotReading); }

  StreamHandler* handler_;    // nullptr once the owner has let go
  Stream* handle_ = nullptr;  // the owner's, told when this goes
  Socket socket_;
  Flags flags_ = kPaused;
  std::uint32_t pauses_ = 1;
  std::size_t progress_ = 0;        // accepted, not reported yet
  std::unique_ptr<Aside> aside_;    // once it was needed
  SendQueue queue_;                 // not accepted by the kernel yet
  RingQueue<PendingWrite> writes_;  // those with a completion, a file, or without bytes
  std::size_t high_watermark_bytes_;
  std::size_t low_watermark_bytes_;
  Duration linger_;
  std::uint32_t receive_descriptors_;
  PeerAddress peer_;
  std::error_code broken_;
  std::error_code end_error_;             // what on_closed will say
  std::unique_ptr<Connector> connector_;  // until the socket is there
  std::unique_ptr<Timer> deadline_;       // of connecting, then of closing
};

}  // namespace linkspan
