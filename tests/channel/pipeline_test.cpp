// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/pipeline.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "tests/channel/handlers.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

using Words = std::vector<std::string>;

class Number final : public Handler<std::string, int, int, std::string> {
 public:
  void on_read(std::string&& text) override { pass(std::stoi(text)); }
  void on_write(int&& value) override { write(std::to_string(value)); }
};

// Takes part in nothing.
class Idle final : public Handler<std::string, std::string, std::string, std::string> {};

class Throwing final : public Service<std::string> {
 public:
  void on_read(std::string&& line) override { throw std::runtime_error("no " + line + " today"); }
};

// Sees every message and every error go by.
class Witness final : public Handler<std::string, std::string, std::string, std::string> {
 public:
  explicit Witness(Words& log) : log_(log) {}
  void on_read(std::string&& line) override {
    log_.push_back("< " + line);
    pass(std::move(line));
  }
  void on_write(std::string&& line) override {
    log_.push_back("> " + line);
    write(std::move(line));
  }
  void on_error(std::error_code error, std::string_view detail) override {
    log_.push_back("! " + std::string(detail));
    pass_error(error, detail);
  }

 private:
  Words& log_;
};

// Calls a function for each line, with itself.
class Doing final : public Service<std::string> {
 public:
  explicit Doing(std::function<void(Doing&, std::string&)> function) : function_(std::move(function)) {}
  void on_read(std::string&& line) override { function_(*this, line); }
  using HandlerNode::channel;
  using HandlerNode::pipeline;
  using HandlerNode::removed;

 private:
  std::function<void(Doing&, std::string&)> function_;
};

// Counts bytes and gives them on.
class Counting final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { *text += data.to_string(); }
  std::shared_ptr<std::string> text = std::make_shared<std::string>();  // outlives it
};

static_assert(sizeof(Handler<Chain, Chain, Chain, Chain>) == 56);

}  // namespace

TEST_CASE("messages go through the handlers in order, in both directions") {
  Words log;
  EmbeddedChannel channel;
  MESSAGE("sizeof(Channel) is " << sizeof(Channel) << ", sizeof(Pipeline) " << sizeof(Pipeline));
  REQUIRE(channel.pipeline().append<Lines, Idle>());
  REQUIRE(channel.pipeline().append(std::make_unique<Witness>(log)));
  REQUIRE(channel.pipeline().append<Idle, Echo>());
  CHECK(channel.pipeline().to_string() == "test::Lines, Idle, Witness, Idle, test::Echo");
  channel.open();
  channel.receive("one\ntw");
  CHECK(channel.take_sent() == "one\n");
  channel.receive("o\n");
  CHECK(channel.take_sent() == "two\n");
  CHECK(log == Words{"< one", "> one", "< two", "> two"});
}

TEST_CASE("the channel writes what the last handler takes, through the whole pipeline") {
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines, Number>());
  channel.open();
  channel.write(42);
  CHECK(channel.take_sent() == "42\n");
  CHECK(channel.pipeline().find<Number>() != nullptr);
  CHECK(channel.pipeline().find<Echo>() == nullptr);
  CHECK(channel.pipeline().find("Lines") == channel.pipeline().find<Lines>());
  CHECK(channel.pipeline().find("Line") == nullptr);
}

TEST_CASE("a join that does not fit names both sides and leaves the pipeline as it was") {
  EmbeddedChannel channel;
  Pipeline& pipeline = channel.pipeline();
  REQUIRE(pipeline.append<Lines, Echo>());
  const auto refused = [&](const Status& status, const char* message) {
    REQUIRE(!status);
    CHECK(status.error().code == errc::invalid_argument);
    CHECK(status.error().message() == message);
    CHECK(pipeline.to_string() == "test::Lines, test::Echo");
  };
  refused(pipeline.prepend(std::make_unique<Echo>()),
          "the wire passes on Chain, but test::Echo reads std::string");
  refused(pipeline.insert_before(*pipeline.find<Echo>(), std::make_unique<Number>()),
          "Number passes on int, but test::Echo reads std::string");
  refused(pipeline.insert_after(*pipeline.find<Lines>(), std::make_unique<Lines>()),
          "test::Lines passes on std::string, but test::Lines reads Chain");
  refused(pipeline.remove(*pipeline.find<Lines>()),
          "the wire passes on Chain, but test::Echo reads std::string");
  refused(pipeline.replace(*pipeline.find<Lines>(), std::make_unique<Counting>()),
          "test::Echo writes std::string, but Counting takes Chain");
  channel.open();
  channel.receive("x\n");
  CHECK(channel.take_sent() == "x\n");
}

