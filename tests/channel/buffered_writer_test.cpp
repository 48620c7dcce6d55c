// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BufferedWriter with a wire that the test plays: order, exactly one completion, bounds, and the account.
#include "linkspan/channel/buffered_writer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/channel/embedded_channel.hpp"
#include "tests/support/engines.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

constexpr std::size_t kKiB = 1024;

std::string pattern(std::size_t size, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(generator());
  return text;
}

// Takes chunks and completes them when the test says so.
class TestWire {
 public:
  ChunkSend send() {
    return [this, connection = ++connections](Chunk&& chunk, WriteDone done) {
      chunks.push_back({connection, std::move(chunk), std::move(done)});
    };
  }
  /// The first `count` chunks leave: their bytes are read now, as a kernel does.
  void accept(std::size_t count = 1000) {
    for (; count != 0 && !chunks.empty(); --count) {
      Sent sent = std::move(chunks.front());
      chunks.pop_front();
      CHECK(sent.chunk.offset == received.size());
      CHECK(sent.chunk.intact());
      received += sent.chunk.bytes.to_string();
      sent.chunk.bytes.clear();
      sent.done({});
    }
  }
  void break_connection(std::error_code error) {
    std::deque<Sent> failed = std::move(chunks);
    chunks.clear();
    for (Sent& sent : failed) {
      sent.chunk.bytes.clear();
      sent.done(error);
    }
  }

  struct Sent {
    int connection;
    Chunk chunk;
    WriteDone done;
  };
  std::deque<Sent> chunks;
  std::string received;
  int connections = 0;
};

struct Fixture {
  explicit Fixture(const BufferedWriterOptions& options)
      : loop(null_loop(script)), writer(std::make_unique<BufferedWriter>(*loop, options)) {}
  void tick() {
    for (int i = 0; i < 3; ++i) loop->run_once(Duration::zero());
  }
  WriteDone done(int number) {
    return [this, number](std::error_code error) { results.emplace_back(number, error); };
  }
  [[nodiscard]] int count(int number) const {
    return static_cast<int>(std::ranges::count(results, number, &std::pair<int, std::error_code>::first));
  }
  [[nodiscard]] std::error_code result(int number) const {
    const auto found = std::ranges::find(results, number, &std::pair<int, std::error_code>::first);
    REQUIRE(found != results.end());
    return found->second;
  }

  EngineScript script;
  std::vector<std::pair<int, std::error_code>> results;  // the loop's end may add some
  std::unique_ptr<EventLoop> loop;
  TestWire wire;
  std::unique_ptr<BufferedWriter> writer;
};

BufferedWriterOptions small_options() {
  BufferedWriterOptions options;
  options.chunk_bytes = 4 * kKiB;
  options.reference_threshold_bytes = kKiB;
  options.pool_bytes = 16 * kKiB;
  options.max_pending_bytes = 64 * kKiB;
  options.high_watermark_bytes = 8 * kKiB;
  options.low_watermark_bytes = 4 * kKiB;
  options.checksum = ChecksumKind::crc32c;
  return options;
}

template <class Bytes>
concept Writable = requires(BufferedWriter& writer, Bytes&& bytes) {
  writer.write(std::forward<Bytes>(bytes));
};
template <class Bytes>
concept WritableWhenRoom = requires(BufferedWriter& writer, Bytes&& bytes, WriteDone done) {
  writer.write_when_room(std::forward<Bytes>(bytes), std::move(done));
};

}  // namespace

TEST_CASE("memory that is gone when the call returns cannot be written") {
  using Bytes = std::vector<std::byte>;
  CHECK_FALSE(Writable<std::string>);
  CHECK_FALSE(Writable<Bytes>);
  CHECK_FALSE(WritableWhenRoom<Bytes>);
  CHECK(Writable<std::string&>);
  CHECK(Writable<const std::string&>);
  CHECK(Writable<std::string_view>);
  CHECK(Writable<const char(&)[4]>);
  CHECK(Writable<Bytes&>);
  CHECK(Writable<std::span<const std::byte>>);
  CHECK(Writable<Chain>);
  CHECK(WritableWhenRoom<Bytes&>);
  CHECK(WritableWhenRoom<Chain>);
}

