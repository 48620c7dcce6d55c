// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/buffer_debug.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lib/buffer/in_flight.hpp"
#include "linkspan/base/log.hpp"
#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/mapped_file.hpp"
#include "support/death.hpp"
#include "support/temporary_directory.hpp"

using namespace linkspan;
using linkspan::test::last_words;

namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

TEST_CASE("a program can ask for live buffers in every build") {
  const BufferScope scope;
  const std::size_t before = live_buffer_count();
  Slice slice = Slice::copy("hello");
  label_buffer(slice, "greeting");
  CHECK(live_buffer_count() - before == (kBufferDebug ? 1 : 0));
  CHECK(scope.live_count() == (kBufferDebug ? 1 : 0));
  CHECK(contains(live_buffers(), kBufferDebug ? "greeting" : "not a build with -Dbuffer_debug=true"));
  slice = Slice();
  CHECK(scope.live_count() == 0);
}

#ifdef LINKSPAN_BUFFER_DEBUG

namespace {

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++count;
  return count;
}

// A Slice whose life the test ends by hand.
struct Manual {
  explicit Manual(Slice slice) { ::new (static_cast<void*>(memory.data())) Slice(std::move(slice)); }
  Slice& operator*() noexcept { return *std::launder(reinterpret_cast<Slice*>(memory.data())); }
  alignas(Slice) std::array<std::byte, sizeof(Slice)> memory;
};

// AddressSanitizer would be the first to see that the memory is released.
[[gnu::noinline, gnu::no_sanitize_address]] std::byte exchange_unchecked(std::byte* at, std::byte value) {
  volatile std::byte* memory = at;
  const std::byte before = *memory;
  *memory = value;
  return before;
}

struct TestStorage final : Storage {
  TestStorage() noexcept : Storage(nullptr, 8, Access::writable, [](Storage*) noexcept {}) {
    set_data(bytes.data());
  }
  using Storage::revive;
  std::array<std::byte, 8> bytes{};
};

}  // namespace

TEST_CASE("a report names each buffer's kind, size and holders") {
  const BufferScope scope;
  BlockPool pool;
  const Slice heap = Slice::copy("0123456789");
  Block pooled = pool.allocate(100);
  const std::string text = "borrowed";
  const Slice borrowed = Slice::borrow(std::as_bytes(std::span(text)), [] {});
  const Slice adopted = Slice::adopt(std::string(50, 'x'));
  const test::TemporaryDirectory directory;
  const int file = ::open(directory.write("file", "mapped").c_str(), O_RDONLY | O_CLOEXEC);
  const Slice mapped = map_file(file, 0, 6).value_or_throw();
  ::close(file);

  CHECK(scope.live_count() == 5);
  const Slice part = heap.slice(2, 3);
  label_buffer(part, "a label that is longer than the thirty-one bytes that are kept");
  const std::string report = scope.live();
  CHECK(contains(report, "5 buffers are alive\n"));
  CHECK(contains(report, ": heap, 10 bytes, allocated on thread "));
  CHECK(contains(report, ": pool, 512 bytes, allocated on thread "));
  CHECK(contains(report, ": borrowed, 8 bytes, allocated on thread "));
  CHECK(contains(report, ": adopted, 50 bytes, allocated on thread "));
  CHECK(contains(report, ": mapped, 6 bytes, allocated on thread "));
  CHECK(contains(report, "holder "));
  CHECK(contains(report, " \"a label that is longer than the\": 3 bytes at "));
  CHECK(count_of(report, "  holder ") == 6);
#if __has_include(<execinfo.h>)
  CHECK(contains(report, "    #0 "));
#endif
}

TEST_CASE("moves carry the holder along and copies are new holders") {
  const BufferScope scope;
  Chain chain;
  for (int i = 0; i < 20; ++i) chain.append(Slice::copy("x"));  // grows: slices are relocated
  Chain moved = std::move(chain);
  Chain front = moved.split_front(7);
  front.append(std::move(moved));
  CHECK(scope.live_count() == 20);
  CHECK(count_of(scope.live(), "  holder ") == 20);
  const Chain shared = front.share();
  CHECK(scope.live_count() == 20);
  CHECK(count_of(scope.live(), "  holder ") == 40);
}

