// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a handler may do inside each of its callbacks, on each transport and the simulated network: close,
// abort, leave the pipeline, write, throw. And the order of twenty handlers that come and go meanwhile.
#include <doctest/doctest.h>

#include <any>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/own_loop.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

enum class Callback {
  added,
  active,
  read,
  write,
  read_end,
  writable_changed,
  read_resumed,
  write_closed,
  drain,
  user_event,
  error,
  take_unread,
  removed,
  inactive,
};
constexpr std::array kCallbacks{
    Callback::added,        Callback::active,       Callback::read,  Callback::write,
    Callback::read_end,     Callback::read_resumed, Callback::drain, Callback::writable_changed,
    Callback::write_closed, Callback::user_event,   Callback::error, Callback::take_unread,
    Callback::removed,      Callback::inactive,
};

enum class Deed { close, abort, leave, write, fail };
constexpr std::array kDeeds{Deed::close, Deed::abort, Deed::leave, Deed::write, Deed::fail};

struct Story {
  Callback when{};
  Deed deed{};
  int done = 0;       // deeds
  int alive = 0;      // handlers
  int activated = 0;  // and the other ends of a connection
  int inactive = 0;
  int removed = 0;
  int written = 0;
  int completed = 0;

  WriteDone count() {
    ++written;
    return [this](std::error_code) { ++completed; };
  }
};

Chain text(std::string_view content) {
  return Chain(Slice::copy(content));
}

// Does one thing in one of its callbacks, once.
class Doer final : public Handler<Chain, Chain, Chain, Chain> {
 public:
  explicit Doer(Story& story) : story_(story) { ++story_.alive; }
  ~Doer() override { --story_.alive; }

  void on_added() override { now(Callback::added); }
  void on_removed() override {
    ++story_.removed;
    now(Callback::removed);
  }
  Chain take_unread() override {
    now(Callback::take_unread);
    return {};
  }
  void on_active() override {
    now(Callback::active);
    pass_active();
  }
  void on_read(Chain&& data) override {
    now(Callback::read);
    pass(std::move(data));
  }
  void on_write(Chain&& data) override {
    now(Callback::write);
    write(std::move(data));
  }
  void on_read_end() override {
    now(Callback::read_end);
    pass_read_end();
  }
  void on_error(std::error_code error, std::string_view detail) override {
    now(Callback::error);
    pass_error(error, detail);
  }
  void on_drain(Duration deadline) override {
    now(Callback::drain);
    pass_drain(deadline);
  }
  void on_user_event(const std::any& event) override {
    now(Callback::user_event);
    pass_user_event(event);
  }
  void on_inactive(std::error_code) override {
    ++story_.inactive;
    now(Callback::inactive);
  }
  void on_writable_changed(bool) override { now(Callback::writable_changed); }
  void on_write_closed(std::error_code) override { now(Callback::write_closed); }
  void on_read_resumed() override { now(Callback::read_resumed); }

 private:
  void now(Callback callback) {
    if (callback != story_.when || story_.done != 0) return;
    ++story_.done;
    switch (story_.deed) {
      case Deed::close: return channel().close();
      case Deed::abort: return channel().abort();
      case Deed::leave:
        if (!removed()) static_cast<void>(pipeline().remove(*this));
        return;
      case Deed::write:
        write(text("from inside"), story_.count());
        return channel().write(text("from outside"), story_.count());
      case Deed::fail: throw std::runtime_error("a test's handler");
    }
  }

  Story& story_;
};

// At the end of the pipeline: starts what a callback needs, and counts how often the channel ends.
class End final : public Service<Chain> {
 public:
  explicit End(Story& story) : story_(story) {}
  void on_active() override { ++story_.activated; }
  void on_read(Chain&&) override {}
  void on_inactive(std::error_code) override { ++story_.inactive; }

 private:
  Story& story_;
};

// Passes on a user event when it is told to.
class Teller final : public Handler<Chain, Chain, Chain, Chain> {
 public:
  void tell() { pass_user_event(std::string("news")); }
};

// The other side: sends what it is told to.
class Far final : public Service<Chain> {
 public:
  void on_read(Chain&&) override {}
  void on_read_end() override {}  // stays
};

