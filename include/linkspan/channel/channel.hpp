// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Channel: a connection with its pipeline. It lives on one loop for life, owns itself, and is destroyed after
// on_inactive, at the end of the tick. Server and Client make channels; code outside of the loop holds a
// ChannelRef.
// Not for: raw byte streams without handlers; that is a Stream.
// Cost: one object a connection, no allocation per message; a completion costs one allocation.
// Threads: the loop's thread only; ChannelRef may be used on any thread.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/channel/attributes.hpp"
#include "linkspan/channel/channel_ref.hpp"
#include "linkspan/channel/pending_writes.hpp"
#include "linkspan/channel/pipeline.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/transport/endpoint.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

struct Watermarks {
  std::size_t high_bytes = 64 * 1024;  ///< writable() turns false above it
  std::size_t low_bytes = 32 * 1024;   ///< and true again at or below it
};

struct ChannelOptions {
  StreamOptions stream;   ///< its watermarks are the channel's
  bool auto_read = true;  ///< false: reading starts paused, until resume_read()
  PendingLimits pending;

  ChannelOptions() = default;
};

/// Fills the pipeline of a new channel; an error or an exception closes the connection. Called on the
/// channel's loop, so on several threads when there are several loops.
using ChannelInitializer = std::function<Status(Channel& channel)>;

inline constexpr Duration kCloseDeadline = std::chrono::seconds(5);