TEST_CASE("a holder shows what it sees of its buffer") {
  const BufferScope scope;
  Block block = heap_allocator().allocate(100);
  Slice slice = block.freeze(60);
  slice.drop_front(10);
  slice.drop_back(5);
  const std::string report = scope.live();
  CHECK(contains(report, ": 40 bytes at "));
  CHECK(contains(report, ": 45 bytes at "));
}

TEST_CASE("long reports say what they leave out") {
  const BufferScope scope;
  std::vector<Slice> slices;
  for (int i = 0; i < 102; ++i) slices.push_back(Slice::copy("x"));
  const std::vector<Slice> copies(19, slices.front());
  const std::string report = scope.live();
  CHECK(contains(report, "102 buffers are alive\n"));
  CHECK(contains(report, "and 2 buffers more\n"));
  CHECK(contains(report, "  and 4 holders more\n"));
}

TEST_CASE("a buffer that outlives a BufferScope aborts with a report") {
  const std::string words = last_words([] {
    Slice leaked;
    const BufferScope scope;
    leaked = Slice::copy("12345");
  });
  CHECK(contains(words, "broken rule: no buffer outlives its BufferScope"));
  CHECK(contains(words, "1 buffer is alive\n"));
  CHECK(contains(words, ": heap, 5 bytes, allocated on thread "));
}

TEST_CASE("at exit the leaks are logged when the environment asks") {
  const auto leak_at_exit = [](const char* value) {
    return last_words([value] {
      if (value != nullptr) ::setenv("LINKSPAN_BUFFER_LEAKS", value, 1);
      static auto& leaked = *new Slice(Slice::copy("12345"));
      static_cast<void>(leaked);
      // Aborts after what runs at exit, so that last_words hears it.
      set_log_callback(
          [](void*, const LogRecord& record) {
            std::fprintf(stderr, "[%.*s] %.*s\n", static_cast<int>(record.room.size()), record.room.data(),
                         static_cast<int>(record.message.size()), record.message.data());
            if (record.message.find("heap, 5 bytes") != std::string_view::npos) std::abort();
          },
          nullptr);
      std::exit(0);
    });
  };
  CHECK(contains(leak_at_exit("1"), "[buffer] 1 buffer is alive\n"));
  CHECK(leak_at_exit(nullptr).empty());
}

TEST_CASE("a copy of a slice's bytes is caught when it lets go too") {
  const std::string words = last_words([] {
    Manual slice(Slice::copy("12345"));
    Manual twin((Slice()));
    std::memcpy(static_cast<void*>(twin.memory.data()), slice.memory.data(), sizeof(Slice));
    (*slice).~Slice();
    (*twin).~Slice();
  });
  CHECK(contains(words, "broken rule: what holds a buffer lets go once, and is not copied by its bytes"));
  CHECK(contains(words, "found on thread "));
  CHECK(contains(words, "it let go on thread "));
  CHECK(contains(words, ": heap, 5 bytes, allocated on thread "));
  CHECK(contains(words, "  released on thread "));
}

TEST_CASE("a slice that is used after its destructor is caught") {
  CHECK(contains(last_words([] {
                   Manual slice(Slice::copy("12345"));
                   (*slice).~Slice();
                   static_cast<void>((*slice).size());
                 }),
                 "broken rule: what holds a buffer is not used after it has let go"));
  CHECK(contains(last_words([] {
                   Manual slice(Slice::immortal("12345"));
                   (*slice).~Slice();
                   const Slice copy = *slice;
                 }),
                 "broken rule: what holds a buffer is not used after it has let go"));
}