// A connection of which one side is a Doer between two others, and every callback comes in turn.
void tell(EventLoop& loop, Story& story) {
  ChannelRef far;
  ServerOptions serving;
  serving.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
  serving.initializer = [&](Channel& channel) {
    far = channel.ref();
    return channel.pipeline().append<Far>();
  };
  const Server server = Server::start(loop, serving).value_or_throw();
  ChannelOptions options;
  options.stream.high_watermark_bytes = 100;
  options.stream.low_watermark_bytes = 50;
  const auto initializer = [&](Channel& channel) {
    return channel.pipeline().append(std::make_unique<Teller>(), std::make_unique<Doer>(story),
                                     std::make_unique<End>(story));
  };
  bool connected = false;
  const ChannelRef ref =
      Client(loop, initializer, options).connect(server.local_endpoint(), [&](auto) { connected = true; });
  run_until(loop, [&] { return connected; });
  const auto near = [&](const std::function<void(Channel&)>& act) {
    if (Channel* channel = ref.here()) act(*channel);
    settle(loop);
  };
  run_until(loop, [&] { return far.alive() || !ref.alive(); });
  if (far.alive()) far.write(text("hello"));
  if (story.when == Callback::read) run_until(loop, [&] { return story.done != 0; });
  settle(loop);
  near([&](Channel& channel) { channel.write(text(std::string(1000, 'x')), story.count()); });
  near([&](Channel& channel) {
    channel.pause_read();
    channel.resume_read();
  });
  near([&](Channel& channel) {
    if (auto* teller = channel.pipeline().find<Teller>()) channel.run([&] { teller->tell(); });
  });
  near([&](Channel& channel) {
    if (story.when == Callback::error) channel.fail(make_error_code(errc::malformed), "odd");
  });
  near([&](Channel& channel) {
    if (story.when != Callback::take_unread && story.when != Callback::removed) return;
    if (auto* doer = channel.pipeline().find<Doer>()) CHECK(channel.pipeline().remove(*doer));
  });
  if (story.when == Callback::write_closed) {
    far.abort();
    run_until(loop, [&] { return story.done != 0; });
    settle(loop);
  }
  near([&](Channel& channel) {
    if (story.when == Callback::drain) channel.drain(kCloseDeadline);
  });
  far.shutdown_write();
  if (story.when == Callback::read_end) run_until(loop, [&] { return story.done != 0; });
  settle(loop);
  near([&](Channel& channel) { channel.abort(); });
  far.abort();
  run_until(loop, [&] { return !ref.alive() && server.connections() == 0; });
  settle(loop);
}

}  // namespace

TEST_CASE("a handler may close, abort, leave, write and throw inside each of its callbacks") {
  const LogCapture log(LogLevel::off);
  on_every_own_loop([](EventLoop& loop) {
    for (const Callback when : kCallbacks) {
      for (const Deed deed : kDeeds) {
        CAPTURE(static_cast<int>(when));
        CAPTURE(static_cast<int>(deed));
        Story story;
        story.when = when;
        story.deed = deed;
        tell(loop, story);
        CHECK(story.done == 1);
        CHECK(story.alive == 0);
        CHECK(story.removed == 1);
        CHECK(story.inactive <= 2);
        CHECK(story.completed == story.written);
      }
    }
  });
}

namespace {

// What goes between the stages of a pipeline: each has a type of its own.
template <std::size_t kStage>
struct Step {
  std::string text;
};

class Entrance final : public Codec<Chain, Step<0>> {
 public:
  void on_read(Chain&& data) override { pass({data.to_string()}); }
  void on_write(Step<0>&& step) override { write(Chain(Slice::adopt(std::move(step.text)))); }
};

// Leaves its letter, both ways.
template <std::size_t kStage>
class Stage final : public Codec<Step<kStage>, Step<kStage + 1>> {
 public:
  void on_read(Step<kStage>&& step) override { this->pass({std::move(step.text) + mark()}); }
  void on_write(Step<kStage + 1>&& step) override { this->write({std::move(step.text) + mark()}); }

 private:
  static std::string mark() { return std::string(1, static_cast<char>('a' + kStage)); }
};

constexpr std::size_t kStages = 20;

class Return final : public Service<Step<kStages>> {
 public:
  void on_read(Step<kStages>&& step) override { write({step.text + "|"}); }
};

template <std::size_t... kStage>
Status append_stages(Pipeline& pipeline, std::index_sequence<kStage...>) {
  return pipeline.append(std::make_unique<Entrance>(), std::make_unique<Stage<kStage>>()...,
                         std::make_unique<Return>());
}

// The same with one type for all, so that they can come and go.
class Marking final : public Handler<Chain, Chain, Chain, Chain> {
 public:
  explicit Marking(char mark) : mark_(mark) {}
  void on_read(Chain&& data) override { pass(marked(std::move(data))); }
  void on_write(Chain&& data) override { write(marked(std::move(data))); }

