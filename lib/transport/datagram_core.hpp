// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// DatagramCore: everything of a datagram socket that does not depend on the transport: the queue and its
// bounds, completions, segmented sends, pauses, refusals, close and abort. Sending is done here too, at the
// end of a tick, since it never waits for anything but room. A backend receives, and tells of room.
//
// Calls of the owner change state and mark the socket dirty; callbacks come from service() and from the
// backend's reports, never from inside a call.
//
// Owned by the transport, which deletes it after on_closed, when no function of it is on the stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "lib/transport/datagram_ops.hpp"
#include "lib/transport/socket_core.hpp"
#include "linkspan/base/ring_queue.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/datagram.hpp"

namespace linkspan {

/// What a datagram socket starts from.
struct DatagramSetup {
  ReadyDatagramSocket ready;
  const DatagramOptions& options;
  DatagramHandler& handler;
};

class DatagramCore : public SocketCore {
 public:
  DatagramCore(TransportCore& transport, DatagramSetup setup);
  ~DatagramCore() override;

  [[nodiscard]] DatagramSocket make_handle() noexcept { return DatagramSocket(this); }

  // The owner's calls: see DatagramSocket.
  void start_read();
  void pause_read();
  void send(const Endpoint& to, Chain&& data, DatagramCompletion completion);
  void close(Duration deadline);
  void abort() noexcept;
  void abandon() noexcept;
  [[nodiscard]] std::size_t queued_messages() const noexcept { return queue_.size(); }
  [[nodiscard]] std::size_t queued_bytes() const noexcept { return queued_bytes_; }
  [[nodiscard]] bool writable() const noexcept { return writable_; }
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }

  void service() override;
  void stop() noexcept override { abort(); }

 protected:
  // What a backend does. Only called from service() and the reports below.

  /// Starts or stops receiving; watches for errors in any case. Reports may still come after a stop; they are
  /// kept. `wanted` is often what it was.
  virtual void update_receive(bool wanted) = 0;
  /// Waits until `descriptor`, the socket's own or another one, is writable; ends in report_writable, which
  /// may close that other one. One at a time. False when it cannot.
  [[nodiscard]] virtual bool wait_writable(int descriptor) = 0;
  /// Asks the kernel to give all operations back. Called once.
  virtual void cancel_operations() = 0;

  [[nodiscard]] bool receive_wanted() const noexcept { return reading(); }
  [[nodiscard]] bool ending() const noexcept { return ending_; }
  [[nodiscard]] const DatagramOptions& options() const noexcept { return options_; }
  /// Bytes that one receive needs room for.
  [[nodiscard]] std::size_t receive_bytes() const noexcept {
    return coalesces_ ? kMaxReceiveBytes : options_.max_receive_bytes;
  }
  [[nodiscard]] std::size_t control_bytes() const noexcept { return is_unix() ? 0 : kControlBytes; }
  void mark_dirty() noexcept;

  // What a backend reports. All but report_received may run callbacks; afterwards the socket may be closed
  // (but is still there).

  /// `data` came from `from`: one message, or several of `segment_bytes` (the last one of what is left).
  /// `truncated`: there was more. They are kept until deliver().
  void report_received(Slice&& data, const Endpoint& from, std::size_t segment_bytes, bool truncated);
  /// Hands what was received to the handler, if it reads.
  void deliver();
  /// There may be refusals; or receiving, or waiting, has failed with `error`.
  void report_error(int error);
  /// The pool had no block; the transport services the socket again when one is back.
  void report_no_buffer() noexcept;
  void report_writable();
  [[nodiscard]] std::uint32_t operations() const noexcept { return operations_; }
  void operation_started() noexcept { ++operations_; }
  /// A kernel operation has come back: the last one lets a socket that ends be closed.
  void operation_finished();

 private:
  friend class DatagramSocket;

  struct Message {
    Chain data;
    Endpoint to;  // none: the peer
    DatagramCompletion completion;
  };
  struct Finished {
    Message message;
    std::error_code error;
  };
  struct SendBatch;

  [[nodiscard]] bool reading() const noexcept { return pauses_ == 0 && !closing_ && !aborting_ && !ending_; }
  [[nodiscard]] bool send_wanted() const noexcept {
    return !queue_.empty() && !blocked_ && !aborting_ && !ending_;
  }
  [[nodiscard]] bool is_unix() const noexcept { return family_ == AF_UNIX; }
  [[nodiscard]] bool full() const noexcept {
    return queue_.size() >= options_.queue_messages || queued_bytes_ >= options_.queue_bytes;
  }

  void continue_sending();
  void fill(SendBatch& batch);
  [[nodiscard]] std::size_t messages_in_one_send(std::size_t first, std::size_t slices) noexcept;
  void on_send_error(int error, std::size_t messages);
  void wait_for_room();
  void retry_later();
  void block(Duration at_most);
  void send_timer_fired();
  /// How many there were.
  [[nodiscard]] std::size_t drain_refusals();
  void tell_error(int error, const Endpoint& to);
  void complete(Message&& message, std::error_code error);
  void complete_front(std::error_code error);
  void complete_finished();
  void settle();
  void finish(std::error_code error);
  void close_if_reaped();

  DatagramHandler* handler_;          // nullptr once the owner has let go
  DatagramSocket* handle_ = nullptr;  // the owner's, told when this goes
  const DatagramOptions options_;
  Socket socket_;
  const int family_;
  const bool coalesces_;
  const std::string path_;

  std::uint32_t pauses_ = 1;
  std::uint32_t operations_ = 0;
  bool writable_ : 1 = true;
  bool report_writable_ : 1 = false;
  bool closing_ : 1 = false;
  bool aborting_ : 1 = false;
  bool ending_ : 1 = false;  // operations are being reaped; on_closed comes next
  bool closed_ : 1 = false;
  bool blocked_ : 1 = false;  // the first message waits for room
  bool waiting_ : 1 = false;  // the backend waits for room
  bool refusals_left_ : 1 = false;

  std::error_code end_error_;  // what on_closed will say

  RingQueue<Message> queue_;  // not accepted by the kernel yet
  std::size_t queued_bytes_ = 0;
  RingQueue<Finished> finished_;  // inside of a call; completed outside of it
  std::size_t segment_limit_;     // longest message that may be sent in segments; 0: none
  std::size_t single_sends_ = 0;  // so many messages are not to be sent in segments
  Socket room_probe_;             // connected to a unix peer that has no room
  TimePoint blocked_since_{};     // of the first message; zero: it is not
  Timer send_timer_;
  Timer deadline_;                  // of closing
  std::vector<Datagram> received_;  // not delivered yet
};

/// `size` bytes at `offset` of `block`, which were received, as a slice. Less than `least_bytes` are copied
/// out of it, and it stays as it was; otherwise it keeps what is behind them. When `allocator` has no block
/// to copy to, they are handed over after all.
[[nodiscard]] Slice take_message(Block& block, std::size_t offset, std::size_t size, std::size_t least_bytes,
                                 BlockAllocator& allocator) noexcept;

}  // namespace linkspan
