// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BufferedWriter over each transport: what arrives, what completes, and what the account says when it ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/buffered_writer.hpp"
#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/own_loop.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

struct Received {
  std::string bytes;
  std::size_t reset_at = BufferedWriterOptions::kNever;  // then the connection is aborted
  bool ended = false;
};

class Receiver final : public Service<Chain> {
 public:
  explicit Receiver(Received& received) : received_(received) {}
  void on_read(Chain&& data) override {
    received_.bytes += data.to_string();
    if (received_.bytes.size() >= received_.reset_at) channel().abort();
  }
  void on_inactive(std::error_code) override { received_.ended = true; }

 private:
  Received& received_;
};

class Quiet final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
};

// A server and a client of one loop.
struct Connected {
  explicit Connected(EventLoop& loop_in) : loop(loop_in) {
    ServerOptions options;
    options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
    options.initializer = [this](Channel& opened) {
      return opened.pipeline().append(std::make_unique<Receiver>(received));
    };
    server.emplace(Server::start(loop, options).value_or_throw());
    connect();
  }
  void connect() {
    bool open = false;
    const Client client(loop,
                        [](Channel& opened) { return opened.pipeline().append(std::make_unique<Quiet>()); });
    channel = client.connect(server->local_endpoint(), [&](std::error_code error) {
      CHECK_FALSE(error);
      open = true;
    });
    run_until(loop, [&] { return open; });
  }
  /// Closes both; nothing of them is left on the loop.
  void end() {
    channel.abort();
    run_until(loop, [&] { return received.ended; });
    bool stopped = false;
    server->stop(Duration::zero(), [&] { stopped = true; });
    run_until(loop, [&] { return stopped; });
    server.reset();
  }

  EventLoop& loop;
  Received received;
  std::optional<Server> server;
  ChannelRef channel;
};

BufferedWriterOptions options_of(std::mt19937& generator) {
  BufferedWriterOptions options;
  options.chunk_bytes = 1 + generator() % 100'000;
  options.reference_threshold_bytes = 20'000;
  options.pool_bytes = std::size_t{64} << 10;
  options.max_pending_bytes = std::size_t{1} << 20;
  options.checksum = ChecksumKind::crc32;
  return options;
}

std::string pattern(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(generator());
  return text;
}

struct Write {
  std::string memory;
  int completions = 0;
  std::error_code error;
};

// Writes of all sizes; each changes its memory as soon as it is its own again.
std::string write_some(BufferedWriter& writer, std::deque<Write>& writes, std::mt19937& generator) {
  std::string wanted;
  for (int i = 0; i < 40; ++i) {
    const std::size_t most = i % 4 == 0 ? 200'000 : 9'000;
    Write& write = writes.emplace_back();
    write.memory = pattern(generator() % most, generator());
    wanted += write.memory;
    writer.write_when_room(std::as_bytes(std::span(write.memory)), [&write](std::error_code error) {
      ++write.completions;
      write.error = error;
      std::ranges::fill(write.memory, 'x');
    });
  }
  return wanted;
}

}  // namespace

TEST_CASE("writes of all sizes arrive whole and in order, also when their memory changes once it is free") {
  on_every_own_loop([](EventLoop& loop) {
    std::mt19937 generator(1);
    Connected both(loop);
    std::deque<Write> writes;
    for (int round = 0; round < 3; ++round) {
      both.received.bytes.clear();
      BufferedWriter writer(loop, options_of(generator));
      writer.attach(send_bytes_to(both.channel));
      const std::string wanted = write_some(writer, writes, generator);
      bool closed = false;
      writer.close([&](std::error_code error) {
        CHECK_FALSE(error);
        closed = true;
      });
      run_until(loop, [&] { return closed && both.received.bytes.size() >= wanted.size(); });
      CHECK((both.received.bytes == wanted));
      CHECK(writer.acknowledged_bytes() == wanted.size());
      CHECK(writer.counters().referenced_bytes > 0);
      CHECK(writer.counters().copied_bytes > 0);
    }
    run_until(loop,
              [&] { return std::ranges::all_of(writes, [](const Write& w) { return w.completions; }); });
    for (const Write& write : writes) {
      CHECK(write.completions == 1);
      CHECK_FALSE(write.error);
    }
    both.end();
  });
}

TEST_CASE("when the peer resets, each write completes once, and no more is acknowledged than was taken") {
  on_every_own_loop([](EventLoop& loop) {
    std::mt19937 generator(2);
    Connected both(loop);
    both.received.reset_at = 300'000;
    std::deque<Write> writes;
    BufferedWriter writer(loop, options_of(generator));
    writer.attach(send_bytes_to(both.channel));
    const std::string wanted = write_some(writer, writes, generator);
    int flushed = 0;
    writer.flush([&](std::error_code) { ++flushed; });
    run_until(loop, [&] {
      return flushed != 0 && both.received.ended &&
             std::ranges::all_of(writes, [](const Write& w) { return w.completions; });
    });
    for (const Write& write : writes) CHECK(write.completions == 1);
    CHECK(flushed == 1);
    CHECK(wanted.starts_with(both.received.bytes));
    CHECK(writer.acknowledged_bytes() <= writer.taken_bytes());
    CHECK(writer.taken_bytes() <= wanted.size());
    both.end();
  });
}

TEST_CASE("a writer that resends goes on over the next connection") {
  on_every_own_loop([](EventLoop& loop) {
    std::mt19937 generator(3);
    Connected both(loop);
    both.received.reset_at = 200'000;
    BufferedWriterOptions options = options_of(generator);
    options.resend = true;
    options.acknowledged_by = AcknowledgedBy::peer;
    std::deque<Write> writes;
    BufferedWriter writer(loop, options);
    bool detached = false;
    writer.on_detached([&](std::error_code) { detached = true; });
    writer.attach(send_bytes_to(both.channel));
    const std::string wanted = write_some(writer, writes, generator);
    bool flushed = false;
    writer.flush([&](std::error_code error) {
      CHECK_FALSE(error);
      flushed = true;
    });
    run_until(loop, [&] { return both.received.ended; });
    if (!detached) writer.detach(connection_lost(0));  // the kernel had taken all that was sent
    settle(loop);
    CHECK(detached);
    CHECK(writer.acknowledged_bytes() == 0);
    both.received = Received();
    both.connect();
    writer.attach(send_bytes_to(both.channel));
    run_until(loop, [&] {
      CHECK(writer.acknowledge(both.received.bytes.size()));
      return flushed;
    });
    CHECK((both.received.bytes == wanted));
    settle(loop);
    for (const Write& write : writes) {
      CHECK(write.completions == 1);
      CHECK_FALSE(write.error);
    }
    both.end();
  });
}
