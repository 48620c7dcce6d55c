// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Writes that wait, are refused or cancelled, and the ways to hear of their end.
#include <doctest/doctest.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/channel/write_results.hpp"
#include "linkspan/loop/pending_budget.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

Chain bytes(std::size_t size) {
  return Chain(Slice::adopt(std::string(size, 'x')));
}
Chain text(std::string_view content) {
  return Chain(Slice::copy(content));
}

struct Completions {
  std::vector<std::pair<int, std::error_code>> results;
  WriteDone operator()(int number) {
    return [this, number](std::error_code error) { results.emplace_back(number, error); };
  }
};

constexpr Watermarks kMarks{100, 50};

PendingLimits limits_of(std::size_t max_bytes, WhenFull when_full = WhenFull::refuse) {
  PendingLimits limits;
  limits.max_bytes = max_bytes;
  limits.when_full = when_full;
  return limits;
}

class Flood final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {
    for (int i = 0; i < 10; ++i) write(bytes(100));
  }
};

}  // namespace

TEST_CASE("above the high watermark a write beyond the limit is refused, and not sent") {
  Completions done;
  EmbeddedChannel channel(kMarks, true, limits_of(200));
  channel.open();
  channel.write(bytes(150), done(1));
  channel.write(bytes(51), done(2));
  channel.write(bytes(50), done(3));
  CHECK(done.results.empty());
  channel.tick();
  REQUIRE(done.results.size() == 1);
  CHECK(done.results[0].second == errc::limit_exceeded);
  CHECK(channel.take_sent().size() == 200);
  REQUIRE(done.results.size() == 3);
  CHECK(done.results[1] == std::pair(1, std::error_code()));
  CHECK(done.results[2] == std::pair(3, std::error_code()));
  channel.write(bytes(10'000), done(4));  // a channel with room takes any write
  CHECK(channel.take_sent().size() == 10'000);
}

TEST_CASE("a write beyond the limit waits if it is to, and those behind it keep their order") {
  Completions done;
  EmbeddedChannel channel(kMarks, true, limits_of(160, WhenFull::wait));
  channel.open();
  channel.write(text(std::string(150, 'a')), done(1));
  channel.write(text("bbbbbbbbbbbb"), done(2));
  channel.write(text("c"), done(3));
  CHECK_FALSE(channel.writable());
  CHECK(channel.queued_bytes() == 163);
  CHECK(channel.take_sent().to_string() == std::string(150, 'a'));
  CHECK(done.results.size() == 1);
  CHECK(channel.take_sent().to_string() == "bbbbbbbbbbbbc");
  CHECK(channel.writable());
  REQUIRE(done.results.size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(done.results[i] == std::pair(i + 1, std::error_code()));
}

TEST_CASE("of writes that wait there are not more than allowed, in number and in bytes") {
  Completions done;
  PendingLimits limits = limits_of(160, WhenFull::wait);
  limits.max_waiting = 2;
  EmbeddedChannel channel(kMarks, true, limits);
  channel.open();
  channel.write(bytes(160), done(1));
  channel.write(bytes(100), done(2));
  channel.write(bytes(61), done(3));  // bytes
  channel.write(bytes(10), done(4));
  channel.write(bytes(1), done(5));  // number
  channel.tick();
  REQUIRE(done.results.size() == 2);
  CHECK(done.results[0].first == 3);
  CHECK(done.results[0].second == errc::limit_exceeded);
  CHECK(done.results[1].first == 5);
  CHECK(channel.take_sent().size() == 160);
  CHECK(channel.take_sent().size() == 110);
}

TEST_CASE("what waits is sent before the end that close and shutdown_write make, and cancelled by abort") {
  Completions done;
  EmbeddedChannel channel(kMarks, true, limits_of(160, WhenFull::wait));
  channel.open();
  channel.write(bytes(160), done(1));
  channel.write(bytes(20), done(2));
  SUBCASE("close") {
    channel.close();
    CHECK(channel.take_sent().size() == 180);
    CHECK(done.results[1] == std::pair(2, std::error_code()));
  }
  SUBCASE("shutdown_write") {
    channel.shutdown_write();
    CHECK(channel.take_sent().size() == 180);
    CHECK(channel.write_ended());
    CHECK(done.results[1] == std::pair(2, std::error_code()));
  }
  SUBCASE("abort") {
    channel.abort();
    channel.tick();
    REQUIRE(done.results.size() == 2);
    CHECK(done.results[1].second == errc::cancelled);
  }
  SUBCASE("a break") {
    channel.break_connection(connection_lost(104));
    REQUIRE(done.results.size() == 2);
    CHECK(done.results[1].second == errc::connection_lost);
  }
}

TEST_CASE("a write waits for a time, and then completes with that error") {
  Completions done;
  PendingLimits limits = limits_of(160, WhenFull::wait);
  limits.max_wait = std::chrono::milliseconds(1);
  EmbeddedChannel channel(kMarks, true, limits);
  channel.open();
  channel.write(bytes(160), done(1));
  channel.write(bytes(20), done(2));
  while (done.results.empty()) channel.tick();
  CHECK(done.results[0].first == 2);
  CHECK(done.results[0].second == errc::timed_out);
  CHECK(channel.take_sent().size() == 160);
  CHECK(channel.take_sent().empty());
}

TEST_CASE("a handler that writes on regardless has its channel aborted at twice the limit") {
  LogCapture log;
  EmbeddedChannel channel(kMarks, true, limits_of(200));
  REQUIRE(channel.pipeline().append<Flood>());
  channel.open();
  channel.receive("go");
  REQUIRE(channel.close_error().has_value());
  CHECK(*channel.close_error() == errc::limit_exceeded);
  CHECK(log.contains("PendingLimits::max_bytes"));
}

TEST_CASE("a write is cancelled until it is started, and the others keep their order") {
  Completions done;
  EmbeddedChannel channel(kMarks);
  channel.open();
  channel.write(text("a"), done(1));
  const WriteToken b = channel.write_cancellable(text("b"), done(2));
  const WriteToken c = channel.write_cancellable(text("c"), done(3));
  channel.write(text("d"), done(4));
  CHECK(b.cancel());
  CHECK_FALSE(b.cancel());
  CHECK(done.results.empty());
  CHECK(channel.queued_bytes() == 4);
  channel.tick();
  CHECK_FALSE(c.cancel());
  CHECK(channel.take_sent().to_string() == "acd");
  REQUIRE(done.results.size() == 4);
  CHECK(done.results[0].first == 2);
  CHECK(done.results[0].second == errc::cancelled);
  CHECK(done.results[1] == std::pair(1, std::error_code()));
  CHECK(done.results[2] == std::pair(3, std::error_code()));
  CHECK(done.results[3] == std::pair(4, std::error_code()));
  CHECK_FALSE(WriteToken().cancel());
}

TEST_CASE("a cancellable write waits while the channel is not writable, and gives its memory back at once") {
  Completions done;
  EmbeddedChannel channel(kMarks);
  channel.open();
  channel.write(bytes(150), done(1));
  const auto owner = std::make_shared<int>();
  static const char content[] = "borrowed";
  const WriteToken token = channel.write_cancellable(
      Chain(Slice::borrow(std::as_bytes(std::span(content, 8)), [owner] {})), done(2));
  channel.tick();
  channel.tick();
  CHECK(channel.queued_bytes() == 158);
  CHECK(token.cancel());
  channel.tick();
  CHECK(channel.queued_bytes() == 150);
  CHECK(owner.use_count() == 1);
  REQUIRE(done.results.size() == 1);
  CHECK(done.results[0].second == errc::cancelled);
  CHECK(channel.take_sent().size() == 150);
}

TEST_CASE("a write that waits gives its memory back before it completes, however it ends") {
  Completions done;
  PendingLimits limits;
  limits.max_wait = std::chrono::milliseconds(1);
  EmbeddedChannel channel(kMarks, true, limits);
  channel.open();
  channel.write(bytes(150), done(1));
  const auto owner = std::make_shared<int>();
  long owners = 0;
  static const char content[] = "borrowed";
  const WriteToken token =
      channel.write_cancellable(Chain(Slice::borrow(std::as_bytes(std::span(content, 8)), [owner] {})),
                                [&](std::error_code) { owners = owner.use_count(); });
  owners = 9;
  SUBCASE("cancelled") {
    CHECK(token.cancel());
  }
  SUBCASE("late") {
    while (owners == 9) channel.tick();
  }
  SUBCASE("broken") {
    channel.break_connection(connection_lost(104));
  }
  SUBCASE("refused") {
    channel.abort();
  }
  channel.tick();
  CHECK(owners == 1);
}

TEST_CASE("a flush completes when what was written before it is sent, also what waits") {
  Completions done;
  EmbeddedChannel channel(kMarks);
  channel.open();
  channel.flush(done(1));
  CHECK(done.results.empty());
  CHECK(channel.take_sent().empty());
  REQUIRE(done.results.size() == 1);
  channel.write(bytes(150), done(2));
  channel.write_cancellable(bytes(10), done(3));
  channel.flush(done(4));
  channel.write(bytes(1), done(5));
  CHECK(channel.take_sent().size() == 150);
  CHECK(done.results.size() == 2);
  CHECK(channel.take_sent().size() == 11);
  REQUIRE(done.results.size() == 5);
  for (int i = 0; i < 5; ++i) CHECK(done.results[i] == std::pair(i + 1, std::error_code()));
  channel.abort();
  channel.flush(done(6));
  channel.tick();
  channel.flush(done(7));
  channel.tick();
  REQUIRE(done.results.size() == 7);
  CHECK(done.results[5].second);
  CHECK(done.results[6].second == errc::cancelled);
}

TEST_CASE("a write is cancelled on its way from another thread, or when the channel is closed") {
  Completions done;
  EmbeddedChannel channel(kMarks);
  channel.open();
  const ChannelRef ref = channel.ref();
  WriteToken token;
  std::thread([&] {
    ref.write(text("a"), done(1));
    token = ref.write_cancellable(text("b"), done(2));
    ref.write(text("c"), done(3));
    CHECK(token.cancel());
  }).join();
  channel.tick();
  CHECK(channel.take_sent().to_string() == "ac");
  REQUIRE(done.results.size() == 3);
  channel.write_cancellable(text("d"), done(4));
  channel.abort();
  channel.tick();
  channel.write_cancellable(text("e"), done(5));
  channel.tick();
  REQUIRE(done.results.size() == 5);
  CHECK(done.results[3].second == errc::cancelled);
  CHECK(done.results[4].second == errc::cancelled);
}

TEST_CASE("another thread's write is refused at the call when the channel is full") {
  EmbeddedChannel channel(kMarks, true, limits_of(200));
  channel.open();
  const ChannelRef ref = channel.ref();
  channel.write(bytes(150));
  std::error_code refused;
  std::error_code taken = make_error_code(errc::timed_out);
  std::thread([&] {
    ref.write(bytes(51), [&](std::error_code error) { refused = error; });
    ref.write(bytes(50), [&](std::error_code error) { taken = error; });
  }).join();
  CHECK(refused == errc::limit_exceeded);
  channel.tick();
  CHECK(channel.take_sent().size() == 200);
  CHECK(taken == std::error_code());
}

TEST_CASE("a future tells how a write ended, on any thread") {
  EmbeddedChannel channel;
  channel.open();
  auto [done, result] = write_future();
  channel.write(bytes(3), std::move(done));
  CHECK(result.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  static_cast<void>(channel.take_sent());
  CHECK(result.get() == std::error_code());

  std::future<std::error_code> lost;
  const ChannelRef ref = channel.ref();
  channel.abort();
  channel.tick();
  std::thread([&] {
    WriteFuture late = write_future();
    ref.write(bytes(3), std::move(late.done));
    lost = std::move(late.result);
  }).join();
  CHECK(lost.get() == errc::cancelled);
}

TEST_CASE("a group of writes completes once, after the last, with the first error") {
  std::vector<std::error_code> ends;
  EmbeddedChannel good;
  EmbeddedChannel bad;
  good.open();
  bad.open();
  const auto group_of = [&] { return WriteGroup([&](std::error_code error) { ends.push_back(error); }); };
  {
    WriteGroup group = group_of();
    good.write(bytes(1), group.next());
    good.write(bytes(1), group.next());
    static_cast<void>(good.take_sent());
    CHECK(ends.empty());  // there may be more
    group.finish();
    CHECK(ends == std::vector{std::error_code()});
  }
  ends.clear();
  {
    WriteGroup group = group_of();
    good.write(bytes(1), group.next());
    bad.write(bytes(1), group.next());
    static_cast<void>(group.next());  // never given to anybody
  }
  bad.break_connection(connection_lost(104));
  CHECK(ends.empty());
  static_cast<void>(good.take_sent());
  REQUIRE(ends.size() == 1);
  CHECK(ends[0] == errc::cancelled);
  ends.clear();
  group_of();
  CHECK(ends == std::vector{std::error_code()});
}

TEST_CASE("a file range and descriptors go past the handlers, in their place") {
  EmbeddedChannel channel;
  channel.open();
  const std::string path = "/tmp/linkspan-writes-test-" + std::to_string(::getpid());
  const std::unique_ptr<File> made = system_files().open(path, OpenMode::create_new).value_or_throw();
  REQUIRE(made->write_at(text("0123456789"), 0));
  REQUIRE(system_files().remove(path));
  const std::shared_ptr<const File> file(adopt_file(::dup(made->descriptor()), "file"));
  Completions done;
  channel.write(text("<"), done(1));
  channel.write(FileRange{file, 2, 4}, done(2));
  std::vector<Socket> sockets;
  sockets.emplace_back(::dup(made->descriptor()));
  channel.write(WithDescriptors{text("d"), std::move(sockets)}, done(3));
  channel.write(text(">"), done(4));
  CHECK(channel.take_sent().to_string() == "<2345d>");
  CHECK(channel.take_descriptors().size() == 1);
  REQUIRE(done.results.size() == 4);
  channel.write(FileRange{file, 8, 4}, done(5));
  channel.tick();
  CHECK(done.results[4].second == errc::truncated);
  CHECK(*channel.close_error() == errc::truncated);
}

TEST_CASE("the bytes that wait on all channels of a loop, and of several loops, have a budget") {
  LogCapture log;
  PendingBudget process(1000);
  EventLoopOptions options;
  options.max_pending_bytes = 600;
  options.pending_budget = &process;
  EmbeddedChannel first(kMarks, true, {}, options);
  EmbeddedChannel second(kMarks, true, {}, options);
  EmbeddedChannel third(kMarks, true, {}, options);
  REQUIRE(third.pipeline().append<Flood>());
  for (EmbeddedChannel* channel : {&first, &second, &third}) channel->open();
  Completions done;
  const PendingBudget& of_first = *first.loop().pending_budget();

  first.write(bytes(601));
  CHECK(of_first.used_bytes() == 601);
  CHECK(process.used_bytes() == 601);
  first.write(bytes(1), done(1));  // over the loop's
  first.tick();
  REQUIRE(done.results.size() == 1);
  CHECK(done.results[0].second == errc::limit_exceeded);
  CHECK(of_first.refused_writes() == 1);

  second.write(bytes(400));
  second.write(bytes(1), done(2));  // over the process's
  second.tick();
  REQUIRE(done.results.size() == 2);
  CHECK(done.results[1].second == errc::limit_exceeded);

  std::thread([&] { first.ref().write(bytes(1), done(3)); }).join();
  CHECK(done.results.size() == 3);

  CHECK(first.take_sent().size() == 601);
  CHECK(process.used_bytes() == 400);
  CHECK(of_first.used_bytes() == 0);
  CHECK(process.high_water_bytes() == 1001);
  const ChannelRef second_ref = second.ref();
  std::thread([&] { second_ref.write(bytes(50)); }).join();
  CHECK(process.used_bytes() == 450);  // at the call
  second.tick();
  CHECK(second.take_sent().size() == 450);
  CHECK(process.used_bytes() == 0);

  second.write(bytes(1900));
  third.receive("go");  // writes regardless
  REQUIRE(third.close_error().has_value());
  CHECK(*third.close_error() == errc::limit_exceeded);
  CHECK(third.loop().pending_budget()->aborted_channels() == 1);
  second.abort();
  second.tick();
  CHECK(process.used_bytes() == 0);
}