TEST_CASE("small writes are collected to chunks, large ones are referenced, and bytes keep their order") {
  Fixture f(small_options());
  f.writer->attach(f.wire.send());
  const std::string small = pattern(1000), large = pattern(10'000, 2);
  const CopyScope scope;
  CHECK_FALSE(f.writer->write(small, f.done(1)));
  CHECK(f.wire.chunks.empty());
  CHECK_FALSE(f.writer->write(large, f.done(2)));
  CHECK_FALSE(f.writer->write(small));
  CHECK(f.wire.chunks.size() == 3);  // 4 KiB, 4 KiB, and the rest of the large write
  CHECK(f.wire.chunks[2].chunk.bytes.size() == 11'000 - 8 * kKiB);
  CHECK(scope.copied()[CopyPlace::collected] == 2000);
  CHECK(scope.copied().total() == 2000);
  CHECK(f.writer->counters().referenced_bytes == 10'000);
  f.tick();
  CHECK(f.result(1) == std::error_code());
  CHECK(f.count(2) == 0);
  f.writer->flush(f.done(3));
  f.wire.accept(3);
  f.tick();
  CHECK(f.result(2) == std::error_code());
  CHECK(f.count(3) == 0);
  f.wire.accept();
  f.tick();
  CHECK(f.result(3) == std::error_code());
  CHECK(f.wire.received == small + large + small);
  CHECK(f.writer->acknowledged_bytes() == 12'000);
  CHECK(f.writer->pending_bytes() == 0);
}

TEST_CASE("a completion comes after everybody has let go of the memory, on whatever thread that is") {
  Fixture f(small_options());
  f.writer->attach(f.wire.send());
  std::string large = pattern(3000);
  CHECK_FALSE(f.writer->write(large, f.done(1)));
  Chain kept = f.wire.chunks.front().chunk.bytes.share();  // as a send without copies has it
  f.wire.accept();
  f.tick();
  CHECK(f.writer->acknowledged_bytes() == 3000);
  CHECK(f.count(1) == 0);
  std::thread([&] { kept.clear(); }).join();
  CHECK(f.count(1) == 0);
  f.tick();
  CHECK(f.result(1) == std::error_code());
  large.assign(large.size(), 'x');  // changes nothing that was sent
  CHECK(f.wire.received == pattern(3000));
}

TEST_CASE("without references everything is copied, and nothing waits for the memory") {
  BufferedWriterOptions options = small_options();
  options.reference_threshold_bytes = BufferedWriterOptions::kNever;
  Fixture f(options);
  f.writer->attach(f.wire.send());
  std::string data = pattern(12'000);
  CHECK_FALSE(f.writer->write(data, f.done(1)));
  CHECK_FALSE(f.writer->write(Chain(Slice::immortal(std::string_view(data).substr(0, 4000)))));
  data.assign(data.size(), 'x');
  f.writer->flush();
  f.wire.accept();
  f.tick();
  CHECK(f.result(1) == std::error_code());
  CHECK(f.wire.received.substr(0, 12'000) == pattern(12'000));
  CHECK(f.writer->counters().referenced_bytes == 0);
}

TEST_CASE("chains are referenced where they are large, copied where they are small, and fill chunks") {
  Fixture f(small_options());
  f.writer->attach(f.wire.send());
  const std::string large = pattern(5000);
  Chain chain(Slice::immortal("small"));
  chain.append(Slice::immortal(large));
  CHECK_FALSE(f.writer->write(std::move(chain), f.done(1)));
  CHECK(f.wire.chunks.size() == 1);
  CHECK(f.wire.chunks.front().chunk.bytes.size() == 4 * kKiB);
  f.tick();
  CHECK(f.result(1) == std::error_code());
  f.writer->close(f.done(2));
  f.wire.accept();
  f.tick();
  CHECK(f.result(2) == std::error_code());
  CHECK(f.wire.received == "small" + large);
  CHECK(f.writer->counters().copied_bytes == 5);
}

TEST_CASE("a pool that is full refuses, never grows, and says when there is room") {
  Fixture f(small_options());
  f.writer->attach(f.wire.send());
  std::vector<bool> told;
  f.writer->on_writable_changed([&](bool writable) { told.push_back(writable); });
  std::size_t taken = 0;
  std::error_code refusal;
  const std::string small = pattern(1000);
  while (!refusal) {
    refusal = f.writer->write(small, f.done(1));
    if (!refusal) taken += 1000;
    REQUIRE(taken <= 16 * kKiB);
  }
  CHECK(refusal == errc::pool_exhausted);
  CHECK(taken == 16'000);
  CHECK_FALSE(f.writer->writable());
  CHECK(f.writer->pool_statistics().high_water_bytes <= 16 * kKiB);
  f.tick();
  CHECK(f.count(1) == 17);
  CHECK(f.results.back().second == errc::pool_exhausted);
  CHECK(told == std::vector{false});
  f.wire.accept();  // also what was collected when the write was refused
  f.tick();
  CHECK(f.wire.received.size() == taken);
  CHECK(told == std::vector{false, true});
  CHECK_FALSE(f.writer->write(small));
  CHECK(f.writer->counters().refused == 1);
}

TEST_CASE("a write that the pool can never hold is refused whatever is pending, and takes nothing") {
  BufferedWriterOptions options = small_options();
  options.reference_threshold_bytes = BufferedWriterOptions::kNever;
  Fixture f(options);
  f.writer->attach(f.wire.send());
  const std::string large = pattern(16 * kKiB + 1);
  CHECK(f.writer->write(large, f.done(1)) == errc::limit_exceeded);
  f.tick();
  CHECK(f.result(1) == errc::limit_exceeded);
  CHECK(f.writer->taken_bytes() == 0);
  CHECK(f.writer->writable());
  CHECK_FALSE(f.writer->write(std::string_view(large).substr(1)));
}

TEST_CASE("referenced bytes count: towards the watermarks and the bound of what is pending") {
  Fixture f(small_options());
  f.writer->attach(f.wire.send());
  const std::string large = pattern(60 * kKiB);
  std::vector<bool> told;
  f.writer->on_writable_changed([&](bool writable) { told.push_back(writable); });
  CHECK_FALSE(f.writer->write(large, f.done(1)));
  CHECK(f.writer->pending_bytes() == 60 * kKiB);
  CHECK_FALSE(f.writer->writable());
  CHECK(f.writer->write(std::string_view(large).substr(0, 5000), f.done(2)) == errc::limit_exceeded);
  f.tick();
  CHECK(told == std::vector{false});
  f.wire.accept(13);
  f.tick();
  CHECK(told == std::vector{false});
  f.wire.accept(1);
  f.tick();
  CHECK(told == std::vector{false, true});
  f.wire.accept();
  f.tick();
  const std::string larger = pattern(100 * kKiB);
  CHECK_FALSE(f.writer->write(larger, f.done(3)));  // nothing is pending
  f.wire.accept();
}

TEST_CASE("writes that wait for room are taken in order, piece by piece, and may be withdrawn before") {
  BufferedWriterOptions options = small_options();
  options.reference_threshold_bytes = BufferedWriterOptions::kNever;
  Fixture f(options);
  f.writer->attach(f.wire.send());
  const std::string first = pattern(50'000), second = pattern(700, 2), third = pattern(900, 3);
  CHECK(f.writer->write_when_room(std::as_bytes(std::span(first)), f.done(1)) != 0);
  const auto waiting = f.writer->write_when_room(std::as_bytes(std::span(second)), f.done(2));
  CHECK(f.writer->write_when_room(Chain(Slice::copy(third)), f.done(3)) != 0);
  CHECK(f.writer->write("not yet", f.done(4)) == errc::pool_exhausted);
  f.writer->flush(f.done(5));
  CHECK(f.writer->withdraw(waiting));
  CHECK_FALSE(f.writer->withdraw(waiting));
  CHECK_FALSE(f.writer->withdraw(1));  // has begun
  for (int i = 0; i < 100 && f.count(5) == 0; ++i) {
    CHECK(f.writer->pool_statistics().live_bytes <= 16 * kKiB);
    f.wire.accept(1);
    f.tick();
  }
  CHECK(f.wire.received == first + third);
  for (const int number : {1, 3, 5}) CHECK(f.result(number) == std::error_code());
  CHECK(f.result(2) == errc::cancelled);
  CHECK(f.writer->write_when_room(std::as_bytes(std::span(second)), f.done(6)) == 0);
  f.tick();
  CHECK(f.result(6) == std::error_code());
}

TEST_CASE("no more writes wait for room than are allowed") {
  BufferedWriterOptions options = small_options();
  options.max_waiting = 2;
  Fixture f(options);
  f.writer->attach(f.wire.send());
  const std::string large = pattern(64 * kKiB);
  CHECK(f.writer->write_when_room(std::as_bytes(std::span(large)), f.done(1)) == 0);
  for (int number = 2; number <= 4; ++number) {
    const auto waiting = f.writer->write_when_room(std::as_bytes(std::span(large)), f.done(number));
    CHECK((waiting != 0) == (number <= 3));
  }
  f.writer->flush(f.done(5));
  f.tick();
  CHECK(f.result(4) == errc::limit_exceeded);
  CHECK(f.result(5) == errc::limit_exceeded);
  f.writer->close(f.done(6));  // an end is always taken
  for (int i = 0; i < 10; ++i) {
    f.wire.accept();
    f.tick();
  }
  CHECK((f.wire.received == large + large + large));
  for (const int number : {1, 2, 3, 6}) CHECK(f.result(number) == std::error_code());
}

TEST_CASE("when the connection fails, everything completes once, and the account is exact") {
  Fixture f(small_options());
  f.writer->attach(f.wire.send());
  const std::string small = pattern(500), large = pattern(9000);
  CHECK_FALSE(f.writer->write(small));
  CHECK_FALSE(f.writer->write(large, f.done(1)));
  CHECK_FALSE(f.writer->write(large, f.done(2)));
  f.writer->flush(f.done(3));
  f.wire.accept(3);  // the first large write ends there
  f.wire.break_connection(connection_lost(104));
  f.tick();
  CHECK(f.result(1) == std::error_code());
  CHECK(f.result(2) == errc::connection_lost);
  CHECK(f.result(3) == errc::connection_lost);
  CHECK(f.writer->error() == errc::connection_lost);
  CHECK(f.writer->taken_bytes() == 18'500);
  CHECK(f.writer->acknowledged_bytes() == f.wire.received.size());
  CHECK(f.writer->acknowledged_bytes() == 9500);
  CHECK(f.writer->pending_bytes() == 0);
  CHECK(f.writer->write(large, f.done(4)) == errc::connection_lost);
  f.writer->flush(f.done(5));
  f.tick();
  CHECK(f.result(4) == errc::connection_lost);
  CHECK(f.result(5) == errc::connection_lost);
  for (int number = 1; number <= 5; ++number) CHECK(f.count(number) == 1);
}

TEST_CASE("what is not acknowledged is sent again on the next connection, and its memory stays borrowed") {
  BufferedWriterOptions options = small_options();
  options.resend = true;
  SUBCASE("acknowledged by the kernel") {}
  SUBCASE("acknowledged by the peer") {
    options.acknowledged_by = AcknowledgedBy::peer;
  }
  const bool by_peer = options.acknowledged_by == AcknowledgedBy::peer;
  Fixture f(options);
  std::vector<std::error_code> detached;
  f.writer->on_detached([&](std::error_code error) { detached.push_back(error); });
  f.writer->attach(f.wire.send());
  const std::string large = pattern(9000), small = pattern(300, 2);
  CHECK_FALSE(f.writer->write(large, f.done(1)));
  CHECK_FALSE(f.writer->write(small));
  f.writer->flush(f.done(2));
  f.wire.accept(1);
  std::size_t acknowledged = 4 * kKiB;
  if (by_peer) {
    acknowledged = 0;
    CHECK_FALSE(f.writer->acknowledge(1'000'000));  // nobody has sent so much
    f.tick();
    CHECK(f.writer->acknowledged_bytes() == 0);
  }
  f.wire.break_connection(connection_lost(104));
  if (by_peer) f.writer->detach(connection_lost(0));  // it has failed already: no second time
  f.tick();
  CHECK(detached.size() == 1);
  CHECK_FALSE(f.writer->attached());
  CHECK(f.results.empty());
  CHECK_FALSE(f.writer->write(small));  // waits for a connection
  f.wire.received.resize(acknowledged);
  f.writer->attach(f.wire.send());
  f.writer->flush(f.done(3));
  CHECK(f.writer->counters().chunks_resent == (by_peer ? 4 : 3));
  f.wire.accept();
  if (by_peer) CHECK(f.writer->acknowledge(f.wire.received.size()));
  f.tick();
  CHECK(f.wire.received == large + small + small);
  for (int number = 1; number <= 3; ++number) CHECK(f.result(number) == std::error_code());
  CHECK(f.writer->pending_bytes() == 0);
}

TEST_CASE("completions of a connection that is gone change nothing") {
  BufferedWriterOptions options = small_options();
  options.resend = true;
  Fixture f(options);
  f.writer->attach(f.wire.send());
  const std::string large = pattern(6000);
  CHECK_FALSE(f.writer->write(large, f.done(1)));
  std::deque<TestWire::Sent> old = std::move(f.wire.chunks);
  f.wire.chunks.clear();
  f.writer->attach(f.wire.send());
  for (TestWire::Sent& sent : old) {
    sent.done(connection_lost(104));
    sent.chunk.bytes.clear();
  }
  f.tick();
  CHECK(f.writer->attached());
  CHECK(f.writer->acknowledged_bytes() == 0);
  f.wire.accept();
  f.tick();
  CHECK(f.result(1) == std::error_code());
}

TEST_CASE("close, giving up, destruction and a stop of the loop complete everything, once") {
  BufferedWriterOptions options = small_options();
  options.resend = true;
  Fixture f(options);
  f.writer->attach(f.wire.send());
  const std::string large = pattern(9000), huge = pattern(70'000);
  CHECK_FALSE(f.writer->write(large, f.done(1)));
  CHECK(f.writer->write_when_room(std::as_bytes(std::span(huge)), f.done(2)) != 0);
  f.writer->close(f.done(3));
  CHECK(f.writer->write("late", f.done(4)) == errc::shut_down);
  std::error_code wanted = make_error_code(errc::cancelled);
  SUBCASE("give up") {
    wanted = make_error_code(errc::timed_out);
    f.writer->give_up(wanted);
  }
  SUBCASE("destruction") {
    f.writer.reset();
  }
  SUBCASE("destruction, and completions after it") {
    f.writer.reset();
    f.tick();
    CHECK(f.count(1) == 0);  // the wire still reads it
    f.wire.accept();
  }
  SUBCASE("a stop of the loop") {
    f.loop->stop();
    f.wire.chunks.clear();
    f.loop->run();
  }
  f.wire.chunks.clear();
  f.tick();
  for (const int number : {1, 2, 3}) {
    CHECK(f.count(number) == 1);
    CHECK(f.result(number) == wanted);
  }
  CHECK(f.result(4) == errc::shut_down);
}

TEST_CASE("a chunk that is accepted or refused inside the call that sends it is told of later") {
  BufferedWriterOptions options = small_options();
  Fixture f(options);
  std::error_code answer;
  std::string received;
  f.writer->attach([&](Chunk&& chunk, WriteDone done) {
    received += chunk.bytes.to_string();
    chunk.bytes.clear();
    if (received.size() > 10'000) answer = make_error_code(errc::limit_exceeded);
    done(answer);
  });
  const std::string large = pattern(9000);
  CHECK_FALSE(f.writer->write(large, f.done(1)));
  CHECK(f.results.empty());
  f.tick();
  CHECK(f.result(1) == std::error_code());
  CHECK(f.writer->write(large, f.done(2)) == errc::limit_exceeded);
  f.tick();
  CHECK(f.result(2) == errc::limit_exceeded);
  CHECK(f.count(2) == 1);
}

TEST_CASE("a channel that refuses a chunk in the middle is aborted, so that no later one follows") {
  PendingLimits limits;
  limits.max_bytes = 10 * kKiB;
  EmbeddedChannel channel({100, 50}, true, limits);
  channel.open();
  BufferedWriterOptions options = small_options();
  options.max_pending_bytes = 1 << 20;
  BufferedWriter writer(channel.loop(), options);
  writer.attach(send_bytes_to(channel.ref()));
  std::error_code result;
  int completions = 0;
  const std::string large = pattern(20'000);
  CHECK_FALSE(writer.write(large, [&](std::error_code error) {
    result = error;
    ++completions;
  }));
  for (int i = 0; i < 5; ++i) channel.tick();
  static_cast<void>(channel.take_sent());
  for (int i = 0; i < 5; ++i) channel.tick();
  CHECK(channel.close_error().has_value());
  CHECK(result == errc::limit_exceeded);
  CHECK(completions == 1);
  CHECK(writer.error() == errc::limit_exceeded);
}

TEST_CASE("random writes over random wires arrive whole, in order, and complete once") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 generator(seed);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(generator() % limit); };
    BufferedWriterOptions options = small_options();
    options.chunk_bytes = 1 + below(9000);
    options.resend = below(2) == 0;
    options.acknowledged_by = below(2) == 0 ? AcknowledgedBy::peer : AcknowledgedBy::kernel;
    if (below(4) == 0) options.reference_threshold_bytes = BufferedWriterOptions::kNever;
    Fixture f(options);
    f.writer->attach(f.wire.send());
    std::string wanted;
    std::deque<std::string> memory;
    int writes = 0;
    for (int step = 0; step < 300; ++step) {
      const std::size_t what = below(20);
      if (what < 9) {
        const std::string& data = memory.emplace_back(pattern(below(what < 6 ? 900 : 12'000), generator()));
        const int number = ++writes;
        WriteDone done = f.done(number);
        if (below(3) == 0) {
          if (!f.writer->write(Chain(Slice::immortal(std::string_view(data))), std::move(done)))
            wanted += data;
        } else if (!f.writer->write(data, std::move(done))) {
          wanted += data;
        }
      } else if (what < 11) {
        const std::string& data = memory.emplace_back(pattern(below(5000), generator()));
        if (!f.writer->error()) wanted += data;
        static_cast<void>(f.writer->write_when_room(std::as_bytes(std::span(data)), f.done(++writes)));
      } else if (what < 13) {
        f.writer->flush(f.done(++writes));
      } else if (what < 17) {
        f.wire.accept(1 + below(4));
        if (options.acknowledged_by == AcknowledgedBy::peer && below(2) == 0) {
          CHECK(f.writer->acknowledge(f.wire.received.size()));
        }
      } else if (what == 17 && options.resend) {
        f.wire.break_connection(connection_lost(32));
        if (f.writer->attached()) continue;  // there was no chunk that could fail
        f.wire.received.resize(f.writer->acknowledged_bytes());
        f.writer->attach(f.wire.send());
      } else {
        f.tick();
      }
      CHECK(f.writer->pool_statistics().live_bytes <= 16 * kKiB);
      CHECK(f.writer->acknowledged_bytes() <= f.writer->taken_bytes());
    }
    const bool fails = below(3) == 0;
    if (fails) {
      f.wire.accept(below(3));
      f.writer->give_up(make_error_code(errc::aborted));
      f.wire.chunks.clear();
      f.tick();
      CHECK(wanted.starts_with(f.wire.received));
      CHECK(f.writer->acknowledged_bytes() <= f.wire.received.size());
    } else {
      if (!f.writer->attached()) f.writer->attach(f.wire.send());
      f.writer->close(f.done(++writes));
      for (int i = 0; i < 3000 && f.count(writes) == 0; ++i) {
        f.wire.accept();
        static_cast<void>(f.writer->acknowledge(f.wire.received.size()));
        f.tick();
      }
      CHECK(f.result(writes) == std::error_code());
      CHECK((f.wire.received == wanted));
      CHECK(f.writer->acknowledged_bytes() == wanted.size());
      CHECK(f.writer->pending_bytes() == 0);
    }
    for (int number = 1; number <= writes; ++number) REQUIRE(f.count(number) == 1);
    CHECK(f.writer->pool_statistics().live_bytes <= 16 * kKiB);
  }
}
