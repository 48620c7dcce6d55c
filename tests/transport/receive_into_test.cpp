// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about memory that is given to receive into.
#include "linkspan/buffer/copy_ledger.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

/// Memory of the test's, as a store's pages would be, and what the stream said about it.
struct Page {
  explicit Page(std::size_t size) : bytes(size, '.') {}

  Block lend() {
    return Block::adopt(std::as_writable_bytes(std::span(bytes)), [this] { ++released; });
  }
  ReceiveCompletion completion() {
    return [this](std::error_code why, Block&& memory, std::size_t count) {
      ++completions;
      error = why;
      received = count;
      same_memory = memory.data() == reinterpret_cast<const std::byte*>(bytes.data());
      order = ++last_order;
      if (then) then();
    };
  }
  void ask(Connection& c) { c.stream.receive_into(lend(), bytes.size(), completion()); }
  [[nodiscard]] bool done() const { return completions != 0; }

  std::string bytes;
  int released = 0;
  int completions = 0;
  std::error_code error;
  std::size_t received = 0;
  bool same_memory = false;
  int order = 0;
  std::function<void()> then;
  static inline int last_order = 0;
};

}  // namespace

TEST_CASE("memory takes the next bytes of the stream, whatever its size; the rest goes on through on_read") {
  for_each_mode([](World& world) {
    for (const bool small_buffers : {false, true}) {
      Connection& c = world.open({}, small_buffers);
      c.stream.start_read();
      for (const std::size_t size :
           {std::size_t{1}, std::size_t{100}, std::size_t{4096}, std::size_t{65'537}, std::size_t{1} << 20}) {
        CAPTURE(size);
        const std::size_t before = c.events.received.size();
        c.peer.send("head");
        world.run_until([&] { return c.events.received.size() == before + 4; });
        const std::string body = pattern(size);
        Page page(size);
        page.ask(c);
        c.peer.send(body + "tail");
        world.run_until([&] { return c.events.received.size() == before + 8; });
        REQUIRE(page.done());
        CHECK_FALSE(page.error);
        CHECK(page.received == size);
        CHECK(page.same_memory);
        CHECK((page.bytes == body));
        CHECK(page.released == 1);
        CHECK(c.events.received.substr(before) == "headtail");
      }
    }
  });
}

TEST_CASE("what was not received yet is received into the memory, and nothing is copied") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    c.peer.send("first");
    world.run_until([&] { return c.events.received == "first"; });
    const std::string body = pattern(3'000'000);
    Page page(body.size());
    page.ask(c);
    world.settle();
    const CopyScope scope;
    c.peer.send(body);
    world.run_until([&] { return page.done(); });
    CHECK(scope.copied().total() == 0);
    CHECK((page.bytes == body));
  });
}

TEST_CASE("messages that follow each other without a pause go to memory piece by piece") {
  for_each_mode([](World& world) {
    for (const bool small_buffers : {false, true}) {
      Connection& c = world.open({}, small_buffers);
      std::string sent;
      std::string received;
      std::vector<std::size_t> sizes;
      for (std::size_t i = 0; i < 40; ++i) sizes.push_back(i * 797 % 5 == 0 ? 1 : i * 3571 % 70'001 + 1);
      for (const std::size_t size : sizes) sent += pattern(size);
      std::size_t next = 0;
      int wrong = 0;
      const std::function<void()> ask = [&] {
        if (next == sizes.size()) return;
        auto memory = std::make_shared<std::string>(sizes[next++], '.');
        c.stream.receive_into(Block::adopt(std::as_writable_bytes(std::span(*memory)), [memory] {}),
                              memory->size(), [&, memory](std::error_code error, Block&&, std::size_t bytes) {
                                wrong += error || bytes != memory->size() ? 1 : 0;
                                received += *memory;
                                ask();
                              });
      };
      ask();
      c.stream.start_read();
      c.peer.send(sent + "rest");
      world.run_until([&] { return c.events.received == "rest"; });
      CHECK((received == sent));
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("several wait in order, one of no bytes too, and one more than 64 fails without taking any") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    std::deque<Page> pages;
    for (std::size_t i = 0; i < Stream::kReceivesMost; ++i) {
      pages.emplace_back(i == 5 ? 0 : 1000 + i);
      pages.back().ask(c);
    }
    Page refused(10);
    refused.ask(c);
    CHECK_FALSE(refused.done());
    world.settle();
    CHECK(refused.error == errc::limit_exceeded);
    CHECK(refused.received == 0);
    CHECK(refused.released == 1);
    c.stream.start_read();
    const std::string sent = pattern(100'000);
    c.peer.send(sent);
    world.run_until([&] { return pages.back().done(); });
    std::string received;
    int order = refused.order;
    for (const Page& page : pages) {
      CHECK(page.order == ++order);
      CHECK(page.received == page.bytes.size());
      received += page.bytes;
    }
    world.run_until([&] { return received.size() + c.events.received.size() == sent.size(); });
    CHECK((received + c.events.received == sent));
  });
}

TEST_CASE("nothing completes inside a call, and completions may ask again") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    Page first(4);
    Page second(4);
    int inside_calls = 0;
    bool inside = false;
    first.then = [&] {
      inside_calls += inside ? 1 : 0;
      second.ask(c);
      c.write("more");
      c.stream.flush();
    };
    inside = true;
    first.ask(c);
    Page none(0);
    none.ask(c);
    inside = false;
    CHECK_FALSE(first.done());
    c.peer.send("abcdefgh");
    world.run_until([&] { return second.done() && c.peer.received == "more"; });
    CHECK(inside_calls == 0);
    CHECK(none.done());
    CHECK(first.bytes == "abcd");
    CHECK(second.bytes == "efgh");
  });
}