TEST_CASE("a message that nobody reads is logged and closes the channel") {
  LogCapture log;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines, Idle>());
  channel.open();
  channel.receive("x\n");
  CHECK(log.contains("Idle passes on std::string, but nobody reads it"));
  REQUIRE(channel.close_error().has_value());
  CHECK(*channel.close_error() == errc::unhandled);
}

TEST_CASE("a write of a type that the last handler does not take is logged and closes the channel") {
  LogCapture log;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines, Echo>());
  channel.open();
  std::error_code error;
  channel.write(42, [&](std::error_code result) { error = result; });
  channel.tick();
  CHECK(log.contains("write of int, but test::Echo takes std::string"));
  REQUIRE(channel.close_error().has_value());
  CHECK(*channel.close_error() == errc::unhandled);
  CHECK(error == errc::shut_down);
}

TEST_CASE("an exception becomes an error for all handlers, then the channel closes with it") {
  LogCapture log;
  Words seen;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines>());
  REQUIRE(channel.pipeline().append(std::make_unique<Witness>(seen)));
  REQUIRE(channel.pipeline().append<Throwing>());
  channel.open();
  channel.write(std::string("earlier"));
  channel.receive("bread\n");
  CHECK(seen == Words{"> earlier", "< bread", "! no bread today"});
  CHECK(log.contains("no bread today"));
  CHECK_FALSE(channel.close_error().has_value());  // what is queued goes first
  CHECK(channel.take_sent() == "earlier\n");
  REQUIRE(channel.close_error().has_value());
  CHECK(*channel.close_error() == errc::handler_failed);
}

TEST_CASE("an error that a handler takes neither is logged nor closes, unless it was an exception") {
  LogCapture log;
  Words heard;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines>());
  REQUIRE(channel.pipeline().append(std::make_unique<Recorder>(heard)));
  channel.open();
  channel.fail(make_error_code(errc::malformed), "odd");
  channel.tick();
  CHECK_FALSE(channel.close_error().has_value());
  channel.run([] { throw 1; });
  channel.tick();
  CHECK(log.lines().empty());
  REQUIRE(channel.close_error().has_value());
  CHECK(*channel.close_error() == errc::handler_failed);
  CHECK(heard == Words{"added", "active", "error malformed input: odd",
                       "error a callback threw an exception: something that is not a std::exception",
                       "inactive a callback threw an exception", "removed"});
}

TEST_CASE("a peer's end closes the channel unless a handler takes it") {
  Words heard;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines>());
  REQUIRE(channel.pipeline().append(std::make_unique<Recorder>(heard)));
  channel.open();
  channel.receive("last\n");
  channel.receive_end();
  CHECK(channel.close_error() == std::error_code());
  CHECK(heard == Words{"added", "active", "read last", "end", "inactive Success", "removed"});
}

TEST_CASE("bytes that a replaced handler had not decoded go to the one in its place") {
  SUBCASE("one for one") {
    Words read;
    EmbeddedChannel channel;
    REQUIRE(channel.pipeline().append<Lines>());
    REQUIRE(channel.pipeline().append(std::make_unique<Recorder>(read)));
    channel.open();
    channel.receive("one\nhal");
    REQUIRE(channel.pipeline().replace(*channel.pipeline().find<Lines>(), std::make_unique<Lines>()));
    channel.receive("f\n");
    CHECK(read == Words{"added", "active", "read one", "read half"});
  }
  SUBCASE("a protocol upgrade from inside the old protocol, with more data behind it") {
    EmbeddedChannel channel;
    REQUIRE(channel.pipeline().append<Lines>());
    REQUIRE(channel.pipeline().append(std::make_unique<Doing>([](Doing& self, std::string& line) {
      if (line != "upgrade") return;
      CHECK(self.pipeline().replace_rest(*self.pipeline().find<Lines>(), std::make_unique<Counting>()));
      CHECK(self.removed());
    })));
    channel.open();
    channel.receive("hello\nupgrade\nraw\nbytes");
    auto* counting = channel.pipeline().find<Counting>();
    REQUIRE(counting != nullptr);
    CHECK(*counting->text == "raw\nbytes");
    channel.receive(" and more");
    CHECK(*counting->text == "raw\nbytes and more");
    CHECK(channel.pipeline().to_string() == "Counting");
  }
  SUBCASE("while reading is paused they wait, and what is received then comes behind them") {
    EmbeddedChannel channel;
    REQUIRE(channel.pipeline().append<Lines>());
    REQUIRE(channel.pipeline().append(std::make_unique<Doing>([](Doing& self, std::string&) {
      self.channel().pause_read();
      CHECK(self.pipeline().replace_rest(*self.pipeline().find<Lines>(), std::make_unique<Counting>()));
    })));
    channel.open();
    channel.receive("upgrade\nab");
    channel.receive("cd");
    channel.receive_end();
    auto* counting = channel.pipeline().find<Counting>();
    REQUIRE(counting != nullptr);
    const auto text = counting->text;
    CHECK(text->empty());
    channel.resume_read();
    channel.tick();  // brings the end, too
    CHECK(*text == "abcd");
    CHECK(channel.close_error() == std::error_code());
  }
}

