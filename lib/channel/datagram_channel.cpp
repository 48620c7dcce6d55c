// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/datagram_channel.hpp"

#include <algorithm>
#include <future>
#include <limits>
#include <utility>

#include "lib/channel/only_streams.hpp"
#include "linkspan/base/ring_queue.hpp"
#include "linkspan/loop/pending_budget.hpp"
#include "linkspan/transport/transport.hpp"

namespace linkspan {
namespace {

constexpr std::size_t kLeastMessageCost =
    256;  // of memory, that a message in the queue takes besides its own

std::size_t sum(std::size_t a, std::size_t b) noexcept {
  return a > std::numeric_limits<std::size_t>::max() - b ? std::numeric_limits<std::size_t>::max() : a + b;
}

Watermarks watermarks_of(const DatagramChannelOptions& options) noexcept {
  const std::size_t high = std::min(options.watermarks.high_bytes, options.datagram.queue_bytes);
  return {high, std::min(options.watermarks.low_bytes, high)};
}

PendingLimits limits_of(const DatagramChannelOptions& options) noexcept {
  PendingLimits limits = options.pending;
  limits.max_bytes = std::min(limits.max_bytes, options.datagram.queue_bytes);
  return limits;
}

}  // namespace

// Owns itself: it is deleted at the end of the tick in which its socket has closed.
class DatagramChannel final : public Channel, private DatagramHandler {
 public:
  static Result<BoundChannel> open(EventLoop& loop, Socket socket, const DatagramChannelOptions& options);

  [[nodiscard]] Endpoint local_endpoint() const override {
    return socket_ ? socket_.local_endpoint() : Endpoint();
  }
  [[nodiscard]] Endpoint peer_endpoint() const override { return peer_; }

 private:
  // Of a message that was given to the socket.
  struct Outcome {
    std::error_code error;
    bool known = false;
  };
  // Completes when the messages before `end` have; a failure of those from `begin` on is its own.
  struct Marker {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool enclosed = false;  // by one behind it, whose write led to this one
    std::error_code error;
    WriteDone done;
  };
  // At the end of the tick: what must not happen inside a call.
  class Later final : public linkspan::DeferredTask {
   public:
    explicit Later(DatagramChannel& channel) noexcept : channel_(channel) {}
    void run_deferred() override { channel_.settle(); }

   private:
    DatagramChannel& channel_;
  };

  DatagramChannel(EventLoop& loop, const DatagramChannelOptions& options)
      : Channel(loop, watermarks_of(options), options.auto_read, limits_of(options), Wire::packets),
        queue_messages_(options.datagram.queue_messages),
        message_cost_(std::max(kLeastMessageCost, watermarks_of(options).high_bytes / queue_messages_ + 1)) {}
  ~DatagramChannel() override = default;

  void send_packet(Packet&& packet) override;
  [[nodiscard]] std::uint64_t write_position() const noexcept override { return given_; }
  void send_marker(WriteDone&& done, std::uint64_t begin) override;
  void send_range(FileRange&& range, WriteDone done) override;
  void send_descriptors(WithDescriptors&& message, WriteDone done) override;
  void do_receive_into(Block&& memory, std::size_t size, ReceiveCompletion completion) override;
  void do_flush() override {}
  void do_shutdown_write() override;
  void do_close(Duration deadline) override { socket_.close(deadline); }
  void do_abort() override { socket_.abort(); }
  void do_read(bool wanted) override { wanted ? socket_.start_read() : socket_.pause_read(); }
  [[nodiscard]] bool has_room() const noexcept override {
    return socket_.queued_messages() < queue_messages_;
  }
  [[nodiscard]] std::size_t unsent_bytes() const noexcept override {
    return socket_ ? socket_.queued_bytes() + socket_.queued_messages() * message_cost_ : 0;
  }
  [[nodiscard]] std::uint64_t total_sent() const noexcept override { return sent_bytes_; }
  [[nodiscard]] std::uint64_t total_packets_sent() const noexcept override { return sent_packets_; }
  void destroy() noexcept override { delete this; }