TEST_CASE("a paused stream completes nothing, and goes on where it was") {
  for_each_mode([](World& world) {
    for (const bool small_buffers : {false, true}) {
      Connection& c = world.open({}, small_buffers);
      const std::string body = pattern(500'000);
      Page page(body.size());
      int completed_paused = 0;
      bool paused = true;
      page.then = [&] { completed_paused += paused ? 1 : 0; };
      page.ask(c);
      c.peer.send(body + "tail");
      world.settle();
      CHECK_FALSE(page.done());
      for (int i = 0; !page.done() || c.events.received.size() != 4; ++i) {
        REQUIRE(i < 100'000);
        paused = false;
        c.stream.start_read();
        for (int tick = 0; tick < i % 3; ++tick) {
          c.peer.pump();
          world.turn(std::chrono::milliseconds(1));
        }
        c.stream.pause_read();
        paused = true;
        c.peer.pump();
        world.turn(Duration::zero());
      }
      CHECK(completed_paused == 0);
      CHECK((page.bytes == body));
      CHECK(c.events.received == "tail");
    }
  });
}

TEST_CASE("what is held goes to the memory first, copied and counted") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    Page page(1000);
    c.events.during = [&](Event event) {
      if (event != Event::read || c.events.count(Event::read) != 1) return;
      c.stream.pause_read();
    };
    c.stream.start_read();
    const std::string sent = pattern(300'000);
    c.peer.send(sent);
    world.run_until([&] { return c.events.count(Event::read) == 1; });
    world.settle();
    const std::size_t read = c.events.received.size();
    const CopyScope scope;
    page.ask(c);
    world.settle();
    CHECK_FALSE(page.done());
    c.stream.start_read();
    world.run_until([&] { return c.events.received.size() + page.received == sent.size(); });
    CHECK((page.bytes == sent.substr(read, 1000)));
    CHECK((c.events.received == sent.substr(0, read) + sent.substr(read + 1000)));
    CHECK(scope.copied()[CopyPlace::receive_into] <= 1000);
  });
}

TEST_CASE("an end before the last byte completes what waits with errc::truncated, in order, before on_end") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    Page page(100);
    Page behind(5);
    bool ended_before = false;
    behind.then = [&] { ended_before = c.events.count(Event::end) != 0; };
    page.ask(c);
    behind.ask(c);
    c.peer.send("part");
    c.peer.shutdown_write();
    world.run_until([&] { return c.events.count(Event::end) == 1; });
    CHECK(page.error == errc::truncated);
    CHECK(page.received == 4);
    CHECK(page.bytes.starts_with("part."));
    CHECK(behind.error == errc::truncated);
    CHECK(behind.received == 0);
    CHECK(behind.order == page.order + 1);
    CHECK_FALSE(ended_before);
    Page late(1);
    late.ask(c);
    world.run_until([&] { return late.done(); });
    CHECK(late.error == errc::truncated);
    c.write("still writable");
    world.run_until([&] { return c.peer.received == "still writable"; });
  });
}

TEST_CASE("a reset in the middle completes what waits with that error, before on_closed") {
  for_each_mode([](World& world) {
    Connection& c = world.open_resettable();
    c.stream.start_read();
    Page page(1'000'000);
    Page behind(1);
    page.ask(c);
    behind.ask(c);
    bool closed_before = false;
    behind.then = [&] { closed_before = c.events.closed(); };
    c.peer.send(pattern(50'000));
    world.run_until([&] { return c.peer.all_sent(); });
    world.settle();
    c.peer.reset();
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.lost());
    CHECK(page.error == errc::connection_lost);
    CHECK(page.received <= 50'000);
    CHECK((page.bytes.substr(0, page.received) == pattern(50'000).substr(0, page.received)));
    CHECK(behind.error == errc::connection_lost);
    CHECK_FALSE(closed_before);
    CHECK(page.released == 1);
  });
}

TEST_CASE("close, abort, destruction and the loop's stop give the memory back with errc::cancelled") {
  for_each_mode_name([](const Mode& mode) {
    for (int how = 0; how < 4; ++how) {
      CAPTURE(how);
      World world(mode);
      Connection& c = world.open();
      c.stream.start_read();
      Page page(100'000);
      Page behind(1);
      page.ask(c);
      behind.ask(c);
      c.peer.send(pattern(10'000));
      world.settle();
      CHECK_FALSE(page.done());
      switch (how) {
        case 0: c.stream.close(); break;
        case 1: c.stream.abort(); break;
        case 2: c.stream = Stream(); break;
        default: world.destroy_loop(); break;
      }
      if (how < 3) {
        c.peer.send(pattern(1000));
        world.run_until([&] { return behind.done(); });
      }
      REQUIRE(page.completions == 1);
      CHECK(page.error == errc::cancelled);
      CHECK(page.received == 10'000);
      CHECK((page.bytes == pattern(10'000) + std::string(90'000, '.')));
      CHECK(page.released == 1);
      CHECK(behind.error == errc::cancelled);
      if (how < 2) {
        c.peer.shutdown_write();
        world.run_until([&] { return c.events.closed(); });
      }
    }
  });
}

TEST_CASE("a block of the pool takes a part of its size, and is frozen without a copy") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.stream.start_read();
    Slice body;
    const CopyScope scope;
    c.stream.receive_into(world.loop().pool().allocate(60'000), 50'000,
                          [&](std::error_code, Block&& memory, std::size_t bytes) {
                            body = std::move(memory).freeze_all(bytes);
                          });
    world.settle();
    const std::string sent = pattern(50'000);
    c.peer.send(sent);
    world.run_until([&] { return body.size() != 0; });
    CHECK((body.view() == sent));
    CHECK(scope.copied().total() == 0);
  });
}

}  // namespace linkspan::conformance
