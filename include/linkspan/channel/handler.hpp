// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Handler: one stage of a Pipeline. It takes messages from the wire side and from the application side, and
// hands on what it makes of them. Overriding a function is taking part in it: a handler that does not
// override on_read stands aside, and messages go past it at no cost.
// Not for: sharing; a handler belongs to one pipeline. See SharedHandler.
// Cost: 56 bytes; a message costs one indirect call per handler that takes part, no allocation, no look-up.
// Threads: the loop's thread only.
#pragma once

#include <any>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "linkspan/base/clock.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/channel/type_name.hpp"
#include "linkspan/transport/file_range.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

class Channel;
class Endpoint;
class HandlerNode;
class Pipeline;

/// Called once for each write that it was given to: without an error when the kernel has accepted everything
/// that was written up to then, else with the reason (errc::cancelled, errc::shut_down, connection_lost ...).
/// On a datagram channel the reason is that of the first message of this write that could not be sent.
using WriteDone = unique_function<void(std::error_code error)>;

/// Bytes with descriptors, which travel with the first of them over a unix socket; see Stream::write.
struct WithDescriptors {
  Chain data;
  std::vector<Socket> descriptors;

  [[nodiscard]] std::size_t size_bytes() const noexcept { return data.size(); }
};

/// The message type of a direction in which nothing ever goes.
struct Nothing {
  Nothing() = delete;
};

namespace detail {

/// What a pipeline knows of a handler type. One constant for each type; see kHandlerTable.
struct HandlerTable {
  TypeName name;
  const TypeName* in;
  const TypeName* next_in;
  const TypeName* out;
  const TypeName* next_out;
  void (*read)(HandlerNode& handler, void* message);   // nullptr: does not take part
  void (*write)(HandlerNode& handler, void* message);  // likewise
  std::uint32_t events;                                // bits of Event that are overridden
};

enum Event : std::uint32_t {
  kActive = 1,
  kReadEnd = 2,
  kError = 4,
  kDrain = 8,
  kUserEvent = 16,
  kInactive = 32,
  kWritableChanged = 64,
  kWriteClosed = 128,
  kReadResumed = 256,
  kDescriptors = 512,
  kRefused = 1024,
};

}  // namespace detail

/// The part of a handler that does not depend on types: its place in the pipeline, and the events. An
/// override has to be public.
///
/// Any function may throw: the exception becomes an error event with errc::handler_failed, which travels from
/// the wire to the application, and then the channel closes with that error after sending what is queued.
///
/// Every call of the channel and the pipeline is legal in every event. A handler that is removed while its
/// functions are on the stack can go on calling pass() and write(); it is destroyed at the end of the tick.
class LINKSPAN_API HandlerNode {
 public:
  HandlerNode(const HandlerNode&) = delete;
  HandlerNode& operator=(const HandlerNode&) = delete;
  virtual ~HandlerNode();

  // Told to one.

  /// The handler is in its pipeline. The connection may be open already: channel().active().
  virtual void on_added();
  /// Last event of a handler that was added: it was removed, or the channel goes.
  virtual void on_removed();
  /// Asked before on_removed: input that this handler holds and has not decoded. It goes to the handler that
  /// takes its place, or else to the next one; so a protocol upgrade loses nothing.
  virtual Chain take_unread();

  // Travelling from the wire to the application: whoever overrides one of these decides whether it goes on,
  // by calling the pass_... function of the same name. At the end of the pipeline the channel reacts.

  /// The connection is open. At the end: nothing.
  virtual void on_active();
  /// The peer will send no more; writing is still possible. At the end: close().
  virtual void on_read_end();
  /// Something failed; `detail` says what in words. At the end: logged, and close() with that error.
  virtual void on_error(std::error_code error, std::string_view detail);
  /// The server stops: finish what runs, then close, within `deadline`. At the end: close(deadline).
  virtual void on_drain(Duration deadline);
  /// Something that handlers tell each other. At the end: nothing.
  virtual void on_user_event(const std::any& event);

  /// Descriptors that came with the bytes that are read next; only with StreamOptions::receive_descriptors.
  /// At the end: closed.
  virtual void on_descriptors(std::vector<Socket>&& descriptors);

  /// Datagram channels: the network has refused what was sent to `peer` earlier (no Endpoint: not known), or
  /// a message could not be sent or received, and no completion tells of it. The channel goes on. At the end:
  /// logged, for debugging.
  virtual void on_refused(std::error_code error, const Endpoint& peer);

