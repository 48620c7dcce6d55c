// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/timeouts.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "tests/channel/handlers.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// A channel whose time is the test's.
struct Timed {
  FakeWorld world;
  EmbeddedChannel channel;

  Timed() : channel({100, 50}, true, {}, options()) {}
  EventLoopOptions options() {
    EventLoopOptions made;
    made.environment = &world.environment;
    return made;
  }
  // In small steps, as a clock does.
  void pass(Duration time) {
    for (Duration done{}; done < time; done += milliseconds(50)) {
      world.clock.advance(milliseconds(50));
      channel.tick();
    }
  }
};

class Hears final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
  void on_user_event(const std::any& event) override {
    if (std::any_cast<IdleEvent>(&event) != nullptr) ++idle;
  }
  void on_error(std::error_code error, std::string_view) override { errors.push_back(error); }

  int idle = 0;
  std::vector<std::error_code> errors;
};

Chain bytes(std::size_t size) {
  return Chain(Slice::adopt(std::string(size, 'x')));
}

}  // namespace

TEST_CASE("a peer that sends nothing for a time is an error, and one that does is none") {
  LogCapture log;
  Timed timed;
  REQUIRE(timed.channel.pipeline().append(std::make_unique<ReadTimeout>(seconds(1)),
                                          std::make_unique<Collector<Chain>>()));
  timed.pass(seconds(3));  // not open yet
  timed.channel.open();
  for (int i = 0; i < 5; ++i) {
    timed.pass(milliseconds(800));
    timed.channel.receive("x");
  }
  CHECK_FALSE(timed.channel.close_error());
  timed.pass(milliseconds(900));
  CHECK_FALSE(timed.channel.close_error());
  timed.pass(milliseconds(150));
  REQUIRE(timed.channel.close_error());
  CHECK(*timed.channel.close_error() == errc::timed_out);
  CHECK(log.contains("nothing was received for 1000 ms"));
}

TEST_CASE("time in which reading is paused does not count as the peer's") {
  LogCapture log;
  Timed timed;
  REQUIRE(timed.channel.pipeline().append(std::make_unique<ReadTimeout>(seconds(1)),
                                          std::make_unique<Collector<Chain>>()));
  timed.channel.open();
  timed.channel.pause_read();
  timed.pass(seconds(5));
  timed.channel.resume_read();
  timed.pass(milliseconds(900));
  CHECK_FALSE(timed.channel.close_error());
  timed.pass(milliseconds(300));
  CHECK(timed.channel.close_error());
}

TEST_CASE("a write that moves slowly is neither stuck nor idle, one that does not move is stuck") {
  Timed timed;
  REQUIRE(timed.channel.pipeline().append(std::make_unique<WriteTimeout>(seconds(1)),
                                          std::make_unique<IdleTimeout>(seconds(2)),
                                          std::make_unique<Hears>()));
  const Hears& hears = *timed.channel.pipeline().find<Hears>();
  timed.channel.open();
  timed.channel.write(bytes(1000));
  for (int i = 0; i < 20; ++i) {
    timed.pass(milliseconds(800));
    static_cast<void>(timed.channel.take_sent());
    timed.channel.write(bytes(1000));  // always something left
  }
  CHECK(hears.errors.empty());
  CHECK_FALSE(timed.channel.close_error());
  timed.pass(milliseconds(1300));
  REQUIRE(hears.errors.size() == 1);
  CHECK(hears.errors[0] == errc::timed_out);
}

TEST_CASE("a channel with nothing queued is not stuck, but idle in the end") {
  Timed timed;
  REQUIRE(timed.channel.pipeline().append(std::make_unique<WriteTimeout>(seconds(1)),
                                          std::make_unique<IdleTimeout>(seconds(4)),
                                          std::make_unique<Hears>()));
  timed.channel.open();
  timed.pass(milliseconds(3900));
  CHECK_FALSE(timed.channel.close_error());
  timed.pass(milliseconds(1200));
  CHECK(timed.channel.close_error() == std::error_code());
  CHECK(timed.channel.pipeline().size() == 0);
}

TEST_CASE("an idle channel can be told instead of closed, again and again") {
  Timed timed;
  REQUIRE(timed.channel.pipeline().append(std::make_unique<IdleTimeout>(seconds(1), OnIdle::tell),
                                          std::make_unique<Hears>()));
  const Hears& hears = *timed.channel.pipeline().find<Hears>();
  timed.channel.open();
  timed.pass(milliseconds(2700));
  CHECK(hears.idle == 2);
  timed.channel.receive("x");
  timed.pass(milliseconds(900));
  CHECK(hears.idle == 2);
}

TEST_CASE("a timeout that joins an open channel watches it, one that is removed does not") {
  LogCapture log;
  Timed timed;
  REQUIRE(timed.channel.pipeline().append<Collector<Chain>>());
  timed.channel.open();
  REQUIRE(timed.channel.pipeline().prepend(std::make_unique<ReadTimeout>(seconds(1))));
  timed.pass(milliseconds(500));
  SUBCASE("removed") {
    REQUIRE(timed.channel.pipeline().remove(*timed.channel.pipeline().find<ReadTimeout>()));
    timed.pass(seconds(5));
    CHECK_FALSE(timed.channel.close_error());
  }
  SUBCASE("there") {
    timed.pass(seconds(1));
    CHECK(timed.channel.close_error());
  }
}
