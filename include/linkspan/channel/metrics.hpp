// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Metrics: what loops, servers and channels have counted, as text that Prometheus reads. ChannelMeter is a
// handler that counts for one channel, or for all that share its counters.
// Not for: an HTTP server; the program sends the text as it likes.
// Cost: a meter costs a message two additions each way and one indirect call; loops and servers count anyway.
// Text is made when it is asked for.
// Threads: Metrics belongs to one thread, which may be any; what it reads may be counting meanwhile. A meter
// is its channel's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"
#include "linkspan/channel/packet.hpp"
#include "linkspan/channel/requests.hpp"
#include "linkspan/channel/server.hpp"

namespace linkspan {

/// Of one channel, or of several, also on several loops. Any thread.
struct ChannelCounters {
  std::atomic<std::uint64_t> opened{0};
  std::atomic<std::uint64_t> closed{0};
  std::atomic<std::uint64_t> failed{0};  ///< of these, with an error
  std::atomic<std::uint64_t> reads{0};
  std::atomic<std::uint64_t> bytes_read{0};
  std::atomic<std::uint64_t> writes{0};
  std::atomic<std::uint64_t> bytes_written{0};  ///< given to the wire; without files and descriptors' bytes
  std::atomic<std::uint64_t> not_writable{0};   ///< how often the high watermark was crossed
  std::atomic<std::uint64_t> refused{0};        ///< datagrams; see HandlerNode::on_refused
};

namespace detail {

template <class Message>
class LINKSPAN_API Meter : public Handler<Message, Message, Message, Message> {
 public:
  explicit Meter(std::shared_ptr<ChannelCounters> counters) : counters_(std::move(counters)) {}
  void on_active() override;
  void on_inactive(std::error_code error) override;
  void on_read(Message&& message) override;
  void on_write(Message&& message) override;
  void on_refused(std::error_code error, const Endpoint& peer) override;
  void on_writable_changed(bool writable) override;

 private:
  std::shared_ptr<ChannelCounters> counters_;
  bool opened_ = false;
};
extern template class LINKSPAN_API Meter<Chain>;
extern template class LINKSPAN_API Meter<Packet>;

}  // namespace detail

/// Counts; put it next to the wire.
class LINKSPAN_API ChannelMeter final : public detail::Meter<Chain> {
 public:
  using Meter::Meter;
};
/// The same for datagram channels; reads and writes are messages.
class LINKSPAN_API PacketMeter final : public detail::Meter<Packet> {
 public:
  using Meter::Meter;
};

class LINKSPAN_API Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Each reads the counters now. The label tells apart several of a kind; a loop's is its name.
  void add(EventLoop& loop);
  void add(std::string_view label, const Server& server);
  void add(std::string_view label, const ChannelCounters& counters);
  void add(std::string_view label, const RequestCounters& counters);
  void add(std::string_view label, const PendingBudget& budget);
  /// A number of the program's own; `kind` is "counter" or "gauge", `name` as Prometheus allows it.
  void add(std::string_view name, std::string_view kind, std::string_view help, std::string_view label,
           std::uint64_t value);

  /// In the text format of Prometheus, version 0.0.4: families in the order in which they came first.
  [[nodiscard]] std::string text() const;

 private:
  struct Family;
  void sample(std::string_view name, std::string_view kind, std::string_view help,
              std::string_view label_name, std::string_view label, std::uint64_t value);

  std::vector<Family> families_;
};

}  // namespace linkspan