  // Told to all that override them, from the wire to the application.

  /// Closed: the last event of a connection, exactly once; also when connecting failed. No error after
  /// close(), or when both sides had ended.
  virtual void on_inactive(std::error_code error);
  /// More bytes than the high watermark are queued (false), or at most the low one again (true).
  virtual void on_writable_changed(bool writable);
  /// The connection broke: queued writes have failed. What was received before is still delivered, so a
  /// handler that has paused reading may want to abort() here.
  virtual void on_write_closed(std::error_code error);
  /// Reading had been paused and goes on. Decoders that held back input decode it now.
  virtual void on_read_resumed();

 protected:
  HandlerNode() noexcept = default;

  /// From on_added on, until the handler is destroyed.
  [[nodiscard]] Channel& channel() const noexcept;
  [[nodiscard]] Pipeline& pipeline() const noexcept { return *pipeline_; }
  /// Taken out of the pipeline; a decoder stops its loop then.
  [[nodiscard]] bool removed() const noexcept { return previous_ == nullptr; }

  void pass_active();
  void pass_read_end();
  void pass_error(std::error_code error, std::string_view detail);
  void pass_drain(Duration deadline);
  void pass_user_event(const std::any& event);
  void pass_descriptors(std::vector<Socket>&& descriptors);
  void pass_refused(std::error_code error, const Endpoint& peer);

  // Straight to the wire, behind what the handlers have written there so far: for handlers whose bytes the
  // ones nearer to the wire do not change.
  void write_to_wire(FileRange&& range, WriteDone done = nullptr);
  void write_to_wire(WithDescriptors&& message, WriteDone done = nullptr);

  void forward_read(void* message) { reader_->table_->read(*reader_, message); }
  void forward_write(void* message) { writer_->table_->write(*writer_, message); }
  /// When all that was written from `begin` on is sent, and what was before it.
  void complete_write(WriteDone done, std::uint64_t begin);
  void complete_write(WriteDone done) { complete_write(std::move(done), write_position()); }
  /// It threw.
  void fail_write(WriteDone done);
  [[nodiscard]] std::uint64_t write_position() const noexcept;

 private:
  friend class Channel;
  friend class Pipeline;

  [[nodiscard]] HandlerNode& next_taking_part(detail::Event event) const noexcept;

  // The pipeline is a ring: its ends are one node, which all events reach. A removed node has no previous_,
  // but keeps the other links, so that what it passes on still arrives.
  const detail::HandlerTable* table_ = nullptr;
  Pipeline* pipeline_ = nullptr;
  HandlerNode* next_ = nullptr;  // towards the application
  HandlerNode* previous_ = nullptr;
  HandlerNode* reader_ = nullptr;  // the next one towards the application that overrides on_read
  HandlerNode* writer_ = nullptr;  // the next one towards the wire that overrides on_write
};

static_assert(sizeof(HandlerNode) == 56);

/// A handler that reads In from the wire side and passes on NextIn; takes Out from the application side and
/// writes NextOut. Where nothing goes, the type is Nothing.
template <class In, class NextIn, class Out, class NextOut>
class Handler : public HandlerNode {
 public:
  using InMessage = In;
  using NextInMessage = NextIn;
  using OutMessage = Out;
  using NextOutMessage = NextOut;

  /// A message from the wire side.
  virtual void on_read(In&& message) {
    if constexpr (std::is_same_v<In, NextIn>) pass(std::move(message));
  }
  /// A message from the application side.
  virtual void on_write(Out&& message) {
    if constexpr (std::is_same_v<Out, NextOut>) write(std::move(message));
  }

 protected:
  /// On towards the application.
  void pass(NextIn&& message) { forward_read(&message); }
  /// On towards the wire. Bytes leave together at the end of the tick.
  void write(NextOut&& message) { forward_write(&message); }
  void write(NextOut&& message, WriteDone done) {
    const std::uint64_t begin = write_position();
    try {
      forward_write(&message);
    } catch (...) {
      fail_write(std::move(done));
      throw;
    }
    complete_write(std::move(done), begin);
  }
};

/// Turns Wire into In, and Out into Wire.
template <class Wire, class In, class Out = In>
using Codec = Handler<Wire, In, Out, Wire>;

/// The last handler of most pipelines: takes In, answers with Out, and lets Channel::write(Out) through.
template <class In, class Out = In>
using Service = Handler<In, Nothing, Out, Out>;

}  // namespace linkspan

#include "linkspan/channel/handler_table.hpp"
