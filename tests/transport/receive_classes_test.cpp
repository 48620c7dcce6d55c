// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about the memory that it receives into, and that changing it loses nothing.
#include <algorithm>
#include <random>

#include "lib/transport/receive_sizer.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

constexpr std::size_t kSmallBytes = blocks_of(ReceiveClass::small).bytes;
// Enough of them, one at a time, take a stream from bulk to small.
constexpr std::size_t kShrinkingMessages = 2 * ReceiveSizer::kPatience + 1;

Connection& open_keeping(World& world) {
  Connection& c = world.open();
  c.events.keeps_data = true;
  c.stream.start_read();
  return c;
}

// One receive each, as nothing is sent before the last one has arrived.
void send_and_await(World& world, Connection& c, std::string_view message) {
  const std::size_t before = c.events.kept.size();
  c.peer.send(message);
  world.run_until([&] { return c.events.kept.size() == before + message.size(); });
}

std::size_t largest_pin(const Chain& chain) {
  std::size_t bytes = 0;
  for (const Slice& slice : chain) bytes = std::max(bytes, slice.pinned_size());
  return bytes;
}

std::uint64_t copied_out(const CopyScope& scope) {
  return scope.copied()[CopyPlace::receive];
}

}  // namespace

TEST_CASE("a kept message that fits into a small block pins no more, also after bulk") {
  for_each_mode([](World& world) {
    Connection& c = open_keeping(world);
    for (const bool after_bulk : {false, true}) {
      CAPTURE(after_bulk);
      if (after_bulk) send_and_await(world, c, pattern(1'000'000));
      c.events.kept.clear();
      for (const std::size_t size : {1, 64, 512, 513, 1500, 2048, 3000, 4095}) {
        send_and_await(world, c, pattern(size));
      }
      CHECK(largest_pin(c.events.kept) <= kSmallBytes);
    }
  });
}

TEST_CASE("bulk comes in large slices") {
  for_each_roomy_mode([](World& world) {
    Connection& c = open_keeping(world);
    const std::string sent = pattern(8 << 20);
    send_and_await(world, c, sent);
    CHECK(c.events.kept.slice_count() <= sent.size() / (16 * 1024));
    CHECK((c.events.kept == sent));
  });
}

TEST_CASE("of messages only those that fit into the smallest block are copied out, of bulk next to nothing") {
  for_each_kernel_mode([](World& world) {
    Connection& c = open_keeping(world);
    const std::size_t smallest = BlockPool::kClassBytes.front();
    CopyScope small;
    for (int i = 0; i < 50; ++i) send_and_await(world, c, pattern(smallest));
    CHECK(copied_out(small) == 50 * smallest);
    CopyScope larger;
    for (int i = 0; i < 50; ++i) send_and_await(world, c, pattern(smallest + 1));
    CHECK(copied_out(larger) == 0);
    CopyScope bulk;
    const std::string much = pattern(8 << 20);
    send_and_await(world, c, much);
    if (world.mode().small_buffers) return;  // it comes in pieces like messages
    CHECK(copied_out(bulk) < much.size() / 100);
    // Until the stream is small again.
    CopyScope returning;
    for (std::size_t i = 0; i < 2 * kShrinkingMessages; ++i) send_and_await(world, c, pattern(1000));
    CHECK(copied_out(returning) <= kShrinkingMessages * 1000);
  });
}