  void on_receive(std::span<Datagram> messages) override;
  void on_error(std::error_code error, const Endpoint& to) override;
  void on_closed(std::error_code error) override;

  void sent(std::uint64_t number, std::size_t size, std::error_code error);
  void settle();
  [[nodiscard]] bool give_failure(std::error_code error) noexcept;
  void complete_markers();

  DatagramSocket socket_;
  Endpoint peer_;  // when it is connected
  const std::size_t queue_messages_;
  const std::size_t message_cost_;
  std::uint64_t given_ = 0;      // messages
  std::uint64_t completed_ = 0;  // of these, all before the first one that is open
  std::uint64_t sent_bytes_ = 0;
  std::uint64_t sent_packets_ = 0;
  RingQueue<Outcome> outcomes_;  // of those that are open, and what follows them
  RingQueue<Marker> markers_;    // by their ends
  Later later_{*this};
  bool opened_ = false;
};

// --- opening ----------------------------------------------------------------------------------------------

Result<BoundChannel> DatagramChannel::open(EventLoop& loop, Socket socket,
                                           const DatagramChannelOptions& options) {
  if (options.initializer == nullptr) {
    return Error(errc::invalid_argument, "a datagram channel has an initializer, which fills its pipeline");
  }
  if (options.datagram.queue_messages == 0) {
    return Error(errc::invalid_argument, "queue_messages is 0 (expected at least 1)");
  }
  if (loop.stopping()) return Error(errc::stopped, "the loop of a datagram channel is stopping");
  DatagramOptions with_room = options.datagram;
  with_room.receive_batch = 1;  // so that what comes after a pause stays in the socket
  // The channel bounds what the program writes; when it closes, what waits may come on top.
  with_room.queue_messages = sum(with_room.queue_messages, options.pending.max_waiting);
  with_room.queue_bytes = sum(with_room.queue_bytes, limits_of(options).max_bytes);

  auto* channel = new DatagramChannel(loop, options);
  BoundChannel bound;
  try {
    bound.channel = channel->ref();
    Transport& transport = Transport::of(loop);
    Result<DatagramSocket> opened = socket ? transport.open_datagram(std::move(socket), with_room, *channel)
                                           : transport.open_datagram(options.local, with_room, *channel);
    if (!opened) {
      channel->begin_closed();
      delete channel;
      return opened.error();
    }
    channel->socket_ = std::move(opened).value();
  } catch (...) {
    channel->begin_closed();
    delete channel;
    throw;
  }
  // From here on the socket's end destroys it.
  channel->peer_ = channel->socket_.peer_endpoint();
  loop.defer(channel->later_);
  bound.local = channel->local_endpoint();
  channel->initialize(options.initializer);
  if (channel->reason()) return Error(channel->reason(), "a datagram channel's initializer failed");
  return bound;
}

// --- sending ----------------------------------------------------------------------------------------------

void DatagramChannel::send_packet(Packet&& packet) {
  outcomes_.push_back({});
  const std::uint64_t number = given_++;
  PendingBudget* const budget = loop().pending_budget();
  if (budget != nullptr && !writable() && budget->exceeded(2)) [[unlikely]] {
    budget->count_refused();
    outcomes_[static_cast<std::size_t>(number - completed_)] = {make_error_code(errc::limit_exceeded), true};
    loop().defer(later_);
    return;
  }
  const std::size_t size = packet.data.size();
  try {
    socket_.send(peer_.address_size() != 0 ? Endpoint() : packet.peer, std::move(packet.data),
                 [this, number, size](std::error_code error) { sent(number, size, error); });
  } catch (...) {
    outcomes_[static_cast<std::size_t>(number - completed_)] = {make_error_code(errc::pool_exhausted), true};
    loop().defer(later_);
    throw;
  }
}

void DatagramChannel::send_marker(WriteDone&& done, std::uint64_t begin) {
  markers_.reserve_one();
  Marker marker{begin, given_, false, {}, std::move(done)};
  if (begin == given_ && ended()) marker.error = make_error_code(errc::shut_down);
  for (std::size_t i = markers_.size(); i != 0 && markers_[i - 1].end > begin; --i) {
    if (markers_[i - 1].begin >= begin) markers_[i - 1].enclosed = true;
  }
  markers_.push_back(std::move(marker));
  if (outcomes_.empty()) loop().defer(later_);
}

void DatagramChannel::sent(std::uint64_t number, std::size_t size, std::error_code error) {
  outcomes_[static_cast<std::size_t>(number - completed_)] = {error, true};
  if (!error) {
    sent_bytes_ += size;
    ++sent_packets_;
  }
  settle();
}

// The socket completes in order, but for what it refuses at once.
void DatagramChannel::settle() {
  if (!opened_ && !ended()) {
    opened_ = true;
    report_open();
  }
  while (!outcomes_.empty() && outcomes_.front().known) {
    const std::error_code error = outcomes_.pop_front().error;
    ++completed_;
    if (error && !give_failure(error) && !ended()) report_refused(error, {});
    complete_markers();
  }
  complete_markers();
  if (!closed()) report_progress();
}

// Of the message that was completed last. False: no write of it has a completion.
bool DatagramChannel::give_failure(std::error_code error) noexcept {
  bool given = false;
  for (std::size_t i = 0; i < markers_.size(); ++i) {
    Marker& marker = markers_[i];
    if (marker.begin < completed_) {
      if (!marker.error) marker.error = error;
      given = true;
    } else if (!marker.enclosed) {
      break;  // all that follow begin later
    }
  }
  return given;
}

void DatagramChannel::complete_markers() {
  while (!markers_.empty() && markers_.front().end <= completed_) {
    Marker marker = markers_.pop_front();
    run([&] { marker.done(marker.error); });
  }
}

// --- what only streams have -------------------------------------------------------------------------------

void DatagramChannel::do_shutdown_write() {
  refuse_on_datagrams(*this, nullptr, "ends of its sending side");
}

void DatagramChannel::send_range(FileRange&&, WriteDone done) {
  refuse_on_datagrams(*this, std::move(done), "ranges of files");
}

void DatagramChannel::send_descriptors(WithDescriptors&&, WriteDone done) {
  refuse_on_datagrams(*this, std::move(done), "descriptors");
}

void DatagramChannel::do_receive_into(Block&& memory, std::size_t, ReceiveCompletion completion) {
  refuse_on_datagrams(*this, std::move(memory), std::move(completion));
}

// --- what the socket reports ------------------------------------------------------------------------------

void DatagramChannel::on_receive(std::span<Datagram> messages) {
  for (Datagram& message : messages) {
    report_packet({Chain(std::move(message.data)), message.from, message.truncated});
  }
}

void DatagramChannel::on_error(std::error_code error, const Endpoint& to) {
  settle();
  report_refused(error, to);
}

void DatagramChannel::on_closed(std::error_code error) {
  later_.unlink();
  begin_closed();
  settle();  // those that waited for nothing but the end of the tick
  socket_ = DatagramSocket();
  report_closed(error);
}

// --- open_datagram_channel --------------------------------------------------------------------------------

Result<BoundChannel> open_datagram_channel(EventLoop& loop, Socket socket, DatagramChannelOptions options) {
  if (loop.in_loop_thread()) return DatagramChannel::open(loop, std::move(socket), options);
  std::promise<Result<BoundChannel>> opened;
  const bool posted = loop.post([&]() noexcept {
    try {
      opened.set_value(DatagramChannel::open(loop, std::move(socket), options));
    } catch (...) {
      opened.set_exception(std::current_exception());
    }
  });
  if (!posted) return Error(errc::stopped, "the loop of a datagram channel has stopped");
  return opened.get_future().get();
}

Result<BoundChannel> open_datagram_channel(EventLoop& loop, DatagramChannelOptions options) {
  return open_datagram_channel(loop, Socket(), std::move(options));
}

// --- PayloadCodec -----------------------------------------------------------------------------------------

void PayloadCodec::on_read(Packet&& packet) {
  if (packet.truncated) return pass_refused(make_error_code(errc::truncated), packet.peer);
  pass(std::move(packet.data));
}

void PayloadCodec::on_write(Chain&& data) {
  write({std::move(data), {}});
}

}  // namespace linkspan
