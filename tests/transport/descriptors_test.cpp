// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about descriptors that travel over unix sockets.
#include <fcntl.h>
#include <unistd.h>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

void for_each_unix_mode(const std::function<void(const Mode&)>& body) {
  for_each_mode_name([&](const Mode& mode) {
    if (mode.family == Family::unix_path) body(mode);
  });
}

/// `count` descriptors, the first of which is a pipe with `text` to be read.
std::vector<Socket> descriptors_with(std::string_view text, std::size_t count = 1) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) FAIL("no pipe");
  if (::write(ends[1], text.data(), text.size()) < 0) FAIL("the pipe takes nothing");
  ::close(ends[1]);
  std::vector<Socket> descriptors;
  descriptors.emplace_back(ends[0]);
  while (descriptors.size() < count) descriptors.emplace_back(::fcntl(ends[0], F_DUPFD_CLOEXEC, 0));
  return descriptors;
}

std::string text_of(const Socket& descriptor) {
  std::array<char, 64> text;
  const ssize_t size = ::read(descriptor.descriptor(), text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

StreamOptions receiving(std::size_t most) {
  StreamOptions options;
  options.receive_descriptors = most;
  return options;
}

}  // namespace

TEST_CASE("descriptors arrive with the first byte of their chain, in order, and are closed here") {
  for_each_unix_mode([](const Mode& mode) {
    World world(mode);
    Connection& c = world.open();
    c.peer.reads = false;
    const std::size_t before = world.open_descriptors();
    c.write("plain");
    c.stream.write(in_slices("first message", 3), descriptors_with("one"), c.writes.next());
    c.stream.write(chain_of("second"), descriptors_with("many", 253), c.writes.next());
    c.write("end");
    CHECK(c.stream.queued_bytes() == 5 + 13 + 6 + 3);
    world.run_until([&] { return c.writes.entries.size() == 4; });
    CHECK(c.writes.complete_and_in_order());
    CHECK(world.open_descriptors() == before);
    // Each with the message that brings the first byte of theirs.
    std::string received;
    std::vector<std::vector<Socket>> descriptors;
    while (received.size() < 27) {
      const std::size_t begin = received.size();
      Message message = raw_receive(c.peer.socket());
      REQUIRE_FALSE(message.text.empty());
      received += message.text;
      for (const std::size_t first : {5, 18}) {
        if (first < begin || first >= received.size()) continue;
        REQUIRE_FALSE(message.descriptors.empty());
        descriptors.push_back(std::exchange(message.descriptors, {}));
      }
      CHECK(message.descriptors.empty());
    }
    CHECK(received == "plainfirst messagesecondend");
    REQUIRE(descriptors.size() == 2);
    REQUIRE(descriptors[0].size() == 1);
    CHECK(text_of(descriptors[0][0]) == "one");
    REQUIRE(descriptors[1].size() == 253);
    CHECK(text_of(descriptors[1][0]) == "many");
  });
}

TEST_CASE("descriptors cannot travel without bytes, in too large a number, or over TCP") {
  for_each_mode([](World& world) {
    Connection& c = world.open();
    const std::size_t before = world.open_descriptors();
    if (world.is_unix()) {
      c.stream.write(Chain(), descriptors_with("x"), c.writes.next());
      c.stream.write(chain_of("never"), descriptors_with("x", 254), c.writes.next());
    } else {
      c.stream.write(chain_of("never"), descriptors_with("x"), c.writes.next());
      c.stream.write(chain_of("never"), descriptors_with("x"));
    }
    CHECK(c.writes.entries.empty());
    c.stream.write(chain_of("goes"), std::vector<Socket>(), c.writes.next());
    c.write(" on");
    world.run_until([&] { return c.peer.received == "goes on" && c.writes.complete_and_in_order(); });
    CHECK(world.open_descriptors() == before);
    if (world.is_unix()) {
      CHECK(c.writes.entries[0].error == errc::invalid_argument);
      CHECK(c.writes.entries[1].error == errc::limit_exceeded);
    } else {
      CHECK(c.writes.entries[0].error == errc::unavailable);
    }
    c.stream.shutdown_write();
    c.stream.write(chain_of("late"), descriptors_with("x"), c.writes.next());
    CHECK(world.open_descriptors() == before);
    world.run_until([&] { return c.writes.complete_and_in_order(); });
    CHECK(c.writes.entries.back().error == errc::shut_down);
  });
}

TEST_CASE("descriptors wait with their chain while the peer does not read; an abort closes them") {
  for_each_unix_mode([](const Mode& mode) {
    for (const bool aborts : {false, true}) {
      World world(mode);
      Connection& c = world.open({}, true);
      const std::string filled = world.fill(c);
      const std::size_t before = world.open_descriptors();
      c.stream.write(chain_of("message"), descriptors_with("waits"), c.writes.next());
      world.settle();
      world.check_quiet();
      CHECK(world.open_descriptors() == before + 1);
      if (aborts) {
        c.stream.abort();
        world.run_until([&] { return c.events.closed(); });
        CHECK(world.open_descriptors() == before - 1);
        CHECK(c.writes.entries.back().error == errc::cancelled);
        continue;
      }
      std::string received;
      std::vector<Socket> descriptors;
      world.run_until([&] {
        Message message = raw_receive(c.peer.socket());
        received += message.text;
        if (!message.descriptors.empty()) descriptors = std::move(message.descriptors);
        return received.size() == filled.size() + 7;
      });
      CHECK((received == filled + "message"));
      REQUIRE(descriptors.size() == 1);
      CHECK(text_of(descriptors[0]) == "waits");
    }
  });
}

TEST_CASE("received descriptors come directly before the bytes that they were sent with") {
  for_each_unix_mode([](const Mode& mode) {
    World world(mode);
    Connection& c = world.open(receiving(4));
    c.stream.start_read();
    std::vector<std::string> texts;
    c.events.during = [&](Event event) {
      if (event == Event::descriptors) texts.push_back(text_of(c.events.descriptors.back()[0]));
      if (event == Event::read) texts.push_back(std::exchange(c.events.received, ""));
    };
    const Socket& peer = c.peer.socket();
    for (int round = 0; round < 3; ++round) {
      texts.clear();
      c.events.descriptors.clear();
      c.peer.send("a");
      raw_send(peer, {"b", descriptors_with("with b")});
      c.peer.send("c");
      raw_send(peer, {"d", descriptors_with("with d", 4)});
      raw_send(peer, {"e", descriptors_with("with e", 2)});
      c.peer.send("f");
      std::string bytes;
      world.run_until([&] {
        bytes.clear();
        for (const std::string& text : texts) bytes += text.starts_with("with") ? "" : text;
        return bytes == "abcdef";
      });
      REQUIRE(c.events.descriptors.size() == 3);
      CHECK(c.events.descriptors[0].size() == 1);
      CHECK(c.events.descriptors[1].size() == 4);
      CHECK(c.events.descriptors[2].size() == 2);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        if (!texts[i].starts_with("with")) continue;
        REQUIRE(i + 1 < texts.size());
        CHECK(texts[i + 1].find(texts[i].back()) != std::string::npos);
      }
      const int flags = ::fcntl(c.events.descriptors[1][3].descriptor(), F_GETFD);
      CHECK((flags & FD_CLOEXEC) != 0);
    }
  });
}