TEST_CASE("the end of a holder is forgotten in the end, and said so") {
  CHECK(contains(last_words([] {
                   Manual slice(Slice::copy("12345"));
                   (*slice).~Slice();
                   for (int i = 0; i < 20'000; ++i) static_cast<void>(Slice::copy("x"));
                   static_cast<void>((*slice).data());
                 }),
                 "it let go too long ago to be remembered\n"));
}

TEST_CASE("a storage's ownership that is taken twice is caught") {
  CHECK(contains(last_words([] {
                   TestStorage storage;
                   const Block first(storage);
                   const Block second(storage);
                 }),
                 "broken rule: a storage's one ownership is taken once"));
}

TEST_CASE("a storage that is revived while it lives is caught") {
  const std::string words = last_words([] {
    TestStorage storage;
    const Block block(storage);
    storage.revive();
  });
  CHECK(contains(words, "broken rule: only a released storage is revived"));
  CHECK(contains(words, ": other, 8 bytes, allocated on thread "));
}

TEST_CASE("a storage that is destroyed while it is held is caught") {
  CHECK(contains(last_words([] {
                   Block block;
                   TestStorage storage;
                   block = Block(storage);
                 }),
                 "broken rule: a storage that is held is not destroyed"));
}

TEST_CASE("released memory of the pool is filled, and a write to it is caught when it is handed out again") {
  const std::string words = last_words([] {
    BlockPool pool;
    Block block = pool.allocate(512);
    std::byte* memory = block.data();
    block.reset();
    if (exchange_unchecked(memory, kReleasedByte) != kReleasedByte) return;
    if (exchange_unchecked(memory + 511, kReleasedByte) != kReleasedByte) return;
    block = pool.allocate(512);
    block.reset();
    exchange_unchecked(memory + 17, std::byte{1});
    block = pool.allocate(512);
  });
  CHECK(contains(words, "broken rule: memory is not written to after its release"));
  CHECK(contains(words, "byte 17 was changed\n"));
  CHECK(contains(words, ": pool, 512 bytes, allocated on thread "));
  CHECK(contains(words, "  released on thread "));
}

TEST_CASE("memory that is changed while it is in flight is caught") {
  const auto change = [](std::size_t at, std::size_t sent_before) {
    return last_words([at, sent_before] {
      std::string text = "0123456789";
      Chain queue;
      queue.append(Slice::copy("head"));
      queue.append(Slice::borrow(std::as_bytes(std::span(text)), [] {}));
      InFlight in_flight;
      in_flight.add(queue, "write queue", 12);
      in_flight.remove(sent_before);
      if (at < text.size()) text[at] = '!';
      in_flight.remove(queue.size() - sent_before);
      queue.clear();
    });
  };
  const std::string words = change(3, 0);
  CHECK(contains(words, "broken rule: memory in flight is not changed: from a write to its completion"));
  CHECK(contains(words, ": borrowed, 10 bytes, allocated on thread "));
  CHECK(contains(words, " \"write queue of stream 12\": 10 bytes at "));
  CHECK(contains(change(3, 6), "memory in flight is not changed"));  // a part of it was sent already
  CHECK(change(100, 0).empty());
  CHECK(change(100, 6).empty());
}

TEST_CASE("a mapped file that was truncated while in flight does no harm") {
  const test::TemporaryDirectory directory;
  const int file = ::open(directory.write("file", "mapped").c_str(), O_RDWR | O_CLOEXEC);
  Chain queue(map_file(file, 0, 6).value_or_throw());
  InFlight in_flight;
  in_flight.add(queue, "write queue", 1);
  REQUIRE(::ftruncate(file, 0) == 0);
  in_flight.remove(6);
  ::close(file);
}

TEST_CASE("many threads can hold and let go of the same buffers") {
  constexpr int kThreads = 8;
  constexpr int kRounds = 500;
  const BufferScope scope;
  {
    const std::vector<Slice> shared{Slice::copy("one"), Slice::copy("two"), Slice::copy("three")};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&shared] {
        Chain chain;
        for (int round = 0; round < kRounds; ++round) {
          for (const Slice& slice : shared) chain.append(slice.slice(1, 2));
          chain.append(Slice::copy("own"));
          if (round % 10 == 9) chain.drop_front(chain.size() / 2);
          if (round % 100 == 99) static_cast<void>(live_buffers());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(scope.live_count() == 3);
  }
  CHECK(scope.live_count() == 0);
}

#endif
