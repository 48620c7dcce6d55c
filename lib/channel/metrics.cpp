// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/metrics.hpp"

#include <algorithm>

namespace linkspan {

// --- ChannelMeter -----------------------------------------------------------------------------------------

namespace {

void count(std::atomic<std::uint64_t>& counter, std::uint64_t amount = 1) noexcept {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace

namespace detail {

template <class Message>
void Meter<Message>::on_active() {
  opened_ = true;
  count(counters_->opened);
  this->pass_active();
}

template <class Message>
void Meter<Message>::on_inactive(std::error_code error) {
  if (!opened_) return;
  count(counters_->closed);
  if (error) count(counters_->failed);
}

template <class Message>
void Meter<Message>::on_read(Message&& message) {
  count(counters_->reads);
  count(counters_->bytes_read, message_bytes(message));
  this->pass(std::move(message));
}

template <class Message>
void Meter<Message>::on_write(Message&& message) {
  count(counters_->writes);
  count(counters_->bytes_written, message_bytes(message));
  this->write(std::move(message));
}

template <class Message>
void Meter<Message>::on_refused(std::error_code error, const Endpoint& peer) {
  count(counters_->refused);
  this->pass_refused(error, peer);
}

template <class Message>
void Meter<Message>::on_writable_changed(bool writable) {
  if (!writable) count(counters_->not_writable);
}

template class Meter<Chain>;
template class Meter<Packet>;

}  // namespace detail

// --- Metrics ----------------------------------------------------------------------------------------------

struct Metrics::Family {
  std::string name;
  std::string kind;
  std::string help;
  std::string samples;
};

namespace {

// As the text format asks for in label values and, but for the quotes, in help texts.
std::string escaped(std::string_view text, bool quotes) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
    } else {
      if (c == '\\' || (quotes && c == '"')) result += '\\';
      result += c;
    }
  }
  return result;
}

}  // namespace

Metrics::Metrics() = default;
Metrics::~Metrics() = default;

void Metrics::sample(std::string_view name, std::string_view kind, std::string_view help,
                     std::string_view label_name, std::string_view label, std::uint64_t value) {
  auto family = std::ranges::find_if(families_, [&](const Family& each) { return each.name == name; });
  if (family == families_.end()) {
    family = families_.insert(families_.end(),
                              {std::string(name), std::string(kind), escaped(help, false), std::string()});
  }
  family->samples += family->name;
  family->samples += '{';
  family->samples += label_name;
  family->samples += "=\"" + escaped(label, true) + "\"} " + std::to_string(value) + '\n';
}

void Metrics::add(std::string_view name, std::string_view kind, std::string_view help, std::string_view label,
                  std::uint64_t value) {
  sample(name, kind, help, "name", label, value);
}

std::string Metrics::text() const {
  std::string text;
  for (const Family& family : families_) {
    text += "# HELP " + family.name + ' ' + family.help + '\n';
    text += "# TYPE " + family.name + ' ' + family.kind + '\n';
    text += family.samples;
  }
  return text;
}

void Metrics::add(EventLoop& loop) {
  const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    sample(name, "counter", help, "loop", loop.name(), value);
  };
  const auto gauge = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    sample(name, "gauge", help, "loop", loop.name(), value);
  };
  const LoopCounters& counters = loop.counters();
  counter("linkspan_loop_ticks_total", "Ticks.", counters.ticks.get());
  counter("linkspan_loop_tasks_total", "Tasks that were run.", counters.tasks.get());
  counter("linkspan_loop_timers_total", "Timers that fired.", counters.timers.get());
  counter("linkspan_loop_wake_ups_total", "Ticks that slept.", counters.wake_ups.get());
  counter("linkspan_loop_busy_polls_total", "Ticks that polled instead of sleeping.",
          counters.busy_polls.get());
  counter("linkspan_loop_busy_poll_hits_total", "Of these, in which something came.",
          counters.busy_poll_hits.get());
  counter("linkspan_loop_busy_poll_nanoseconds_total", "Time spent polling.", counters.busy_poll_ns.get());
  counter("linkspan_loop_system_calls_total", "System calls of the engine.", counters.system_calls.get());
  counter("linkspan_loop_received_bytes_total", "Bytes received.", counters.bytes_received.get());
  counter("linkspan_loop_sent_bytes_total", "Bytes sent.", counters.bytes_sent.get());
  counter("linkspan_loop_zero_copy_sends_total", "Zero-copy sends.", counters.zero_copy_sends.get());
  counter("linkspan_loop_zero_copy_copied_total", "Of these, copied after all.",
          counters.zero_copy_copied.get());
  counter("linkspan_loop_failed_callbacks_total", "Callbacks that threw.", counters.failed_callbacks.get());
  gauge("linkspan_loop_worst_lateness_nanoseconds", "The latest timer so far.",
        counters.worst_lateness_ns.get());
  counter("linkspan_loop_copied_bytes_total", "Payload bytes that were copied.", loop.copy_counts().total());
  const BlockPoolStatistics pool = loop.pool().statistics();
  gauge("linkspan_pool_live_bytes", "Bytes of blocks that are in use.", pool.live_bytes);
  gauge("linkspan_pool_cached_bytes", "Bytes of blocks that wait for use.", pool.cached_bytes);
  gauge("linkspan_pool_high_water_bytes", "The most that was in use.", pool.high_water_bytes);
  counter("linkspan_pool_allocations_total", "Blocks handed out.", pool.allocations);
  counter("linkspan_pool_refusals_total", "Blocks refused because of the budget.", pool.refusals);
  if (loop.pending_budget() != nullptr) add(loop.name(), *loop.pending_budget());
}

