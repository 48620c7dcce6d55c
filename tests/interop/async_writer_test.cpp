// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <version>  // the first: what Asio finds in the standard library depends on it

#include "linkspan/interop/async_writer.hpp"

#include <doctest/doctest.h>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/use_awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/interop/loop_executor.hpp"
#include "tests/interop/loops.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

// Chunks that were sent, and wait.
struct Sent {
  std::deque<std::pair<Chunk, WriteDone>> chunks;
  std::string bytes;

  ChunkSend send() {
    return [this](Chunk&& chunk, WriteDone done) { chunks.emplace_back(std::move(chunk), std::move(done)); };
  }
  void accept() {
    while (!chunks.empty()) {
      auto [chunk, done] = std::move(chunks.front());
      chunks.pop_front();
      bytes += chunk.bytes.to_string();
      chunk.bytes.clear();
      done({});
    }
  }
};

BufferedWriterOptions small_options() {
  BufferedWriterOptions options;
  options.chunk_bytes = 4096;
  options.reference_threshold_bytes = 8192;
  options.pool_bytes = 4096;
  return options;
}

template <class Bytes>
concept WritableAsync = requires(BufferedWriter& writer, Bytes&& bytes) {
  async_write(writer, std::forward<Bytes>(bytes), asio::detached);
};
static_assert(WritableAsync<std::span<const std::byte>> && WritableAsync<std::vector<std::byte>&>);
static_assert(!WritableAsync<std::vector<std::byte>>, "memory that nobody keeps does not compile");

asio::awaitable<void> write_all(BufferedWriter& writer, const std::string& small, const std::string& large,
                                std::string& seen) {
  for (int i = 0; i < 20; ++i) {
    co_await async_write(writer, std::as_bytes(std::span(small)), asio::use_awaitable);
  }
  seen += "copied ";
  co_await async_write(writer, std::as_bytes(std::span(large)), asio::use_awaitable);
  seen += "referenced ";
  Chain chain(Slice::copy(small));
  co_await async_write(writer, std::move(chain), asio::use_awaitable);
  co_await async_flush(writer, asio::use_awaitable);
  seen += "flushed ";
  co_await async_close(writer, asio::use_awaitable);
  seen += "closed";
}

}  // namespace

TEST_CASE("a coroutine that writes waits for room in the pool, which never grows") {
  on_every_loop([](TestLoop& test) {
    Sent sent;
    BufferedWriter writer(test.loop(), small_options());
    writer.attach(sent.send());
    const std::string small(1000, 's'), large(20'000, 'l');
    std::string seen, wanted;
    asio::co_spawn(LoopExecutor(test.loop()), write_all(writer, small, large, seen), asio::detached);
    test.settle();
    CHECK(seen.empty());  // nobody has accepted anything
    CHECK(writer.taken_bytes() == 4096);
    CHECK(test.run_until([&] {
      sent.accept();
      CHECK(writer.pool_statistics().live_bytes <= 4096);
      return seen.ends_with("closed");
    }));
    for (int i = 0; i < 20; ++i) wanted += small;
    CHECK(seen == "copied referenced flushed closed");
    CHECK((sent.bytes == wanted + large + small));
    test.stop();
  });
}

TEST_CASE("a write of owned bytes that ends early is withdrawn, a flush that does goes on") {
  on_every_loop([](TestLoop& test) {
    Sent sent;
    BufferedWriter writer(test.loop(), small_options());
    writer.attach(sent.send());
    const std::string taken(4000, 'a'), refused(200, 'b');
    CHECK_FALSE(writer.write(taken));
    CHECK(writer.write(refused) == errc::pool_exhausted);
    std::vector<std::error_code> results;
    const auto record = [&](std::error_code error) { results.push_back(error); };
    std::string first(100, 'c');
    async_write(writer, std::as_bytes(std::span(first)), record);  // takes what is left of the pool
    async_write(writer, Chain(Slice::copy("withdrawn")), std::chrono::milliseconds(1), record);
    async_flush(writer, std::chrono::milliseconds(1), record);
    CHECK(test.run_until([&] { return results.size() == 2; }));
    CHECK(results[0] == errc::timed_out);
    CHECK(results[1] == errc::timed_out);
    CHECK(test.run_until([&] {
      sent.accept();
      return results.size() == 3 && sent.bytes.size() == 4100;
    }));
    CHECK_FALSE(results[2]);
    CHECK((sent.bytes == taken + first));
    test.stop();
  });
}
