// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/channel_group.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/channel/client.hpp"
#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/peer.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

Chain text(std::string_view content) {
  return Chain(Slice::copy(content));
}

BroadcastDone keep(BroadcastResult& result) {
  return [&result](const BroadcastResult& reported) { result = reported; };
}

// Leaves its group when it is written to.
class Leaver final : public Service<Chain> {
 public:
  explicit Leaver(ChannelGroup& group) : group_(group) {}
  void on_read(Chain&&) override {}
  void on_write(Chain&& data) override {
    group_.remove(channel());
    write(std::move(data));
  }

 private:
  ChannelGroup& group_;
};

// Finishes when it is told to twice.
class Stubborn final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
  void on_drain(Duration) override {}
};

// As many as the process may have.
std::size_t descriptors_most() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 16'384);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<std::size_t>(limit.rlim_cur);
}

}  // namespace

TEST_CASE("a broadcast goes to every member once, with a count, and closed channels have left") {
  ChannelGroup group;
  std::deque<EmbeddedChannel> channels(3);
  for (EmbeddedChannel& channel : channels) {
    REQUIRE(group.add(channel));
    REQUIRE(group.add(channel));
    channel.open();
  }
  CHECK(group.size() == 3);
  BroadcastResult result;
  group.broadcast(text("a"), keep(result));
  for (EmbeddedChannel& channel : channels) channel.tick();
  CHECK(result.given == 3);
  CHECK(result.skipped == 0);
  for (EmbeddedChannel& channel : channels) CHECK(channel.take_sent().to_string() == "a");

  BroadcastOptions but_one;
  but_one.except = channels[1].ref();
  group.broadcast(text("b"), but_one, keep(result));
  CHECK(result.given == 2);
  CHECK(result.skipped == 1);
  CHECK(channels[0].take_sent().to_string() == "b");
  CHECK(channels[1].take_sent().empty());

  channels.pop_back();
  CHECK(group.size() == 2);
  channels[0].close();
  group.broadcast(text("c"), keep(result));
  CHECK(result.given == 1);
  CHECK(result.skipped == 1);
  group.remove(channels[1]);
  CHECK(group.size() == 1);
  channels.clear();
  CHECK(group.size() == 0);
  group.broadcast(text("d"), keep(result));
  CHECK(result.given == 0);
}

TEST_CASE("a broadcast leaves out channels that are not writable, if it is to") {
  ChannelGroup group;
  EmbeddedChannel slow({10, 5});
  EmbeddedChannel fast({10, 5});
  for (EmbeddedChannel* channel : {&slow, &fast}) {
    REQUIRE(group.add(*channel));
    channel->open();
  }
  slow.write(text("more than ten bytes"));
  BroadcastOptions options;
  options.only_writable = true;
  BroadcastResult result;
  group.broadcast(text("x"), options, keep(result));
  CHECK(result.given == 1);
  CHECK(result.skipped == 1);
  CHECK(fast.take_sent().to_string() == "x");
}

TEST_CASE("members may leave while they are written to") {
  ChannelGroup group;
  std::deque<EmbeddedChannel> channels(3);
  for (EmbeddedChannel& channel : channels) {
    REQUIRE(channel.pipeline().append(std::make_unique<Leaver>(group)));
    REQUIRE(group.add(channel));
    channel.open();
  }
  BroadcastResult result;
  group.broadcast(text("a"), keep(result));
  CHECK(result.given == 3);
  CHECK(group.size() == 0);
  group.broadcast(text("b"), keep(result));
  CHECK(result.given == 0);
  for (EmbeddedChannel& channel : channels) CHECK(channel.take_sent().to_string() == "a");
}