TEST_CASE("a stream that turns from interactive to bulk and back delivers every byte in order") {
  for_each_mode([](World& world) {
    for (const bool small_buffers : {false, true}) {
      CAPTURE(small_buffers);
      Connection& c = world.open({}, small_buffers);
      c.stream.start_read();
      std::string sent;
      const auto send_and_await_all = [&](std::size_t size) {
        const std::string bytes = pattern(size);
        sent += bytes;
        c.peer.send(bytes);
        world.run_until([&] { return c.events.received.size() == sent.size(); });
      };
      for (std::size_t round = 0; round < 5; ++round) {
        for (std::size_t i = 0; i < kShrinkingMessages; ++i) send_and_await_all(i * 100 + round);
        send_and_await_all(small_buffers ? 50'000 : 1'000'000);
      }
      CHECK((c.events.received == sent));
    }
    world.check_quiet();
  });
}

TEST_CASE("changing classes, pausing and resuming at random lose nothing") {
  for_each_mode([](World& world) {
    for (const bool small_buffers : {false, true}) {
      CAPTURE(small_buffers);
      Connection& c = world.open({}, small_buffers);
      std::minstd_rand dice(small_buffers ? 1 : 2);
      bool paused = false;
      c.events.during = [&](Event event) {
        if (event != Event::read || paused || dice() % 3 != 0) return;
        c.stream.pause_read();
        paused = true;
      };
      c.stream.start_read();
      std::string sent;
      for (int round = 0; round < 100; ++round) {
        const std::size_t size =
            dice() % 8 == 0 ? dice() % (small_buffers ? 30'000 : 300'000) : dice() % 3000;
        const std::string bytes = pattern(size);
        sent += bytes;
        c.peer.send(bytes);
        world.run_until([&] {
          if (paused && dice() % 2 == 0) {
            paused = false;
            c.stream.start_read();
          }
          // Sometimes the next ones are sent while the last ones are on their way.
          return c.events.received.size() == sent.size() || (c.peer.all_sent() && dice() % 8 == 0);
        });
      }
      c.peer.shutdown_write();
      world.run_until([&] {
        if (std::exchange(paused, false)) c.stream.start_read();
        return c.events.count(Event::end) == 1;
      });
      CHECK((c.events.received == sent));
      c.events.during = nullptr;
    }
  });
}

TEST_CASE("a stream may be paused, closed, aborted or destroyed in any of the receives in which it grows") {
  for_each_mode([](World& world) {
    enum class Action { pause, shut_down, close, abort, destroy };
    for (const Action action :
         {Action::pause, Action::shut_down, Action::close, Action::abort, Action::destroy}) {
      for (std::size_t receive = 1; receive <= 4; ++receive) {
        CAPTURE(static_cast<int>(action));
        CAPTURE(receive);
        Connection& c = world.open();
        const std::string sent = pattern(400'000);
        c.events.during = [&](Event event) {
          if (event != Event::read || c.events.count(Event::read) != receive) return;
          switch (action) {
            case Action::pause: c.stream.pause_read(); break;
            case Action::shut_down: c.stream.shutdown_write(); break;
            case Action::close: c.stream.close(); break;
            case Action::abort: c.stream.abort(); break;
            case Action::destroy: c.stream = Stream(); break;
          }
        };
        c.stream.start_read();
        c.peer.send(sent);
        world.run_until([&] { return c.events.count(Event::read) >= receive; });
        world.settle();
        if (action == Action::pause) c.stream.start_read();
        if (action == Action::pause || action == Action::shut_down) {
          world.run_until([&] { return c.events.received.size() == sent.size(); });
          CHECK((c.events.received == sent));
        }
        c.peer.close();
        if (action != Action::destroy) {
          if (action != Action::close && action != Action::abort && c.stream) c.stream.abort();
          world.run_until([&] { return c.events.closed(); });
        }
        c.events.during = nullptr;
      }
    }
    world.check_quiet();
  });
}

TEST_CASE("streams of both kinds wait for an exhausted pool, and go on when memory comes back") {
  for_each_mode_name([](const Mode& mode) {
    if (mode.small_buffers) return;  // too little comes at once to exhaust the pool
    EventLoopOptions options;
    options.pool.budget_bytes = 2 << 20;
    World world(mode, options);
    Connection& bulk = open_keeping(world);
    Connection& interactive = open_keeping(world);
    send_and_await(world, interactive, "first");
    interactive.events.kept.clear();
    const std::string much = pattern(6 << 20);
    const std::string messages = pattern(600'000);
    bulk.peer.send(much);
    std::string received_bulk;
    std::string received_messages;
    std::size_t sent = 0;
    const auto refusals = [&] { return world.loop().pool().statistics().refusals; };
    const auto send_some = [&] {
      for (int i = 0; i < 100 && sent < messages.size(); ++i) {
        const std::size_t size = std::min<std::size_t>(1000, messages.size() - sent);
        interactive.peer.send(std::string_view(messages).substr(sent, size));
        sent += size;
        world.turn(std::chrono::milliseconds(0));
      }
    };
    int exhausted = 0;
    while (received_bulk.size() < much.size() || received_messages.size() < messages.size()) {
      const std::uint64_t before = refusals();
      send_some();
      world.settle();
      if (refusals() != before) ++exhausted;
      CHECK(world.loop().pool().statistics().live_bytes <= options.pool.budget_bytes);
      received_bulk += std::exchange(bulk.events.kept, Chain()).to_string();
      received_messages += std::exchange(interactive.events.kept, Chain()).to_string();
      world.run_until([&] {
        return !bulk.events.kept.empty() || !interactive.events.kept.empty() ||
               (received_bulk.size() == much.size() && received_messages.size() == sent);
      });
    }
    CHECK(exhausted > 0);
    CHECK((received_bulk == much));
    CHECK((received_messages == messages));
    world.check_quiet();
  });
}

TEST_CASE("two hundred streams of both kinds share a loop") {
  for_each_roomy_mode([](World& world) {
    constexpr std::size_t kStreams = 200;
    std::vector<Connection*> streams;
    std::vector<std::string> sent(kStreams);
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams.push_back(&world.open());
      streams.back()->stream.start_read();
    }
    const std::string much = pattern(150'000);
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < kStreams; ++i) {
        const std::string_view bytes = std::string_view(much).substr(i, i % 2 == 0 ? 100 + i : 140'000);
        sent[i] += bytes;
        streams[i]->peer.send(bytes);
      }
      world.run_until([&] {
        return std::ranges::all_of(streams, [&, i = std::size_t{0}](const Connection* c) mutable {
          return c->events.received.size() == sent[i++].size();
        });
      });
    }
    for (std::size_t i = 0; i < kStreams; ++i) CHECK((streams[i]->events.received == sent[i]));
  });
}

}  // namespace linkspan::conformance