namespace {

// Edits the pipeline at random in every function, then does its work.
class Restless final : public Handler<Chain, Chain, Chain, Chain> {
 public:
  struct World {
    std::mt19937 generator;
    int alive = 0;
    int edits = 0;
    bool may_close = false;
  };
  explicit Restless(World& world) : world_(world) { ++world_.alive; }
  ~Restless() override { --world_.alive; }

  void on_read(Chain&& data) override {
    meddle();
    pass(std::move(data));
    meddle();
  }
  void on_write(Chain&& data) override {
    meddle();
    write(std::move(data));
    meddle();
  }
  void on_added() override { meddle(); }
  void on_removed() override { meddle(); }
  void on_active() override {
    meddle();
    pass_active();
  }
  void on_read_end() override {
    meddle();
    pass_read_end();
  }
  void on_inactive(std::error_code) override { meddle(); }
  void on_error(std::error_code error, std::string_view detail) override {
    meddle();
    pass_error(error, detail);
  }
  void on_writable_changed(bool) override { meddle(); }
  void on_read_resumed() override { meddle(); }
  void on_drain(Duration deadline) override {
    meddle();
    pass_drain(deadline);
  }

 private:
  void meddle() {
    const auto make = [this] { return std::make_unique<Restless>(world_); };
    auto* other = pipeline().find<Restless>();
    const auto choice = world_.generator() % 24;
    if (world_.alive > 12 && choice < 5) return;
    const int before = world_.edits;
    ++world_.edits;
    switch (choice) {
      case 0: static_cast<void>(pipeline().prepend(make())); return;
      case 1:
        if (!removed()) static_cast<void>(pipeline().insert_after(*this, make()));
        return;
      case 2:
        if (!removed()) static_cast<void>(pipeline().insert_before(*this, make(), make()));
        return;
      case 3:
        if (other != nullptr) static_cast<void>(pipeline().replace(*other, make(), make()));
        return;
      case 4:
        if (!removed()) static_cast<void>(pipeline().replace(*this, make()));
        return;
      case 5:
        if (!removed()) static_cast<void>(pipeline().remove(*this));
        return;
      case 6:
      case 7:
        if (other != nullptr) static_cast<void>(pipeline().remove(*other));
        return;
      case 8:
        if (world_.may_close) channel().close();
        return;
      case 9:
        if (world_.may_close) channel().abort();
        return;
      case 10:
        if (world_.may_close) throw std::runtime_error("restless");
        return;
      default: world_.edits = before; return;
    }
  }

  World& world_;
};

}  // namespace

TEST_CASE("random edits from inside every function lose and reorder nothing") {
  Restless::World world;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    world.generator.seed(seed);
    EmbeddedChannel channel;
    REQUIRE(channel.pipeline().append<Counting>());
    REQUIRE(channel.pipeline().prepend(std::make_unique<Restless>(world), std::make_unique<Restless>(world)));
    channel.open();
    std::string sent;
    for (int i = 0; i < 10; ++i) {
      const std::string text = std::to_string(i);
      sent += text;
      channel.receive(text);
      channel.write(Chain(Slice::copy(text)));
      if (channel.pipeline().size() == 1) {
        REQUIRE(channel.pipeline().prepend(std::make_unique<Restless>(world)));
      }
    }
    CHECK(*channel.pipeline().find<Counting>()->text == sent);
    CHECK(channel.take_sent() == sent);
  }
  CHECK(world.alive == 0);
  CHECK(world.edits > 3000);
}

TEST_CASE("close, abort, exceptions and edits in every function end the channel once and leak nothing") {
  LogCapture log(LogLevel::off);
  Restless::World world;
  world.may_close = true;
  for (unsigned seed = 1; seed <= 500; ++seed) {
    world.generator.seed(seed);
    int completed = 0;
    {
      EmbeddedChannel channel({16, 8});
      CHECK(channel.pipeline().append(std::make_unique<Restless>(world), std::make_unique<Restless>(world)));
      static_cast<void>(channel.pipeline().append<Counting>());
      channel.open();
      for (int i = 0; i < 5; ++i) {
        channel.receive("some bytes");
        channel.write(Chain(Slice::copy("0123456789")), [&](std::error_code) { ++completed; });
      }
      static_cast<void>(channel.take_sent());
      channel.drain(kCloseDeadline);
      channel.receive_end();
    }
    CHECK(completed == 5);
  }
  CHECK(world.alive == 0);
}
