// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The commands about the server itself.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache.hpp"
#include "command.hpp"
#include "glob.hpp"
#include "session.hpp"

namespace linkspan::cache {
namespace {

// --- INFO -------------------------------------------------------------------------------------------------

std::string line(std::string_view name, std::string_view value) {
  return std::string(name) + ":" + std::string(value) + "\r\n";
}
std::string line(std::string_view name, std::uint64_t value) {
  return line(name, std::to_string(value));
}

std::string server_section(const Cache& cache) {
  const auto up = std::chrono::steady_clock::now() - cache.started;
  return "# Server\r\n" + line("redis_version", kRedisVersion) + line("redis_mode", "standalone") +
         line("server_name", "linkspan-cached") + line("multiplexing_api", cache.transport) +
         line("process_id", static_cast<std::uint64_t>(getpid())) + line("run_id", cache.run_id) +
         line("tcp_port", cache.settings.port) +
         line("uptime_in_seconds",
              static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(up).count()));
}

std::string clients_section(const Cache& cache) {
  return "# Clients\r\n" + line("connected_clients", cache.clients.load()) +
         line("maxclients", cache.settings.maxclients);
}

std::string memory_section(const Cache& cache) {
  const OffHeapMapStatistics statistics = cache.map->statistics();
  return "# Memory\r\n" + line("used_memory", statistics.used_bytes) +
         line("used_memory_dataset", statistics.key_bytes + statistics.value_bytes) +
         line("maxmemory", cache.settings.maxmemory) +
         line("maxmemory_policy", cache.settings.maxmemory_policy);
}

std::string stats_section(const Cache& cache) {
  const OffHeapMapStatistics statistics = cache.map->statistics();
  return "# Stats\r\n" + line("total_connections_received", cache.connections.load()) +
         line("total_commands_processed", cache.commands()) +
         line("rejected_connections", cache.connections_refused.load()) +
         line("expired_keys", statistics.expired) + line("evicted_keys", statistics.evicted) +
         line("keyspace_hits", statistics.hits) + line("keyspace_misses", statistics.misses);
}

std::string persistence_section(const Cache&) {
  return "# Persistence\r\n" + line("loading", std::uint64_t{0});
}

std::string replication_section(const Cache&) {
  return "# Replication\r\n" + line("role", "master") + line("connected_slaves", std::uint64_t{0});
}

std::string keyspace_section(const Cache& cache) {
  const OffHeapMapStatistics statistics = cache.map->statistics();
  if (statistics.entries == 0) return "# Keyspace\r\n";
  return "# Keyspace\r\ndb0:keys=" + std::to_string(statistics.entries) +
         ",expires=" + std::to_string(statistics.expiring_entries) + ",avg_ttl=0\r\n";
}

struct Section {
  std::string_view name;
  std::string (*text)(const Cache& cache);
};
constexpr Section kSections[] = {{"server", server_section},    {"clients", clients_section},
                                 {"memory", memory_section},    {"persistence", persistence_section},
                                 {"stats", stats_section},      {"replication", replication_section},
                                 {"keyspace", keyspace_section}};

// --- COMMAND ----------------------------------------------------------------------------------------------

void reply_command(RespWriter& reply, const Command& each) {
  std::vector<std::string_view> flags;
  for (const auto& [flag, name] : {std::pair<CommandFlag, std::string_view>{kWrites, "write"},
                                   {kReads, "readonly"},
                                   {kNeedsMemory, "denyoom"},
                                   {kBeforeAuth, "no_auth"},
                                   {kFast, "fast"}}) {
    if ((each.flags & flag) != 0) flags.push_back(name);
  }
  reply.array(10);
  reply.bulk(each.name);
  reply.integer(each.arity);
  reply.set(flags.size());
  for (const std::string_view flag : flags) reply.simple_string(flag);
  reply.integer(each.first_key);
  reply.integer(each.last_key);
  reply.integer(each.key_step);
  reply.set(0);    // categories of access control
  reply.array(0);  // tips
  reply.array(0);  // key specifications
  reply.array(0);  // subcommands
}

// --- CONFIG -----------------------------------------------------------------------------------------------

std::vector<std::pair<std::string_view, std::string>> parameters(const Settings& settings) {
  return {{"appendonly", "no"},
          {"bind", settings.bind},
          {"client-query-buffer-limit", std::to_string(settings.client_query_buffer_limit)},
          {"databases", "1"},
          {"io-threads", std::to_string(settings.loops)},
          {"maxclients", std::to_string(settings.maxclients)},
          {"maxmemory", std::to_string(settings.maxmemory)},
          {"maxmemory-policy", settings.maxmemory_policy},
          {"port", std::to_string(settings.port)},
          {"proto-max-bulk-len", std::to_string(settings.proto_max_bulk_len)},
          {"requirepass", settings.requirepass},
          {"save", ""},
          {"timeout", std::to_string(settings.timeout)},
          {"unixsocket", settings.unixsocket}};
}

}  // namespace

void info(Call& call) {
  const auto wanted = [&](std::string_view section) {
    if (call.size() == 1) return true;
    for (std::size_t i = 1; i != call.size(); ++i) {
      if (is(call[i], section) || is(call[i], "all") || is(call[i], "default") || is(call[i], "everything")) {
        return true;
      }
    }
    return false;
  };
  std::string text;
  for (const Section& section : kSections) {
    if (!wanted(section.name)) continue;
    if (!text.empty()) text += "\r\n";
    text += section.text(call.cache);
  }
  call.reply.verbatim("txt", text);
}

void command(Call& call) {
  RespWriter& reply = call.reply;
  const auto commands = all_commands();
  if (call.size() == 1) {
    reply.array(commands.size());
    for (const Command& each : commands) reply_command(reply, each);
  } else if (is(call[1], "count")) {
    if (call.size() != 2) return wrong_number_of_arguments(call, "command|count");
    reply.integer(static_cast<std::int64_t>(commands.size()));
  } else if (is(call[1], "list")) {
    if (call.size() != 2) return call.syntax_error();
    reply.array(commands.size());
    for (const Command& each : commands) reply.bulk(each.name);
  } else if (is(call[1], "info")) {
    const bool all = call.size() == 2;
    reply.array(all ? commands.size() : call.size() - 2);
    for (std::size_t i = 2; i < call.size(); ++i) {
      if (const Command* const found = find_command(call[i])) {
        reply_command(reply, *found);
      } else {
        reply.null_array();
      }
    }
    if (all) {
      for (const Command& each : commands) reply_command(reply, each);
    }
  } else if (is(call[1], "docs")) {
    reply.map(0);
  } else {
    unknown_subcommand(call, "COMMAND");
  }
}

void config(Call& call) {
  if (!is(call[1], "get")) return unknown_subcommand(call, "CONFIG");
  if (call.size() < 3) return wrong_number_of_arguments(call, "config|get");
  auto found = parameters(call.cache.settings);
  std::erase_if(found, [&](const auto& parameter) {
    for (std::size_t i = 2; i != call.size(); ++i) {
      if (glob_matches(call[i], parameter.first, true)) return false;
    }
    return true;
  });
  call.reply.map(found.size());
  for (const auto& [name, value] : found) {
    call.reply.bulk(name);
    call.reply.bulk(value);
  }
}

void time(Call& call) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  call.reply.array(2);
  call.reply.bulk(std::to_string(us / 1'000'000));
  call.reply.bulk(std::to_string(us % 1'000'000));
}

}  // namespace linkspan::cache