TEST_CASE("a pause holds descriptors in their place, and nothing leaks however the stream ends") {
  for_each_unix_mode([](const Mode& mode) {
    for (int how = 0; how < 5; ++how) {
      CAPTURE(how);
      World world(mode);
      Connection& c = world.open(receiving(4));
      const std::size_t before = world.open_descriptors();
      c.stream.start_read();
      world.settle();
      const Socket& peer = c.peer.socket();
      raw_send(peer, {"a", descriptors_with("with a", 3)});
      raw_send(peer, {"b", descriptors_with("with b", 2)});
      c.stream.pause_read();
      world.settle();
      CHECK(c.events.descriptors.empty());
      CHECK(c.events.received.empty());
      switch (how) {
        case 0:
          c.stream.start_read();
          world.run_until([&] { return c.events.received == "ab"; });
          REQUIRE(c.events.descriptors.size() == 2);
          CHECK(c.events.events ==
                std::vector{Event::open, Event::descriptors, Event::read, Event::descriptors, Event::read});
          CHECK(text_of(c.events.descriptors[1][0]) == "with b");
          CHECK(world.open_descriptors() == before + 5);
          c.events.descriptors.clear();
          CHECK(world.open_descriptors() == before);
          break;
        case 1: c.stream.abort(); break;
        case 2: c.stream = Stream(); break;
        case 3:
          c.stream.close();
          c.peer.shutdown_write();
          break;
        default: world.destroy_loop(); break;
      }
      if (how == 1 || how == 3) world.run_until([&] { return c.events.closed(); });
      if (how == 2) world.settle();
      if (how == 4) {
        CHECK(world.open_descriptors() < before);
      } else if (how != 0) {
        CHECK(world.open_descriptors() == before - 1);
      }
    }
  });
}

