// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about writes: order, completions, progress and water marks.
#include <sys/socket.h>

#include <array>
#include <thread>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {

TEST_CASE("writes leave in order and complete in order, each once, with all their bytes") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    std::string sent;
    for (std::size_t i = 0; i < 100; ++i) {
      const std::string piece = pattern(i * 97);
      sent += piece;
      c.write(piece);
    }
    world.run_until([&] { return c.peer.received.size() == sent.size() && c.writes.entries.size() == 100; });
    CHECK((c.peer.received == sent));
    CHECK(c.writes.complete_and_in_order());
    for (std::size_t i = 0; i < 100; ++i) {
      CHECK_FALSE(c.writes.entries[i].error);
      CHECK(c.writes.entries[i].accepted == i * 97);
    }
    CHECK(world.loop().counters().bytes_sent.get() == sent.size());
  });
}

TEST_CASE("write takes the chain and leaves nothing with the caller") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    Chain data = chain_of("moved");
    c.stream.write(std::move(data));
    CHECK(data.empty());
    CHECK(c.stream.queued_bytes() == 5);
    world.run_until([&] { return c.peer.received == "moved"; });
    CHECK(c.stream.queued_bytes() == 0);
  });
}

TEST_CASE("no callback runs inside a call, not even inside flush") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    int completions_inside = 0;
    int released_inside = 0;
    bool inside = false;
    const auto call = [&](const auto& function) {
      inside = c.events.inside_call = true;
      function();
      inside = c.events.inside_call = false;
    };
    c.writes.during = [&](const WriteLog::Entry&) { completions_inside += inside ? 1 : 0; };
    const std::string text = "borrowed";
    const auto borrowed = [&] {
      return Chain(Slice::borrow(std::as_bytes(std::span(text)), [&] { released_inside += inside ? 1 : 0; }));
    };
    c.peer.send("readable");
    world.settle();
    call([&] { c.stream.start_read(); });
    call([&] { c.write(Chain()); });
    call([&] { c.write(borrowed()); });
    call([&] { c.stream.flush(); });
    CHECK(c.writes.entries.empty());
    CHECK(c.events.progress == 0);
    world.run_until([&] { return c.writes.entries.size() == 2 && c.events.received == "readable"; });
    call([&] { c.stream.shutdown_write(); });
    call([&] { c.write(borrowed()); });
    world.run_until([&] { return c.writes.entries.size() == 3; });
    call([&] { c.stream.close(); });
    call([&] { c.stream.abort(); });
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.calls_inside_calls == 0);
    CHECK(completions_inside == 0);
    CHECK(released_inside == 0);
  });
}

TEST_CASE("flush hands the bytes to the kernel at once and reports them later") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    world.settle();
    c.write("now");
    c.stream.flush();
    CHECK(c.writes.entries.empty());
    if (!world.mode().is_sim()) CHECK(arrives(c.peer));
    CHECK(c.events.progress == 0);
    world.run_until([&] { return c.writes.entries.size() == 1; });
    CHECK(c.events.progress == 3);
    CHECK(c.writes.entries[0].accepted == 3);
    world.run_until([&] { return c.peer.received == "now"; });
  });
}

TEST_CASE("an empty write completes once, later, in its place") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.write(Chain());
    CHECK(c.writes.entries.empty());
    world.run_until([&] { return c.writes.entries.size() == 1; });
    c.write("a");
    c.write(Chain());
    c.write("b");
    world.run_until([&] { return c.peer.received == "ab" && c.writes.entries.size() == 4; });
    CHECK(c.writes.complete_and_in_order());
    CHECK(c.writes.entries[2].accepted == 0);
    c.stream.write(Chain());
    world.check_quiet();
    CHECK(c.writes.entries.size() == 4);
  });
}

TEST_CASE("empty slices first, in the middle and alone are skipped") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    Chain chain;
    chain.append(Slice());
    chain.append(Slice::copy("left"));
    chain.append(Slice::copy(""));
    chain.append(Slice::copy("right"));
    chain.append(Slice());
    c.write(std::move(chain));
    Chain empties;
    empties.append(Slice());
    empties.append(Slice());
    c.write(std::move(empties));
    c.write("!");
    world.run_until([&] { return c.writes.entries.size() == 3; });
    world.run_until([&] { return c.peer.received == "leftright!"; });
    CHECK_FALSE(c.peer.ended);
  });
}

