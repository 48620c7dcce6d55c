// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the sessions of all loops share (Cache), and those of one loop (LoopPart).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/base/counter.hpp"
#include "linkspan/codec/resp_writer.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/store/off_heap_map.hpp"
#include "settings.hpp"

namespace linkspan::cache {

/// Whose commands and replies these are.
inline constexpr std::string_view kRedisVersion = "7.0.15";

struct LoopPart;

struct Cache {
  Settings settings;
  std::unique_ptr<OffHeapMap> map;
  std::vector<std::unique_ptr<LoopPart>> parts;  // one for each loop
  std::string transport;
  std::string run_id;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  std::atomic<std::int64_t> next_client_id{1};
  std::atomic<std::size_t> clients{0};
  std::atomic<std::uint64_t> connections{0};          // so far
  std::atomic<std::uint64_t> connections_refused{0};  // because of maxclients

  [[nodiscard]] std::uint64_t commands() const noexcept;
};

/// Only its loop's thread uses it, but for the counters, which any thread reads.
struct LoopPart {
  explicit LoopPart(EventLoop& loop_in) : loop(loop_in) { reply.emplace(loop.pool()); }

  EventLoop& loop;
  /// What a session answers to the commands of one read. Empty when it is another one's turn.
  std::optional<RespWriter> reply;
  Counter commands;
  Counter errors;  // of protocol
};

inline std::uint64_t Cache::commands() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& part : parts) sum += part->commands.get();
  return sum;
}

}  // namespace linkspan::cache
