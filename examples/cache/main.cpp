// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// linkspan-cached: a cache that speaks Redis's protocol. At SIGINT or SIGTERM it accepts no more, sends what
// it has answered, and ends.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cache.hpp"
#include "linkspan/channel/metrics.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/channel/termination.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/transport.hpp"
#include "metrics_page.hpp"
#include "session.hpp"

namespace linkspan::cache {
namespace {

constexpr std::size_t kConnectionsSpare = 64;  // those that are told that there are too many
constexpr std::size_t kReceiveBytes = std::size_t{256} << 20;
constexpr std::size_t kSweepEntries = 2000;
constexpr auto kSweepInterval = std::chrono::milliseconds(100);
constexpr unsigned kShardsPerLoop = 4;

void add_options(CLI::App& app, Settings& settings) {
  const CLI::AsSizeValue bytes(false);
  app.set_config("--config", "", "a file of these options, a line each: port=7000");
  app.add_option("--bind", settings.bind, "address")->capture_default_str();
  app.add_option("--port", settings.port, "0 takes a free one")->capture_default_str();
  app.add_option("--unixsocket", settings.unixsocket, "also listen at this path");
  app.add_option("--metrics-port", settings.metrics_port,
                 "counters for Prometheus, over HTTP at the same address; 0 takes a free port");
  app.add_option("--requirepass", settings.requirepass, "the password of AUTH and HELLO");
  app.add_option("--maxclients", settings.maxclients)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--maxmemory", settings.maxmemory, "of all keys and values, such as 100mb")
      ->transform(bytes)
      ->capture_default_str();
  app.add_option("--maxmemory-policy", settings.maxmemory_policy,
                 "noeviction, or allkeys-lru: what has not been read lately makes room")
      ->check(CLI::IsMember({"noeviction", "allkeys-lru"}))
      ->capture_default_str();
  app.add_option("--proto-max-bulk-len", settings.proto_max_bulk_len, "of one key or value")
      ->transform(bytes)
      ->capture_default_str();
  app.add_option("--client-query-buffer-limit", settings.client_query_buffer_limit, "of one command")
      ->transform(bytes)
      ->capture_default_str();
  app.add_option("--timeout", settings.timeout, "seconds without traffic that end a connection; 0: none")
      ->capture_default_str();
  app.add_option("--loops", settings.loops, "threads")->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--transport", settings.transport, "io_uring, epoll, asio or auto")->capture_default_str();
  app.add_option("--drain-seconds", settings.drain_seconds, "after a signal")->capture_default_str();
}

Endpoint endpoint(const Settings& settings, std::uint16_t port) {
  const bool v6 = settings.bind.find(':') != std::string::npos && !settings.bind.starts_with('[');
  const std::string host = v6 ? "[" + settings.bind + "]" : settings.bind;
  return Endpoint::parse(host + ":" + std::to_string(port)).value_or_throw();
}

std::string make_run_id() {
  std::random_device entropy;
  std::string id;
  for (int i = 0; i != 40; ++i) id += "0123456789abcdef"[entropy() % 16];
  return id;
}

std::unique_ptr<OffHeapMap> open_map(Settings& settings) {
  OffHeapMapOptions options;
  options.max_bytes = settings.maxmemory;
  options.max_value_bytes = settings.proto_max_bulk_len;
  options.eviction = settings.maxmemory_policy == "noeviction" ? Eviction::none : Eviction::clock;
  while (options.shards < kShardsPerLoop * settings.loops) options.shards *= 2;
  return OffHeapMap::open(options).value_or_throw();
}

LoopGroupOptions loop_options(const Settings& settings) {
  LoopGroupOptions options;
  options.size = settings.loops;
  options.loop.name = "cached";
  // A budget, not memory that is taken: the largest command must fit beside all else.
  options.loop.pool.budget_bytes = kReceiveBytes + 2 * settings.client_query_buffer_limit;
  return options;
}

std::string metrics_text(const Cache& cache, const LoopGroup& group, const Server& server) {
  Metrics metrics;
  for (EventLoop* loop : group.loops()) metrics.add(*loop);
  metrics.add("clients", server);
  const OffHeapMapStatistics statistics = cache.map->statistics();
  const auto add = [&](std::string_view name, std::string_view kind, std::string_view help,
                       std::uint64_t value) {
    metrics.add("linkspan_cached_" + std::string(name), kind, help, "", value);
  };
  add("clients", "gauge", "Connected clients.", cache.clients.load());
  add("clients_refused_total", "counter", "Clients above maxclients.", cache.connections_refused.load());
  add("commands_total", "counter", "Commands.", cache.commands());
  add("keys", "gauge", "Keys.", statistics.entries);
  add("expiring_keys", "gauge", "Keys with a time to live.", statistics.expiring_entries);
  add("used_bytes", "gauge", "Memory of keys and values.", statistics.used_bytes);
  add("pinned_bytes", "gauge", "Of these, no key's any more, but being sent.", statistics.pinned_bytes);
  add("max_bytes", "gauge", "maxmemory.", cache.settings.maxmemory);
  add("hits_total", "counter", "Reads that found their key.", statistics.hits);
  add("misses_total", "counter", "Reads that did not.", statistics.misses);
  add("expired_total", "counter", "Keys whose time was over.", statistics.expired);
  add("evicted_total", "counter", "Keys that made room.", statistics.evicted);
  add("refused_total", "counter", "Writes for which there was no room.", statistics.refused);
  return metrics.text();
}

int serve(Settings settings) {
  const EngineFactory engine = transport_engine(settings.transport).value_or_throw();
  Cache cache;
  cache.settings = std::move(settings);
  cache.run_id = make_run_id();
  cache.map = open_map(cache.settings);
  const auto group = LoopGroup::create(engine, loop_options(cache.settings)).value_or_throw();
  for (EventLoop* loop : group->loops()) cache.parts.push_back(std::make_unique<LoopPart>(*loop));
  const auto main_loop = EventLoop::create(engine).value_or_throw();  // for signals, sweeps and metrics
  cache.transport = Transport::of(*main_loop).name();

  ServerOptions options;
  options.max_connections = cache.settings.maxclients + kConnectionsSpare;
  options.initializer = [&cache](Channel& channel) {
    const auto part = std::ranges::find(cache.parts, &channel.loop(), [](auto& each) { return &each->loop; });
    return Session::open(channel, cache, **part);
  };
  options.endpoint = endpoint(cache.settings, cache.settings.port);
  Server server = Server::start(*group, options).value_or_throw();
  cache.settings.port = server.local_endpoint().port();
  std::vector<Server> others;
  if (!cache.settings.unixsocket.empty()) {
    const std::string& path = cache.settings.unixsocket;
    if (std::filesystem::is_socket(path)) std::filesystem::remove(path);  // of one that was killed
    options.endpoint = Endpoint::parse("unix:" + path).value_or_throw();
    others.push_back(Server::start(*group, options).value_or_throw());
  }
  // Before anybody is told that there is something to end.
  const auto termination = Termination::watch(*main_loop, [&](int) {
                             const auto deadline = std::chrono::seconds(cache.settings.drain_seconds);
                             for (Server& other : others) other.stop(deadline);
                             server.stop(deadline, [&] { main_loop->stop(); });
                           }).value_or_throw();
  std::printf("listening on %s transport %s\n", server.local_endpoint().to_string().c_str(),
              cache.transport.c_str());
  if (cache.settings.metrics) {
    options.endpoint = endpoint(cache.settings, cache.settings.metrics_port);
    options.initializer = [&](Channel& channel) {
      auto text = [&] { return metrics_text(cache, *group, server); };
      return channel.pipeline().append(std::make_unique<MetricsPage>(text));
    };
    others.push_back(Server::start(*main_loop, options).value_or_throw());
    std::printf("metrics on %s\n", others.back().local_endpoint().to_string().c_str());
  }
  std::fflush(stdout);

  Timer sweep(*main_loop, [&] {
    cache.map->sweep(kSweepEntries);
    sweep.start(kSweepInterval);
  });
  sweep.start(kSweepInterval);
  main_loop->run();
  if (!cache.settings.unixsocket.empty()) unlink(cache.settings.unixsocket.c_str());
  return 0;
}

}  // namespace
}  // namespace linkspan::cache

int main(int argc, char** argv) try {
  linkspan::cache::Settings settings;
  CLI::App app("A cache that speaks Redis's protocol, RESP2 and RESP3.", "linkspan-cached");
  linkspan::cache::add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  settings.metrics = app.count("--metrics-port") != 0;
  return linkspan::cache::serve(std::move(settings));
} catch (const std::exception& error) {
  std::fprintf(stderr, "linkspan-cached: %s\n", error.what());
  return 1;
}