TEST_CASE("a gathered write of 5000 slices arrives exactly") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const std::string sent = pattern(5000 * 137);
    Chain chain = in_slices(sent, 137);
    CHECK(chain.slice_count() == 5000);
    c.write(std::move(chain));
    world.run_until([&] { return c.peer.received.size() == sent.size() && c.writes.entries.size() == 1; });
    CHECK((c.peer.received == sent));
    CHECK(c.writes.entries[0].accepted == sent.size());
  });
}

TEST_CASE("a write of more than 2 GiB completes with all its bytes") {
  for_each_kernel_transport([](World& world) {
    Connection& c = world.open();
    const Slice shared = Slice::adopt(pattern(4 << 20));
    constexpr std::size_t kPieces = 513;  // 2 GiB and 4 MiB
    Chain chain;
    for (std::size_t i = 0; i < kPieces; ++i) chain.append(shared);
    const std::size_t total = chain.size();
    REQUIRE(total > std::size_t{1} << 31);
    std::size_t received = 0;
    bool exact = true;
    std::thread reader([&, socket = c.peer.take_socket()] {
      std::vector<char> buffer(1 << 20);
      ssize_t got = 0;
      while ((got = ::recv(socket.descriptor(), buffer.data(), buffer.size(), 0)) > 0) {
        const std::size_t at = received % shared.size();
        const std::size_t part = std::min(static_cast<std::size_t>(got), shared.size() - at);
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
        exact = exact && bytes.substr(0, part) == shared.view().substr(at, part) &&
                bytes.substr(part) == shared.view().substr(0, bytes.size() - part);
        received += bytes.size();
      }
    });
    c.write(std::move(chain));
    c.stream.close(std::chrono::seconds(50));
    // An exception must not pass a thread that runs.
    for (int ticks = 0; !c.events.closed() && ticks < 1'000'000; ++ticks) {
      world.turn(std::chrono::milliseconds(1));
    }
    if (!c.events.closed()) world.destroy_loop();
    reader.join();
    CHECK(received == total);
    CHECK(exact);
    CHECK(c.events.progress == total);
    REQUIRE(c.writes.entries.size() == 1);
    CHECK_FALSE(c.writes.entries[0].error);
    CHECK(c.writes.entries[0].accepted == total);
  });
}

TEST_CASE("progress adds up to exactly what was written, and never runs ahead of it") {
  for_each_mode([](World& world) {
    Connection& c = world.open({}, true);
    const std::string piece = pattern(10'007);
    std::size_t written = 0;
    std::size_t too_much = 0;
    c.events.during = [&](Event event) {
      if (event != Event::progress) return;
      too_much += c.events.progress + c.stream.queued_bytes() > written ? 1 : 0;
      if (written < 50 * piece.size()) {
        written += piece.size();
        c.write(piece);
      }
    };
    written = piece.size();
    c.write(piece);
    world.run_until([&] { return c.events.progress >= 50 * piece.size(); });
    world.run_until([&] { return c.writes.complete_and_in_order(); });
    world.settle();
    CHECK(c.events.progress == written);
    CHECK(too_much == 0);
  });
}

TEST_CASE("a write completes only after its last byte was accepted") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const std::string filled = world.fill(c);
    const std::size_t before = c.writes.entries.size();
    CHECK(before < static_cast<std::size_t>(c.writes.issued()));
    c.write("behind");
    world.check_quiet();
    CHECK(c.writes.entries.size() == before);
    c.peer.reads = true;
    world.run_until([&] { return c.writes.complete_and_in_order(); });
    world.run_until([&] { return c.peer.received.size() == filled.size() + 6; });
    CHECK((c.peer.received == filled + "behind"));
    CHECK(c.events.progress == filled.size() + 6);
  });
}