void Metrics::add(std::string_view label, const Server& server) {
  const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    sample(name, "counter", help, "server", label, value);
  };
  const ServerCounters counters = server.counters();
  sample("linkspan_server_connections", "gauge", "Open connections.", "server", label, server.connections());
  counter("linkspan_server_accepted_total", "Connections that became channels.", counters.accepted);
  counter("linkspan_server_closed_total", "Channels that are closed.", counters.closed);
  counter("linkspan_server_refused_max_connections_total", "Refused: too many in all.",
          counters.refused_max_connections);
  counter("linkspan_server_refused_max_connections_per_address_total", "Refused: too many of one address.",
          counters.refused_max_connections_per_address);
  counter("linkspan_server_refused_max_accepts_per_second_total", "Refused: too fast.",
          counters.refused_max_accepts_per_second);
  counter("linkspan_server_failed_total", "Accepted, but lost.", counters.failed);
}

void Metrics::add(std::string_view label, const ChannelCounters& counters) {
  const auto counter = [&](std::string_view name, std::string_view help,
                           const std::atomic<std::uint64_t>& value) {
    sample(name, "counter", help, "channel", label, value.load(std::memory_order_relaxed));
  };
  counter("linkspan_channel_opened_total", "Channels that were opened.", counters.opened);
  counter("linkspan_channel_closed_total", "Channels that are closed.", counters.closed);
  counter("linkspan_channel_failed_total", "Of these, with an error.", counters.failed);
  counter("linkspan_channel_reads_total", "Reads.", counters.reads);
  counter("linkspan_channel_read_bytes_total", "Bytes read.", counters.bytes_read);
  counter("linkspan_channel_writes_total", "Writes to the wire.", counters.writes);
  counter("linkspan_channel_written_bytes_total", "Bytes written to the wire.", counters.bytes_written);
  counter("linkspan_channel_not_writable_total", "Crossings of the high watermark.", counters.not_writable);
  counter("linkspan_channel_refused_total", "Datagrams that were refused.", counters.refused);
}

void Metrics::add(std::string_view label, const RequestCounters& counters) {
  const auto counter = [&](std::string_view name, std::string_view help, const Counter& value) {
    sample(name, "counter", help, "client", label, value.get());
  };
  counter("linkspan_requests_total", "Requests that were sent.", counters.requests);
  counter("linkspan_requests_answered_total", "Of these, answered.", counters.answered);
  counter("linkspan_requests_failed_total", "Of these, failed.", counters.failed);
  counter("linkspan_requests_refused_total", "Requests that were not sent.", counters.refused);
  counter("linkspan_requests_unmatched_total", "Answers that nobody waited for.", counters.unmatched);
}

void Metrics::add(std::string_view label, const PendingBudget& budget) {
  const auto add_one = [&](std::string_view name, std::string_view kind, std::string_view help,
                           std::uint64_t value) { sample(name, kind, help, "budget", label, value); };
  add_one("linkspan_pending_bytes", "gauge", "Bytes that wait to be sent.", budget.used_bytes());
  add_one("linkspan_pending_max_bytes", "gauge", "How many may; 0: any number.", budget.max_bytes());
  add_one("linkspan_pending_high_water_bytes", "gauge", "The most that waited.", budget.high_water_bytes());
  add_one("linkspan_pending_refused_writes_total", "counter", "Writes that were refused.",
          budget.refused_writes());
  add_one("linkspan_pending_aborted_channels_total", "counter", "Channels that were aborted.",
          budget.aborted_channels());
}

}  // namespace linkspan
