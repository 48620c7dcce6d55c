// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/channel.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "tests/channel/handlers.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

Chain bytes(std::size_t size) {
  return Chain(Slice::adopt(std::string(size, 'x')));
}

// Records completions by number.
struct Completions {
  std::vector<std::pair<int, std::error_code>> results;
  WriteDone operator()(int number) {
    return [this, number](std::error_code error) { results.emplace_back(number, error); };
  }
};

class Watching final : public Service<Chain> {
 public:
  void on_read(Chain&&) override { ++reads; }
  void on_writable_changed(bool writable) override { changes.push_back(writable); }
  void on_read_resumed() override { ++resumed; }

  std::vector<bool> changes;
  int reads = 0;
  int resumed = 0;
};

}  // namespace

TEST_CASE("a write completes once, when everything written so far was accepted, and never inside a call") {
  Completions done;
  EmbeddedChannel channel;
  channel.open();
  channel.write(bytes(3), done(1));
  channel.write(Chain(), done(2));
  CHECK(done.results.empty());
  CHECK(channel.queued_bytes() == 3);
  CHECK(channel.take_sent().size() == 3);
  REQUIRE(done.results.size() == 2);
  CHECK(done.results[0] == std::pair(1, std::error_code()));
  CHECK(done.results[1] == std::pair(2, std::error_code()));
}

TEST_CASE("writes after close complete as shut down, after the channel is closed as cancelled") {
  Completions done;
  EmbeddedChannel channel;
  channel.open();
  channel.write(bytes(3), done(1));
  channel.close();
  channel.write(bytes(3), done(2));
  CHECK(done.results.empty());
  CHECK(channel.take_sent().size() == 3);
  CHECK(channel.close_error() == std::error_code());
  channel.write(bytes(3), done(3));
  channel.tick();
  REQUIRE(done.results.size() == 3);
  CHECK(done.results[0] == std::pair(1, std::error_code()));
  CHECK(done.results[1].second == errc::shut_down);
  CHECK(done.results[2].second == errc::cancelled);
}

TEST_CASE("abort and a broken connection complete what is queued, in order, before the end") {
  Completions done;
  EmbeddedChannel channel;
  channel.open();
  channel.write(bytes(3), done(1));
  channel.write(bytes(3), [&](std::error_code error) {
    done.results.emplace_back(2, error);
    channel.write(bytes(1), done(3));  // writing again from a failed completion is harmless
  });
  std::error_code expected = make_error_code(errc::cancelled);
  SUBCASE("abort") {
    channel.abort();
    channel.tick();
    CHECK(*channel.close_error() == errc::aborted);
  }
  SUBCASE("reset") {
    expected = connection_lost(104);
    channel.break_connection(expected);
    CHECK(*channel.close_error() == errc::connection_lost);
  }
  channel.tick();
  REQUIRE(done.results.size() == 3);
  CHECK(done.results[0] == std::pair(1, expected));
  CHECK(done.results[1] == std::pair(2, expected));
  CHECK(done.results[2].second == errc::cancelled);
}

TEST_CASE("a completion that throws closes its channel") {
  LogCapture log;
  EmbeddedChannel channel;
  channel.open();
  channel.write(bytes(3), [](std::error_code) { throw std::runtime_error("completion"); });
  CHECK(channel.take_sent().size() == 3);
  REQUIRE(channel.close_error().has_value());
  CHECK(*channel.close_error() == errc::handler_failed);
  CHECK(log.contains("completion"));
}

TEST_CASE("crossing a watermark is told once, at once by writable() and by the event at the tick's end") {
  EmbeddedChannel channel({100, 50});
  REQUIRE(channel.pipeline().append<Watching>());
  auto& watching = *channel.pipeline().find<Watching>();
  channel.open();
  channel.write(bytes(100));
  CHECK(channel.writable());
  channel.write(bytes(1));
  CHECK_FALSE(channel.writable());
  CHECK(watching.changes.empty());
  channel.write(bytes(100));
  channel.tick();
  CHECK(watching.changes == std::vector<bool>{false});
  static_cast<void>(channel.take_sent());
  CHECK(channel.writable());
  CHECK(watching.changes == std::vector<bool>{false, true});
}

TEST_CASE("who has seen a channel that is not writable for a moment is told when it is again") {
  for (const bool looks : {false, true}) {
    CAPTURE(looks);
    EmbeddedChannel channel;
    Watching* handler = nullptr;
    auto watching = std::make_unique<Watching>();
    handler = watching.get();
    REQUIRE(channel.pipeline().append(std::move(watching)));
    channel.open();
    channel.write_cancellable(bytes(3));  // waits until the end of the tick
    if (looks) CHECK_FALSE(channel.writable());
    channel.tick();
    CHECK(channel.writable());
    channel.tick();
    CHECK(handler->changes == (looks ? std::vector{false, true} : std::vector<bool>()));
  }
}

