// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a Connector does with attempts whose answers the test chooses, in orders that no network promises.
#include "lib/transport/connector.hpp"

#include <fcntl.h>

#include "lib/transport/transport_core.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

class ScriptedAttempt final : public ConnectAttempt {
 public:
  using ConnectAttempt::ConnectAttempt;
  using ConnectAttempt::descriptor;
  using ConnectAttempt::report;
  bool cancelled = false;

 private:
  void start() override {}
  void cancel() override { cancelled = true; }
};

class ScriptedStream final : public StreamCore {
 public:
  using StreamCore::StreamCore;

 private:
  void update_receive(bool) override {}
  void start_send(SendCall) override {}
  void cancel_operations() override {}
};

class ScriptedTransport final : public TransportCore {
 public:
  using TransportCore::TransportCore;
  ~ScriptedTransport() override { delete_all(); }
  std::vector<ScriptedAttempt*> attempts;

  std::string_view name() const noexcept override { return "scripted"; }
  std::vector<std::string> capabilities() const override { return {}; }
  void wake() noexcept override {}

 private:
  std::unique_ptr<StreamCore> make_stream(StreamSetup setup) override {
    return std::make_unique<ScriptedStream>(*this, std::move(setup));
  }
  std::unique_ptr<ConnectAttempt> make_attempt(AttemptSetup setup) override {
    auto attempt = std::make_unique<ScriptedAttempt>(*this, std::move(setup));
    attempts.push_back(attempt.get());
    return attempt;
  }
  std::unique_ptr<ListenerCore> make_listener(Socket, ListenerHandler&) override { return nullptr; }
  bool wait(Duration) override { return false; }
};

struct ScriptedWorld {
  ScriptedWorld() {
    EventLoopOptions options;
    options.environment = &time.environment;
    const EngineFactory engine = [this](EventLoop& made) -> Result<std::unique_ptr<Engine>> {
      auto scripted = std::make_unique<ScriptedTransport>(made);
      transport = scripted.get();
      return std::unique_ptr<Engine>(std::move(scripted));
    };
    loop = EventLoop::create(engine, options).value_or_throw();
    const Endpoint endpoint = Endpoint::parse("127.0.0.1:1").value();
    stream = transport->connect(std::vector(3, endpoint), {}, events);
    tick();
  }
  void tick() {
    for (int i = 0; i < 3; ++i) loop->run_once(Duration::zero());
  }
  void pass_delay() {
    time.clock.advance(std::chrono::milliseconds(252));
    tick();
  }
  [[nodiscard]] ScriptedAttempt& attempt(std::size_t index) const { return *transport->attempts.at(index); }

  test::FakeWorld time;
  ScriptedTransport* transport = nullptr;
  Recorder events;
  std::unique_ptr<EventLoop> loop;
  Stream stream;
};

bool is_open(int descriptor) {
  return ::fcntl(descriptor, F_GETFD) >= 0;
}

}  // namespace

TEST_CASE("an attempt that connects after another one has won is closed, and the stream stays the winner's") {
  ScriptedWorld world;
  world.pass_delay();
  REQUIRE(world.transport->attempts.size() == 2);
  const int loser = world.attempt(0).descriptor();
  const int winner = world.attempt(1).descriptor();
  world.attempt(1).report(0);
  CHECK(world.attempt(0).cancelled);
  world.attempt(0).report(0);  // in the same tick: both were answered before the loop looked
  CHECK_FALSE(is_open(loser));
  world.tick();
  CHECK(world.events.events == std::vector{Event::open});
  CHECK(is_open(winner));
  world.pass_delay();
  CHECK(world.transport->attempts.size() == 2);
}

TEST_CASE("on_closed waits for every attempt that the kernel still holds") {
  ScriptedWorld world;
  world.pass_delay();
  world.stream.abort();
  world.tick();
  CHECK(world.attempt(0).cancelled);
  CHECK(world.attempt(1).cancelled);
  CHECK(world.events.events.empty());
  world.attempt(0).report(ECANCELED);
  world.tick();
  CHECK(world.events.events.empty());
  const int late = world.attempt(1).descriptor();
  world.attempt(1).report(0);
  CHECK_FALSE(is_open(late));
  world.tick();
  CHECK(world.events.events == std::vector{Event::closed});
  CHECK(world.events.closed_error == errc::aborted);
  CHECK(world.loop->engine().idle());
}

TEST_CASE("an old attempt's failure starts nothing while a newer one still has time") {
  ScriptedWorld world;
  world.pass_delay();
  world.attempt(0).report(ECONNREFUSED);
  world.tick();
  CHECK(world.transport->attempts.size() == 2);
  world.attempt(1).report(ECONNRESET);
  world.tick();
  REQUIRE(world.transport->attempts.size() == 3);
  world.attempt(2).report(ENETUNREACH);
  world.tick();
  CHECK(world.events.closed_error == std::errc::connection_reset);
}

}  // namespace linkspan::conformance
