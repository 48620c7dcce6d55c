// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/requests.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "tests/channel/numbered_lines.hpp"
#include "tests/support/fake_clock.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::chrono::seconds;

namespace {

struct Asking {
  FakeWorld world;
  std::vector<std::string> ends;
  EmbeddedChannel channel;
  Questions* questions;

  explicit Asking(const RequestOptions& options = {}, bool open = true)
      : channel({}, true, {}, loop_options()) {
    auto made = std::make_unique<Questions>(options);
    questions = made.get();
    REQUIRE(channel.pipeline().append(std::make_unique<NumberedLines>(), std::move(made)));
    if (open) channel.open();
  }
  EventLoopOptions loop_options() {
    EventLoopOptions made;
    made.environment = &world.environment;
    return made;
  }
  Questions::Done end(const std::string& name) {
    return [this, name](std::error_code error, Numbered* response) {
      ends.push_back(name + " " + (response != nullptr ? response->text : error.message()));
    };
  }
  std::uint64_t ask(const std::string& text) { return questions->call({0, text}, end(text)); }
};

// From docs/GUIDE.md.
void ask_both(Channel& channel, std::vector<std::string>& ends) {
  Questions& questions = *channel.pipeline().find<Questions>();
  for (const char* text : {"one", "two"}) {  // in flight together
    questions.call({0, text}, seconds(2), [&ends](std::error_code error, Numbered* answer) {
      ends.push_back(error ? error.message() : answer->text);
    });
  }
  channel.drain(seconds(5));  // closes when both are over
}

std::string message(errc code) {
  return make_error_code(code).message();
}

}  // namespace

TEST_CASE("answers find their requests by number, in whatever order they come") {
  Asking asking;
  CHECK(asking.ask("a") == 1);
  CHECK(asking.ask("b") == 2);
  CHECK(asking.ask("c") == 3);
  CHECK(asking.channel.take_sent().to_string() == "1 a\n2 b\n3 c\n");
  CHECK(asking.questions->in_flight() == 3);
  asking.channel.receive("3 C\n1 A\n9 nobody's\n1 again\n");
  CHECK(asking.ends == std::vector<std::string>{"c C", "a A"});
  asking.channel.receive("2 B\n");
  CHECK(asking.ends.back() == "b B");
  CHECK(asking.questions->in_flight() == 0);
  const RequestCounters& counters = asking.questions->counters();
  CHECK(counters.requests.get() == 3);
  CHECK(counters.answered.get() == 3);
  CHECK(counters.unmatched.get() == 2);
}

TEST_CASE("each request has its deadline, and an answer that comes later is dropped") {
  Asking asking;
  asking.questions->call({0, "slow"}, seconds(10), asking.end("slow"));
  asking.questions->call({0, "quick"}, seconds(1), asking.end("quick"));
  asking.world.clock.advance(seconds(2));
  asking.channel.tick();
  CHECK(asking.ends == std::vector<std::string>{"quick " + message(errc::timed_out)});
  asking.channel.receive("2 late\n1 in time\n");
  CHECK(asking.ends.back() == "slow in time");
  CHECK(asking.ends.size() == 2);
  CHECK(asking.questions->counters().unmatched.get() == 1);
}

TEST_CASE("a request is cancelled once, outside of the call") {
  Asking asking;
  const std::uint64_t id = asking.ask("a");
  CHECK(asking.questions->cancel(id));
  CHECK_FALSE(asking.questions->cancel(id));
  CHECK(asking.ends.empty());
  asking.channel.receive("1 A\n");
  CHECK(asking.ends == std::vector<std::string>{"a " + message(errc::cancelled)});
}

TEST_CASE("there are no more requests in flight than allowed") {
  RequestOptions options;
  options.max_in_flight = 1;
  Asking asking(options);
  asking.ask("a");
  asking.ask("b");
  CHECK(asking.ends.empty());
  asking.channel.tick();
  CHECK(asking.ends == std::vector<std::string>{"b " + message(errc::limit_exceeded)});
  CHECK(asking.channel.take_sent().to_string() == "1 a\n");
  asking.channel.receive("1 A\n");
  asking.ask("c");
  CHECK(asking.channel.take_sent().to_string() == "3 c\n");
  CHECK(asking.questions->counters().refused.get() == 1);
}

TEST_CASE("when the channel goes, all that are in flight fail, and further ones are refused") {
  Asking asking;
  asking.ask("a");
  asking.ask("b");
  SUBCASE("broken") {
    asking.channel.break_connection(connection_lost(104));
    REQUIRE(asking.ends.size() == 2);
    CHECK(asking.ends[0].find("connection lost") != std::string::npos);
  }
  SUBCASE("ended by the peer") {
    asking.channel.receive_end();
    REQUIRE(asking.ends.size() == 2);
    asking.ask("c");
    asking.channel.tick();
    CHECK(asking.ends.back() == "c " + message(errc::shut_down));
  }
  SUBCASE("aborted") {
    asking.channel.abort();
    asking.ask("c");
    asking.channel.tick();
    REQUIRE(asking.ends.size() == 3);
  }
  SUBCASE("removed") {
    REQUIRE(asking.channel.pipeline().remove(*asking.questions));
    REQUIRE(asking.ends.size() == 2);
    CHECK(asking.ends[0].find(message(errc::cancelled)) != std::string::npos);
  }
}

TEST_CASE("a client that drains finishes its requests, takes no more, and closes") {
  Asking asking;
  asking.ask("a");
  asking.channel.drain(seconds(5));
  asking.ask("b");
  asking.channel.tick();
  CHECK(asking.ends == std::vector<std::string>{"b " + message(errc::shut_down)});
  CHECK_FALSE(asking.channel.ended());
  CHECK(asking.channel.take_sent().to_string() == "1 a\n");
  asking.channel.receive("1 A\n");
  CHECK(asking.ends.back() == "a A");
  CHECK(asking.channel.close_error() == std::error_code());
}

TEST_CASE("a deadline begins with its request, also before the connection is open") {
  Asking asking(RequestOptions(), false);
  ask_both(asking.channel, asking.ends);
  asking.world.clock.advance(seconds(1));
  asking.channel.tick();
  asking.channel.open();
  CHECK(asking.channel.take_sent().to_string() == "1 one\n2 two\n");
  asking.channel.receive("2 TWO\n");
  CHECK(asking.ends == std::vector<std::string>{"TWO"});
  CHECK_FALSE(asking.channel.ended());
  asking.world.clock.advance(std::chrono::milliseconds(1100));
  asking.channel.tick();
  CHECK(asking.ends == std::vector<std::string>{"TWO", message(errc::timed_out)});
  CHECK(asking.channel.close_error() == std::error_code());
}