TEST_CASE("pauses are counted, hold what is received, and end with on_read_resumed") {
  EmbeddedChannel channel({}, false);
  REQUIRE(channel.pipeline().append<Watching>());
  auto& watching = *channel.pipeline().find<Watching>();
  channel.open();
  channel.receive("a");
  CHECK(watching.reads == 0);
  channel.pause_read();
  channel.resume_read();
  channel.tick();
  CHECK(watching.resumed == 0);
  channel.resume_read();
  channel.tick();
  CHECK(watching.resumed == 1);
  CHECK(watching.reads == 1);
  CHECK(channel.reading());
  channel.close();
  CHECK_FALSE(channel.reading());
}

TEST_CASE("a decoder keeps to a pause in the middle of what it has received") {
  class OneByOne final : public Service<std::string> {
   public:
    void on_read(std::string&& line) override {
      lines.push_back(std::move(line));
      channel().pause_read();
    }
    std::vector<std::string> lines;
  };
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines, OneByOne>());
  auto& service = *channel.pipeline().find<OneByOne>();
  channel.open();
  channel.receive("a\nb\nc\n");
  CHECK(service.lines == std::vector<std::string>{"a"});
  channel.resume_read();
  channel.tick();
  CHECK(service.lines == std::vector<std::string>{"a", "b"});
}

TEST_CASE("a ref on the loop's thread acts at once, and does nothing when the channel is gone") {
  Completions done;
  ChannelRef ref;
  CHECK_FALSE(ref.alive());
  ref.close();
  {
    EmbeddedChannel channel;
    ref = channel.ref();
    CHECK(ref == channel.ref());
    channel.open();
    ref.write(bytes(5), done(1));
    CHECK(channel.queued_bytes() == 5);
    CHECK(channel.take_sent().size() == 5);
    CHECK(ref.alive());
    CHECK(ref.writable());
    ref.shutdown_write();
    CHECK(channel.write_ended());
    ref.close();
    channel.tick();
    CHECK(channel.close_error() == std::error_code());
    CHECK_FALSE(ref.alive());
  }
  ref.write(bytes(5), done(2));
  ref.shutdown_write();
  ref.close();
  ref.abort();
  CHECK_FALSE(ref.writable());
  CHECK_FALSE(ref.post([](Channel&) {}));
  REQUIRE(done.results.size() == 2);
  CHECK(done.results[0].second == std::error_code());
  CHECK(done.results[1].second == errc::cancelled);
}

TEST_CASE("bytes that other threads have given to a ref count towards the watermarks at once") {
  EmbeddedChannel channel({100, 50});
  REQUIRE(channel.pipeline().append<Watching>());
  auto& watching = *channel.pipeline().find<Watching>();
  channel.open();
  const ChannelRef ref = channel.ref();
  int completed = 0;
  bool writable_before = false;
  bool writable_after = true;
  std::thread([&] {
    ref.write(bytes(100), [&](std::error_code) { ++completed; });
    writable_before = ref.writable();
    ref.write(bytes(1));
    writable_after = ref.writable();
  }).join();
  CHECK(writable_before);
  CHECK_FALSE(writable_after);
  CHECK(channel.queued_bytes() == 101);
  channel.tick();
  CHECK(watching.changes == std::vector<bool>{false});
  CHECK(completed == 0);
  CHECK(channel.take_sent().size() == 101);
  CHECK(completed == 1);
  CHECK(ref.writable());
  CHECK(watching.changes == std::vector<bool>{false, true});
  CHECK(channel.queued_bytes() == 0);
}

TEST_CASE("writes that other threads have given to a ref are cancelled when the channel closes first") {
  Completions done;
  EmbeddedChannel channel;
  channel.open();
  const ChannelRef ref = channel.ref();
  std::thread([&] {
    ref.abort();
    ref.write(bytes(10), done(1));
  }).join();
  channel.tick();
  channel.tick();
  std::thread([&] { ref.write(bytes(10), done(2)); }).join();
  REQUIRE(done.results.size() == 2);
  CHECK(done.results[1].second == errc::cancelled);
  CHECK(channel.queued_bytes() == 0);
}

TEST_CASE("a task posted through a ref that throws closes the channel") {
  LogCapture log;
  EmbeddedChannel channel;
  channel.open();
  const ChannelRef ref = channel.ref();
  std::thread([&] { CHECK(ref.post([](Channel&) { throw std::runtime_error("posted"); })); }).join();
  channel.tick();
  CHECK(*channel.close_error() == errc::handler_failed);
  CHECK(log.contains("posted"));
}
