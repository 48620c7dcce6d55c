// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors

// A program of somebody else: it sees nothing of Linkspan but what is installed.
#include <linkspan/base/version.hpp>
#include <linkspan/buffer/chain.hpp>
#include <linkspan/channel/embedded_channel.hpp>
#include <linkspan/channel/embedded_datagram_channel.hpp>
#include <linkspan/channel/metrics.hpp>
#include <linkspan/channel/timeouts.hpp>
#include <linkspan/codec/grpc_message_codec.hpp>
#include <linkspan/codec/line_codec.hpp>
#include <linkspan/store/off_heap_map.hpp>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// Handlers that are made of templates have to be in the library, too.
static bool handlers_are_there() {
  using namespace linkspan;
  constexpr auto kLong = std::chrono::hours(1);
  const auto counters = std::make_shared<ChannelCounters>();
  EmbeddedChannel lines;
  EmbeddedChannel messages;
  EmbeddedDatagramChannel packets;
  return lines.pipeline()
             .append(std::make_unique<ReadTimeout>(kLong), std::make_unique<WriteTimeout>(kLong),
                     std::make_unique<IdleTimeout>(kLong), std::make_unique<ChannelMeter>(counters),
                     std::make_unique<LineCodec>())
             .ok() &&
         messages.pipeline().append(std::make_unique<GrpcMessageCodec>()).ok() &&
         packets.pipeline()
             .append(std::make_unique<PacketReadTimeout>(kLong), std::make_unique<PacketWriteTimeout>(kLong),
                     std::make_unique<PacketIdleTimeout>(kLong), std::make_unique<PacketMeter>(counters))
             .ok();
}

// Both kinds of values of the store, in and out again; a code that has a category of its own.
static bool store_is_there() {
  using namespace linkspan;
  OffHeapMapOptions options;
  options.max_bytes = std::size_t{1} << 20;
  const std::unique_ptr<OffHeapMap> map = OffHeapMap::open(options).value_or_throw();
  const std::string large(100'000, 'x');
  if (map->put("small", "value") || map->put("large", large)) return false;
  if (map->put("larger", std::string(2 * options.max_bytes, 'x')) != store_errc::no_room) return false;
  const std::optional<StoredValue> value = map->get("large");
  bool same = false;
  return map->erase("large") && value && value->bytes == large &&
         map->read("small", [&same](const EntryView& entry) { same = entry.bytes() == "value"; }) && same;
}

int main() {
  linkspan::Chain chain(linkspan::Slice::immortal("hello, "));
  chain.append(linkspan::Slice::adopt(std::string("installed world")));
  linkspan::Chain greeting = chain.split_front(5);
  if (greeting.to_string() != "hello" || chain.size() != 17) return 1;
  greeting.append(std::move(chain));
  if (greeting.to_string() != "hello, installed world" || greeting.slice_count() != 3) return 2;
  if (!handlers_are_there()) return 3;
  if (!store_is_there()) return 4;
  std::printf("linkspan %d.%d.%d: %s\n", LINKSPAN_VERSION_MAJOR, LINKSPAN_VERSION_MINOR,
              LINKSPAN_VERSION_PATCH, greeting.to_string().c_str());
  return 0;
}