class LINKSPAN_API Channel : private DeferredTask {
 public:
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] Pipeline& pipeline() noexcept { return pipeline_; }
  [[nodiscard]] EventLoop& loop() const noexcept { return loop_; }
  /// State that the handlers share; destroyed after them.
  [[nodiscard]] ChannelAttributes& attributes() noexcept { return attributes_; }
  /// A handle that is safe after the channel is gone, and on any thread.
  [[nodiscard]] ChannelRef ref();

  /// Sends a message through the whole pipeline. Its type has to be the one that the last handler takes;
  /// another one is an error that closes the channel. Bytes leave at the end of the tick. Above the high
  /// watermark see PendingLimits. A FileRange or WithDescriptors goes past the handlers, in its place behind
  /// what they have written to the wire so far; see Stream::write_file and Stream::write.
  template <class T>
  requires(!std::is_lvalue_reference_v<T>) void write(T&& message, WriteDone done = nullptr) {
    if (!writable_ || held_) [[unlikely]] {
      if (const Admission admission = admit(message_bytes(message)); admission != Admission::now) {
        hold(admission, make_held(std::move(message), std::move(done), {}));
        return;
      }
    }
    start_write(std::move(message), std::move(done));
  }
  /// The same, but until the end of the tick, and while the channel is not writable, the write waits in front
  /// of the pipeline, as PendingLimits::max_wait and max_waiting allow, and can be cancelled.
  template <class T>
  requires(!std::is_lvalue_reference_v<T>) WriteToken
      write_cancellable(T&& message, WriteDone done = nullptr) {
    WriteToken token(ref());
    hold(closing_ || closed_ ? Admission::now : Admission::wait,
         make_held(std::move(message), std::move(done), token));
    return token;
  }

  /// The next `size` bytes of the connection go to `memory`, past the handlers; see Stream::receive_into.
  /// What a decoder has got already is not given back. Before on_active it fails with errc::unavailable.
  void receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion);

  /// Starts sending what is queued now, instead of at the end of the tick.
  void flush();
  /// The same; `done` is called when the kernel has accepted all that was written before, also what waits.
  void flush(WriteDone done);
  /// Ends the sending side after what is queued; reading goes on.
  void shutdown_write();
  /// Reads no more, sends what is queued, and closes; what is not sent by the deadline is dropped. Again: no
  /// effect.
  void close(Duration deadline = kCloseDeadline);
  /// Resets the connection.
  void abort();

  /// Pauses are counted: each is answered by one resume_read(). A channel with auto_read off starts with one.
  void pause_read();
  void resume_read();
  /// Neither paused nor closing. A decoder that has several messages asks before it passes on the next one,
  /// and goes on in on_read_resumed.
  [[nodiscard]] bool reading() const noexcept { return read_pauses_ == 0 && !closing_ && !closed_; }

  /// The connection is open: after on_active and before on_inactive.
  [[nodiscard]] bool active() const noexcept { return active_; }
  /// It is closed, or closes: nothing that is written now is sent.
  [[nodiscard]] bool ended() const noexcept { return closed_ || closing_; }
  /// False above the high watermark, until the queue is at or below the low one, and while writes wait. Once
  /// it was false, on_writable_changed(true) comes.
  [[nodiscard]] bool writable() const noexcept {
    if (writable_ && !held_) return true;
    stop_seen_ = true;
    return false;
  }
  /// Bytes that the kernel has not taken yet, those of writes that wait, and those that other threads have
  /// given to refs.
  [[nodiscard]] std::size_t queued_bytes() const noexcept;
  /// Bytes that the kernel has taken; 0 before on_active and after on_inactive.
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept { return active_ ? total_sent() : 0; }
  /// Of a datagram channel: messages that the kernel has taken; otherwise 0.
  [[nodiscard]] std::uint64_t sent_packets() const noexcept { return active_ ? total_packets_sent() : 0; }
  [[nodiscard]] virtual Endpoint local_endpoint() const = 0;
  /// Of TCP peers also in on_inactive, however the connection ended.
  [[nodiscard]] virtual Endpoint peer_endpoint() const = 0;

  /// Calls `function` as an event of this channel: an exception that it throws becomes an error event and
  /// closes the channel. For a handler's timers and the callbacks it gives away.
  template <class Function>
  void run(Function&& function) noexcept {
    try {
      function();
    } catch (const std::exception& exception) {
      callback_failed(exception.what());
    } catch (...) {
      callback_failed("something that is not a std::exception");
    }
  }

  /// Calls `done` in a task of the loop, outside of all calls; at once if that takes none.
  void complete_later(WriteDone done, std::error_code error);

  /// Reports an error to the handlers, from the wire on.
  void fail(std::error_code error, std::string_view detail);
  /// Asks the handlers to finish and close; see HandlerNode::on_drain.
  void drain(Duration deadline);

 protected:
  Channel(EventLoop& loop, Watermarks watermarks, bool auto_read, const PendingLimits& limits,
          Wire wire = Wire::bytes) noexcept;
  virtual ~Channel();

  // What is behind the channel. Not called once it is closed.
  virtual void send(Chain&& bytes);           // Wire::bytes
  virtual void send_packet(Packet&& packet);  // Wire::packets
  /// How many packets were given to it; 0 for bytes, which do not fail alone.
  [[nodiscard]] virtual std::uint64_t write_position() const noexcept { return 0; }
  /// run() it after all that was sent before, not in the call, with the first failure of a packet from
  /// `begin`.
  virtual void send_marker(WriteDone&& done, std::uint64_t begin) = 0;
  /// Besides bytes there is room for one more.
  [[nodiscard]] virtual bool has_room() const noexcept { return true; }
  virtual void send_range(FileRange&& range, WriteDone done) = 0;
  virtual void send_descriptors(WithDescriptors&& message, WriteDone done) = 0;
  virtual void do_receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) = 0;
  virtual void do_flush() = 0;
  virtual void do_shutdown_write() = 0;
  virtual void do_close(Duration deadline) = 0;
  virtual void do_abort() = 0;
  virtual void do_read(bool wanted) = 0;
  [[nodiscard]] virtual std::size_t unsent_bytes() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t total_sent() const noexcept = 0;  // while it is active
  [[nodiscard]] virtual std::uint64_t total_packets_sent() const noexcept { return 0; }
  /// Deletes the channel.
  virtual void destroy() noexcept = 0;

  // What is behind the channel reports. None of these throws.
  /// Fills the pipeline; if that fails, logs it and aborts. Call it when the functions above can be called.
  void initialize(const ChannelInitializer& initializer) noexcept;
  void report_open();
  void report_read(Chain&& bytes);
  void report_packet(Packet&& packet);
  void report_refused(std::error_code error, const Endpoint& peer);
  void report_descriptors(std::vector<Socket>&& descriptors);
  void report_end();
  /// Some bytes were sent.
  void report_progress();
  void report_write_closed(std::error_code error);
  /// From here on calls do nothing, and writes are cancelled. For failing writes before report_closed.
  void begin_closed() noexcept;
  /// Last; the channel is destroyed at the end of the tick.
  void report_closed(std::error_code error);

  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// `done` inside of run().
  [[nodiscard]] WriteDone as_event(WriteDone done);
  /// Why it was closed, when it was not asked to.
  [[nodiscard]] std::error_code reason() const noexcept { return reason_; }
  void attach(std::shared_ptr<detail::ChannelState> state);

 private:
  friend class ChannelRef;
  friend class HandlerNode;
  friend class Pipeline;
  friend class detail::HeldWrites;
  friend class detail::RemoteWrite;
  template <class T>
  friend class detail::HeldWriteOf;
  template <class T>
  friend class detail::RemoteWriteOf;
  friend class WriteToken;

  enum class Admission : std::uint8_t { now, wait, refuse };

  void run_deferred() final;
  [[nodiscard]] Admission admit(std::size_t bytes) noexcept;
  void hold(Admission admission, std::unique_ptr<detail::HeldWrite> write);
  void start_held(bool all);
  template <class T>
  static std::unique_ptr<detail::HeldWrite> make_held(T&& message, WriteDone done, WriteToken token) {
    return std::make_unique<detail::HeldWriteOf<T>>(std::move(message), std::move(done), std::move(token));
  }
  template <class T>
  void start_write(T&& message, WriteDone&& done) {
    const std::uint64_t begin = done ? write_position() : 0;
    run([&] {
      if (!pipeline_.write(std::move(message))) refuse_write(kTypeName<T>);
    });
    if (done) complete(std::move(done), begin);
  }
  void start_write(detail::FlushMark&&, WriteDone&& done) { complete(std::move(done), write_position()); }
  void start_write(FileRange&& range, WriteDone&& done);
  void start_write(WithDescriptors&& message, WriteDone&& done);
  [[nodiscard]] bool may_send() noexcept;
  template <class Tell>
  void tell_all(detail::Event event, Tell&& tell);
  void send_from_pipeline(Chain&& bytes);
  void send_from_pipeline(Packet&& packet);
  template <class Message>
  void pass_received(Message&& message);
  void complete(WriteDone&& done, std::uint64_t begin);
  void close_because(std::error_code error);
  void callback_failed(std::string_view what) noexcept;
  void refuse_write(const TypeName& type);
  void update_reading();
  void update_writable() noexcept;
  void tell_writable();
  void tell_writable(bool writable);
  /// Somebody has seen that it is not writable, and waits to hear that it is, but the queue has shrunk before
  /// the handlers were told anything: they are told both.
  [[nodiscard]] bool goes_on_untold() const noexcept {
    return stop_seen_ && told_writable_ && writable_ && !held_;
  }
  [[nodiscard]] bool has_held() const noexcept { return end_held_ || pipeline_.has_unread(); }
  void deliver_unread();

  EventLoop& loop_;
  Pipeline pipeline_;
  std::shared_ptr<detail::ChannelState> state_;  // once somebody has asked for a ref
  Watermarks watermarks_;
  PendingLimits limits_;
  std::unique_ptr<detail::HeldWrites> held_writes_;  // once one has waited
  std::error_code reason_;  // what on_inactive will say, when it was our decision to close
  std::uint32_t read_pauses_;
  bool receiving_ : 1 = false;  // do_read(true) was the last word
  bool active_ : 1 = false;
  bool closing_ : 1 = false;
  bool closed_ : 1 = false;
  bool writable_ : 1 = true;
  bool held_ : 1 = false;  // writes wait in front of the pipeline
  bool told_writable_ : 1 = true;
  mutable bool stop_seen_ : 1 = false;  // writable() has said false since the handlers were told anything
  bool resumed_ : 1 = false;            // on_read_resumed is due
  bool end_held_ : 1 = false;           // on_read_end comes after bytes that wait in the pipeline
  ChannelAttributes attributes_;
};

}  // namespace linkspan

#include "linkspan/channel/channel_writes.hpp"