 private:
  [[nodiscard]] Chain marked(Chain&& data) const {
    data.append(Slice::adopt(std::string(1, mark_)));
    return std::move(data);
  }
  char mark_;
};

// Takes part in nothing.
class Aside final : public Handler<Chain, Chain, Chain, Chain> {};

// Edits the pipeline while the message is on its way to it, and answers with it.
class Editing final : public Service<Chain> {
 public:
  explicit Editing(std::function<void()>& edit) : edit_(edit) {}
  void on_read(Chain&& data) override {
    if (edit_) std::exchange(edit_, nullptr)();
    data.append(Slice::adopt(std::string("|")));
    write(std::move(data));
  }

 private:
  std::function<void()>& edit_;
};

}  // namespace

TEST_CASE("twenty handlers of as many types see each message in order, both ways") {
  EmbeddedChannel channel;
  REQUIRE(append_stages(channel.pipeline(), std::make_index_sequence<kStages>()));
  channel.open();
  channel.receive("in:");
  CHECK(channel.take_sent() == "in:abcdefghijklmnopqrst|tsrqponmlkjihgfedcba");
  channel.write(Step<kStages>{"out:"});
  CHECK(channel.take_sent() == "out:tsrqponmlkjihgfedcba");
}

TEST_CASE("twenty handlers keep their order while others join, leave and take places among them") {
  EmbeddedChannel channel;
  Pipeline& pipeline = channel.pipeline();
  std::vector<HandlerNode*> nodes;  // the marking ones, from the wire on
  std::string marks;
  std::function<void()> edit;
  for (std::size_t i = 0; i < kStages; ++i) {
    auto made = std::make_unique<Marking>(static_cast<char>('a' + i));
    nodes.push_back(made.get());
    marks += static_cast<char>('a' + i);
    REQUIRE(pipeline.append(std::move(made)));
    if (i % 4 == 0) REQUIRE(pipeline.append<Aside>());
  }
  REQUIRE(pipeline.append(std::make_unique<Editing>(edit)));
  channel.open();

  const auto join = [&](std::size_t place, char mark, bool before) {
    auto made = std::make_unique<Marking>(mark);
    HandlerNode* const node = made.get();
    if (before) {
      CHECK(pipeline.insert_before(*nodes[place], std::move(made), std::make_unique<Aside>()));
    } else {
      CHECK(pipeline.insert_after(*nodes[place], std::make_unique<Aside>(), std::move(made)));
      ++place;
    }
    nodes.insert(nodes.begin() + static_cast<std::ptrdiff_t>(place), node);
    marks.insert(place, 1, mark);
  };
  const auto leave = [&](std::size_t place) {
    CHECK(pipeline.remove(*nodes[place]));
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(place));
    marks.erase(place, 1);
  };
  const auto replace = [&](std::size_t place, char mark) {
    auto made = std::make_unique<Marking>(mark);
    HandlerNode* const node = made.get();
    CHECK(pipeline.replace(*nodes[place], std::move(made)));
    nodes[place] = node;
    marks[place] = mark;
  };
  const std::vector<std::function<void()>> edits{
      [&] { join(0, 'A', true); },
      [&] { join(nodes.size() / 2, 'B', true); },
      [&] { join(nodes.size() / 2, 'C', false); },
      [&] { join(nodes.size() - 1, 'D', false); },
      [&] { leave(0); },
      [&] { leave(nodes.size() / 2); },
      [&] { leave(nodes.size() - 1); },
      [&] { replace(0, 'E'); },
      [&] { replace(nodes.size() / 2, 'F'); },
      [&] { replace(nodes.size() - 1, 'G'); },
  };
  for (std::size_t i = 0; i < edits.size(); ++i) {
    CAPTURE(i);
    const std::string before = marks;
    edit = edits[i];
    channel.receive("x");  // the answer goes through what is there by then
    CHECK(channel.take_sent() == "x" + before + "|" + std::string(marks.rbegin(), marks.rend()));
    channel.receive("y");
    CHECK(channel.take_sent() == "y" + marks + "|" + std::string(marks.rbegin(), marks.rend()));
  }
  CHECK(marks.size() == kStages + 1);
}