TEST_CASE("on_writable comes once a crossing: above the high mark, then at or below the low one") {
  for_each_mode([](World& world) {
    StreamOptions options;
    options.high_watermark_bytes = 100'000;
    options.low_watermark_bytes = 40'000;
    Connection& c = world.open(options, true);
    CHECK(c.stream.writable());
    c.write(pattern(100'000));
    CHECK(c.stream.writable());
    world.run_until([&] { return c.stream.queued_bytes() == 0; });
    world.settle();
    CHECK(c.events.count(Event::writable) == 0);

    std::size_t queued_at_event = 0;
    bool writable_at_event = false;
    c.events.during = [&](Event event) {
      if (event != Event::writable) return;
      queued_at_event = c.stream.queued_bytes();
      writable_at_event = c.stream.writable();
    };
    for (std::size_t crossing = 1; crossing <= 3; ++crossing) {
      world.fill(c, 1'000'000);
      world.settle();
      CHECK_FALSE(c.stream.writable());
      const std::size_t before = c.events.count(Event::writable);
      c.write("x");
      c.peer.reads = true;
      world.run_until([&] { return c.stream.queued_bytes() == 0; });
      world.settle();
      CHECK(c.events.count(Event::writable) == before + 1);
      CHECK(queued_at_event <= 40'000);
      CHECK(writable_at_event);
    }
  });
}

TEST_CASE("a fast writer that stops at the high mark never has more queued than that and one write") {
  for_each_mode([](World& world) {
    Connection& c = world.open({}, true);
    const std::string piece = pattern(20'000);
    std::size_t written = 0;
    std::size_t most = 0;
    const std::size_t enough = 2'000'000;
    const auto write_while_writable = [&] {
      while (c.stream.writable() && written < enough) {
        c.write(piece);
        written += piece.size();
        most = std::max(most, c.stream.queued_bytes());
      }
    };
    std::size_t not_writable = 0;
    c.events.during = [&](Event event) {
      if (event != Event::writable) return;
      if (!c.stream.writable()) ++not_writable;
      write_while_writable();
    };
    write_while_writable();
    c.peer.reads = false;
    world.run_until([&] {
      c.peer.receive_at_most(7'000);
      return c.peer.received.size() == enough;
    });
    CHECK(most <= StreamOptions().high_watermark_bytes + piece.size());
    CHECK(not_writable == 0);
    CHECK(c.events.progress == enough);
    CHECK(c.writes.complete_and_in_order());
  });
}

TEST_CASE("memory may be reused once its completion has run: the peer gets what was written") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    c.peer.reads = false;
    std::string memory = pattern(150'000);
    const std::string first = memory;
    int released = 0;
    const auto reuse = [&] {
      ++released;
      memory.assign(memory.size(), '*');
    };
    c.write(Chain(Slice::borrow(std::as_bytes(std::span(memory)), reuse)));
    world.run_until([&] {
      c.peer.receive_at_most(1000);
      return released == 1;
    });
    c.peer.reads = true;
    world.run_until([&] { return c.peer.received.size() == first.size(); });
    CHECK((c.peer.received == first));
    CHECK(released == 1);
  });
}

TEST_CASE("a write waits for room however often it is woken without any") {
  for_each_kernel_mode([](World& world) {
    Connection& c = world.open();
    c.peer.reads = false;
    const std::string sent = pattern(std::size_t{4} << 20);
    c.write(in_slices(sent, 100'000));
    // Each wakes the other side of a unix socket. A ring gives up after 128 times, with a short count, and in
    // the next send without one.
    for (int i = 0; i < 400; ++i) {
      static_cast<void>(::shutdown(c.peer.descriptor(), SHUT_WR));
      world.turn(Duration::zero());
    }
    world.settle();
    REQUIRE_FALSE(c.events.closed());
    CHECK(c.writes.entries.empty());
    c.peer.reads = true;
    world.run_until([&] { return c.peer.received.size() == sent.size() || c.events.closed(); });
    CHECK((c.peer.received == sent));
    world.run_until([&] { return c.writes.entries.size() == 1; });
    CHECK_FALSE(c.writes.entries[0].error);
  });
}

TEST_CASE("small writes of one tick leave together") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    world.check_quiet();
    const std::uint64_t before = world.loop().counters().system_calls.get();
    for (int i = 0; i < 50; ++i) c.write("x");
    world.run_until([&] { return c.writes.entries.size() == 50; });
    CHECK(world.loop().counters().system_calls.get() - before <= 10);
    world.run_until([&] { return c.peer.received.size() == 50; });
  });
}

}  // namespace linkspan::conformance