TEST_CASE("a handler that pauses when descriptors come gets their bytes when it resumes") {
  for_each_unix_mode([](const Mode& mode) {
    World world(mode);
    Connection& c = world.open(receiving(1));
    c.events.during = [&](Event event) {
      if (event == Event::descriptors) c.stream.pause_read();
    };
    c.stream.start_read();
    raw_send(c.peer.socket(), {"a", descriptors_with("with a")});
    world.run_until([&] { return c.events.descriptors.size() == 1; });
    world.settle();
    CHECK(c.events.received.empty());
    c.stream.start_read();
    world.run_until([&] { return c.events.received == "a"; });
    CHECK(c.events.descriptors.size() == 1);
  });
}

TEST_CASE("more descriptors than the stream takes are closed and break it; by default none are received") {
  for_each_unix_mode([](const Mode& mode) {
    World world(mode);
    Connection& c = world.open(receiving(3));
    c.stream.start_read();
    raw_send(c.peer.socket(), {"fits", descriptors_with("x", 3)});
    world.run_until([&] { return c.events.received == "fits"; });
    c.events.descriptors.clear();
    const std::size_t before = world.open_descriptors();
    raw_send(c.peer.socket(), {"too many", descriptors_with("x", 4)});
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error == errc::limit_exceeded);
    CHECK(c.events.descriptors.empty());
    CHECK(c.events.received == "fits");
    CHECK(world.open_descriptors() == before - 1);

    Connection& none = world.open();
    none.stream.start_read();
    const std::size_t at_first = world.open_descriptors();
    raw_send(none.peer.socket(), {"text", descriptors_with("x", 4)});
    world.run_until([&] { return none.events.received == "text"; });
    CHECK(none.events.descriptors.empty());
    CHECK(world.open_descriptors() == at_first);
  });
}

TEST_CASE("too many descriptors break a stream whose peer does not read, too") {
  for_each_unix_mode([](const Mode& mode) {
    World world(mode);
    Connection& c = world.open(receiving(1));
    c.stream.start_read();
    world.fill(c);
    raw_send(c.peer.socket(), {"too many", descriptors_with("x", 2)});
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error == errc::limit_exceeded);
    CHECK(c.events.write_closed_error == errc::limit_exceeded);
    CHECK(c.writes.complete_and_in_order());
    CHECK(c.writes.entries.back().error == errc::limit_exceeded);
  });
}

TEST_CASE("descriptors that come with bytes for given memory come before its completion") {
  for_each_unix_mode([](const Mode& mode) {
    World world(mode);
    Connection& c = world.open(receiving(2));
    c.stream.start_read();
    std::string memory(6, '.');
    std::string order;
    c.events.during = [&](Event event) {
      if (event == Event::descriptors) order += text_of(c.events.descriptors.back()[0]);
    };
    c.stream.receive_into(Block::adopt(std::as_writable_bytes(std::span(memory)), [] {}), memory.size(),
                          [&](std::error_code, Block&&, std::size_t) { order += "|" + memory; });
    world.settle();
    c.peer.send("ab");
    world.settle();
    raw_send(c.peer.socket(), {"cd", descriptors_with("one")});
    raw_send(c.peer.socket(), {"efgh", descriptors_with("two")});
    world.run_until([&] { return c.events.received == "gh"; });
    CHECK(order == "onetwo|abcdef");
  });
}

}  // namespace linkspan::conformance