TEST_CASE("a group that is full, closed, or has too much on its way refuses, and says so") {
  ChannelGroupOptions options;
  options.max_channels = 1;
  options.max_pending_bytes = 4;
  ChannelGroup group(options);
  EmbeddedChannel first;
  EmbeddedChannel second;
  REQUIRE(group.add(first));
  CHECK(group.add(second).error().code == errc::limit_exceeded);
  CHECK(group.add(second).error().message().find("max_channels") != std::string::npos);
  first.open();

  BroadcastResult large;
  BroadcastResult refused;
  std::thread([&] {
    group.broadcast(text("larger than that"), keep(large));  // nothing else is on its way
    group.broadcast(text("x"), keep(refused));
  }).join();
  CHECK(refused.error == errc::limit_exceeded);
  first.tick();
  CHECK(large.given == 1);
  CHECK(first.take_sent().to_string() == "larger than that");
  std::thread([&] { group.broadcast(text("x"), keep(refused)); }).join();
  first.tick();
  CHECK(refused.error == std::error_code());
  CHECK(first.take_sent().to_string() == "x");

  bool closed = false;
  group.close(std::chrono::seconds(5), [&] { closed = true; });
  CHECK_FALSE(closed);
  CHECK(group.add(second).error().code == errc::cancelled);
  first.tick();
  CHECK(first.close_error() == std::error_code());
}

TEST_CASE("a broadcast to thousands of channels on several loops copies no payload") {
  on_every_transport(2, [](LoopGroup& loops) {
    const std::size_t count = std::min<std::size_t>(2'000, descriptors_most() / 4);
    ChannelGroup group;
    Mailbox mailbox;
    ServerOptions options;
    options.endpoint = loopback();
    options.listen.backlog = 4096;
    options.initializer = [&](Channel& channel) {
      Status status = group.add(channel);
      if (group.size() == count) mailbox.put("all");
      return status;
    };
    const Server server = Server::start(loops, options).value_or_throw();
    std::vector<std::unique_ptr<test::Peer>> peers;
    for (std::size_t i = 0; i < count; ++i) {
      peers.push_back(std::make_unique<test::Peer>(server.local_endpoint()));
      REQUIRE(peers.back()->connected());
    }
    mailbox.wait(1);
    const auto copied = [&] {
      std::uint64_t bytes = 0;
      for (EventLoop* loop : loops.loops()) bytes += loop->copy_counts().total();
      return bytes;
    };
    const std::uint64_t before = copied();
    const std::string payload(16'384, 'p');
    std::promise<BroadcastResult> promise;
    group.broadcast(text(payload), [&](const BroadcastResult& result) { promise.set_value(result); });
    const BroadcastResult result = promise.get_future().get();
    CHECK(result.given == count);
    CHECK(result.skipped == 0);
    std::size_t whole = 0;
    for (const auto& peer : peers) whole += peer->receive(payload.size()) == payload ? 1 : 0;
    CHECK(whole == count);
    CHECK(copied() == before);

    std::promise<void> gone;
    group.drain(std::chrono::seconds(20), [&] { gone.set_value(); });
    for (const auto& peer : peers) peer->close();
    gone.get_future().get();
    CHECK(group.size() == 0);
  });
}

TEST_CASE("draining a group aborts those that do not finish by the deadline, and tells when all are gone") {
  ChannelGroup group;
  int gone = 0;
  group.drain(std::chrono::seconds(1), [&] { ++gone; });
  CHECK(gone == 1);  // there was none
  ChannelGroup other;
  EmbeddedChannel quick;
  {
    EmbeddedChannel stubborn;
    REQUIRE(stubborn.pipeline().append<Stubborn>());
    REQUIRE(other.add(quick));
    REQUIRE(other.add(stubborn));
    quick.open();
    stubborn.open();
    std::thread([&] { other.drain(std::chrono::milliseconds(1), [&] { ++gone; }); }).join();
    quick.tick();
    CHECK(quick.close_error() == std::error_code());
    while (!stubborn.close_error()) stubborn.tick();
    CHECK(*stubborn.close_error() == errc::aborted);
  }
  CHECK(other.size() == 1);
  CHECK(gone == 1);
}

TEST_CASE("channels outlive their group") {
  EmbeddedChannel channel;
  {
    ChannelGroup group;
    REQUIRE(group.add(channel));
  }
  channel.open();
  channel.write(text("x"));
  CHECK(channel.take_sent().to_string() == "x");
}
