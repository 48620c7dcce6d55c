// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/interop/asio_loop.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/loop/offload.hpp"
#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/loop/timer.hpp"
#include "linkspan/transport/transport.hpp"
#include "tests/channel/handlers.hpp"
#include "tests/support/death.hpp"
#include "tests/support/helpers.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

Endpoint loopback() {
  return Endpoint::parse("127.0.0.1:0").value();
}

AsioLoop make_loop(asio::io_context& context, EventLoopOptions options = {}) {
  return AsioLoop::create(context, std::move(options)).value_or_throw();
}

Server start_server(EventLoop& loop, ChannelInitializer initializer) {
  ServerOptions options;
  options.endpoint = loopback();
  options.initializer = std::move(initializer);
  return Server::start(loop, std::move(options)).value_or_throw();
}

// Runs the context until `done` holds or it takes too long.
bool run_until(asio::io_context& context, const std::function<bool()>& done) {
  const TimePoint deadline = monotonic_clock().now() + std::chrono::seconds(20);
  while (!done() && monotonic_clock().now() < deadline) context.run_one_for(std::chrono::milliseconds(10));
  return done();
}

// Lets the context do what is due.
void settle(asio::io_context& context) {
  for (int i = 0; i < 20; ++i) {
    if (context.run_one_for(std::chrono::milliseconds(1)) != 0) i = 0;
  }
}

class Keeper final : public Service<std::string> {
 public:
  explicit Keeper(std::vector<std::string>& lines) : lines_(lines) {}
  void on_read(std::string&& line) override { lines_.push_back(std::move(line)); }

 private:
  std::vector<std::string>& lines_;
};

ChannelInitializer echoing() {
  return [](Channel& channel) {
    return channel.pipeline().append(std::make_unique<Lines>(), std::make_unique<Echo>());
  };
}

ChannelInitializer keeping(std::vector<std::string>& lines) {
  return [&lines](Channel& channel) {
    return channel.pipeline().append(std::make_unique<Lines>(), std::make_unique<Keeper>(lines));
  };
}

// What comes back is what was sent, and the peer is slower than the sender.
class EchoBytes final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
  void on_writable_changed(bool writable) override {
    if (writable) {
      channel().resume_read();
    } else {
      channel().pause_read();
    }
  }
};

class CountBytes final : public Service<Chain> {
 public:
  explicit CountBytes(std::size_t& bytes) : bytes_(bytes) {}
  void on_read(Chain&& data) override { bytes_ += data.size(); }

 private:
  std::size_t& bytes_;
};

class Closings final : public StreamHandler {
 public:
  int closed = 0;
  std::error_code error;
  std::string received;
  void on_read(Chain&& data) override { received += data.to_string(); }
  void on_end() override {}
  void on_closed(std::error_code why, Chain&&) override {
    ++closed;
    error = why;
  }
};

// What a loop has to wait for at its end.
class WorkOfOthers final : public PendingWork {
 public:
  explicit WorkOfOthers(std::optional<std::error_code>& done) : done_(done) {}
  void finish(std::error_code error) {
    done_ = error;
    unlink();
  }
  void loop_stops() noexcept override {}
  void loop_ends() noexcept override { finish(make_error_code(errc::timed_out)); }

 private:
  std::optional<std::error_code>& done_;
};

}  // namespace

TEST_CASE("a server, a client and the program's own acceptor and timer share a context and its thread") {
  asio::io_context context;
  const AsioLoop linkspan_loop = make_loop(context);
  EventLoop& loop = linkspan_loop.loop();
  std::vector<std::string> lines;
  std::optional<Server> server = start_server(loop, echoing());

  asio::ip::tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  asio::ip::tcp::socket accepted(context);
  std::string greeting = "from Asio\n";
  acceptor.async_accept(accepted, [&](std::error_code) {
    asio::async_write(accepted, asio::buffer(greeting), [](std::error_code, std::size_t) {});
  });

  const Client client(loop, keeping(lines));
  const ChannelRef to_server = client.connect(server->local_endpoint());
  to_server.write(std::string("through Linkspan"));
  const ChannelRef to_asio = client.connect(
      Endpoint::parse("127.0.0.1:" + std::to_string(acceptor.local_endpoint().port())).value());
  asio::steady_timer timer(context, std::chrono::milliseconds(1));
  timer.async_wait([&](std::error_code) { to_server.write(std::string("from a handler of Asio's")); });

  CHECK(run_until(context, [&] { return lines.size() == 3; }));
  CHECK(std::ranges::count(lines, "through Linkspan") == 1);
  CHECK(std::ranges::count(lines, "from a handler of Asio's") == 1);
  CHECK(std::ranges::count(lines, "from Asio") == 1);

  to_server.close();
  to_asio.close();
  server->stop(std::chrono::seconds(5), [&] { loop.stop(); });
  context.run();  // returns: the loop has stopped, and nothing of it is left
  CHECK(server->connections() == 0);
}

TEST_CASE("a large transfer between two channels of one context arrives, with both sides pausing") {
  asio::io_context context(1);
  const AsioLoop linkspan_loop = make_loop(context);
  EventLoop& loop = linkspan_loop.loop();
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  constexpr std::size_t kPieces = 64;
  std::size_t received = 0;
  std::size_t written = 0;
  Server server = start_server(loop, [](Channel& channel) { return channel.pipeline().append<EchoBytes>(); });
  const Client client(loop, [&](Channel& channel) {
    return channel.pipeline().append(std::make_unique<CountBytes>(received));
  });
  const ChannelRef channel = client.connect(server.local_endpoint());
  const std::string piece(kPiece, 'x');
  for (std::size_t i = 0; i < kPieces; ++i) {
    channel.write(Chain(Slice::immortal(piece)), [&](std::error_code error) { written += error ? 0 : 1; });
  }
  CHECK(run_until(context, [&] { return received == kPiece * kPieces; }));
  CHECK(written == kPieces);
}

TEST_CASE("what other threads post wakes a context that sleeps") {
  asio::io_context context;
  const AsioLoop linkspan_loop = make_loop(context);
  EventLoop& loop = linkspan_loop.loop();
  constexpr int kThreads = 2;
  constexpr int kTasks = 2000;
  int ran = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int task = 0; task < kTasks; ++task) {
        const bool posted = loop.post([&] {
          if (++ran == kThreads * kTasks) loop.stop();
        });
        if (!posted) std::abort();
      }
    });
  }
  context.run();
  for (std::thread& thread : threads) thread.join();
  CHECK(ran == kThreads * kTasks);
}

TEST_CASE("stop() from another thread ends a context that has nothing else to do") {
  asio::io_context context;
  const AsioLoop linkspan_loop = make_loop(context);
  std::thread thread([&loop = linkspan_loop.loop()] { loop.stop(); });
  context.run();
  thread.join();
  CHECK_FALSE(linkspan_loop.loop().post([] {}));
}

TEST_CASE(
    "timers fire in order, also one that a handler of the program starts, and an earlier one after a later") {
  asio::io_context context;
  const AsioLoop linkspan_loop = make_loop(context);
  EventLoop& loop = linkspan_loop.loop();
  std::string fired;
  Timer late(loop, [&] {
    fired += 'c';
    loop.stop();
  });
  Timer middle(loop, [&] { fired += 'b'; });
  Timer early(loop, [&] { fired += 'a'; });
  Timer never(loop, [&] { fired += 'n'; });
  never.start(std::chrono::hours(1));
  asio::post(context, [&] { late.start(std::chrono::milliseconds(30)); });
  asio::post(context, [&] { middle.start(std::chrono::milliseconds(20)); });
  asio::post(context, [&] { early.start(std::chrono::milliseconds(10)); });
  context.run();
  CHECK(fired == "abc");
}

TEST_CASE("a handler of the program uses streams as it likes: what it starts is seen to") {
  asio::io_context context;
  const AsioLoop linkspan_loop = make_loop(context);
  EventLoop& loop = linkspan_loop.loop();
  asio::local::stream_protocol::socket near(context);
  asio::local::stream_protocol::socket far(context);
  asio::local::connect_pair(near, far);
  Closings events;
  Stream stream = Transport::of(loop).open(Socket(near.release()), {}, events);
  settle(context);

  bool written = false;
  asio::post(context, [&] {
    stream.start_read();
    stream.write(Chain(Slice::copy("ping")), [&](std::error_code, std::size_t) { written = true; });
  });
  CHECK(run_until(context, [&] { return written; }));
  std::string text(4, '\0');
  asio::read(far, asio::buffer(text));
  CHECK(text == "ping");
  asio::write(far, asio::buffer("pong", 4));
  CHECK(run_until(context, [&] { return events.received == "pong"; }));

  settle(context);
  bool deferred = false;
  struct Task final : DeferredTask {
    explicit Task(bool& ran) : ran_(ran) {}
    void run_deferred() override { ran_ = true; }
    bool& ran_;
  } task(deferred);
  asio::post(context, [&] { loop.defer(task); });
  CHECK(run_until(context, [&] { return deferred; }));

  asio::post(context, [&] { stream.close(); });
  far.close();
  CHECK(run_until(context, [&] { return events.closed == 1; }));
  CHECK_FALSE(events.error);
}

TEST_CASE("a loop with nothing to do gives the context nothing to do") {
  asio::io_context context;
  EventLoopOptions options;
  options.trim_interval = std::chrono::milliseconds(1);
  const AsioLoop linkspan_loop = make_loop(context, options);
  EventLoop& loop = linkspan_loop.loop();
  std::vector<std::string> lines;
  Server server = start_server(loop, echoing());
  const Client client(loop, keeping(lines));
  client.connect(server.local_endpoint()).write(std::string("one"));
  CHECK(run_until(context, [&] { return lines.size() == 1; }));
  settle(context);
  const std::uint64_t ticks = loop.counters().ticks.get();
  CHECK(context.run_for(std::chrono::milliseconds(20)) == 0);
  CHECK(loop.counters().ticks.get() == ticks);
}

TEST_CASE("destroying the loop completes everything, and what the context still holds of it does no harm") {
  asio::io_context context;
  std::optional<AsioLoop> linkspan_loop = make_loop(context);
  asio::local::stream_protocol::socket near(context);
  asio::local::stream_protocol::socket far(context);
  asio::local::connect_pair(near, far);
  Closings events;
  Stream stream = Transport::of(linkspan_loop->loop()).open(Socket(near.release()), {}, events);
  settle(context);
  stream.start_read();
  std::error_code write_error;
  std::size_t accepted = 0;
  const std::string bytes(std::size_t{8} << 20, 'x');
  stream.write(Chain(Slice::immortal(bytes)), [&](std::error_code error, std::size_t size) {
    write_error = error;
    accepted = size;
  });
  settle(context);
  CHECK(events.closed == 0);

  SUBCASE("before the context goes on") {}
  SUBCASE("and is asked for another tick meanwhile") {
    CHECK(linkspan_loop->loop().post([] {}));
  }
  linkspan_loop.reset();
  CHECK(events.closed == 1);
  CHECK(events.error == errc::aborted);
  CHECK(write_error == errc::cancelled);
  CHECK(accepted < bytes.size());
  CHECK_FALSE(stream);
  context.run();  // has no work any more
  SUBCASE("and the context has room for another one") {
    const AsioLoop next = make_loop(context);
    context.restart();
    next.loop().stop();
    context.run();
  }
}

TEST_CASE("the context may be destroyed while it holds handlers of a loop that is gone") {
  std::optional<asio::io_context> context(std::in_place);
  std::optional<AsioLoop> linkspan_loop = make_loop(*context);
  Closings events;
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  Stream stream = Transport::of(linkspan_loop->loop()).open(Socket(ends[0]), {}, events);
  const Socket peer(ends[1]);
  std::optional<Timer> timer(std::in_place, linkspan_loop->loop(), [] {});
  timer->start(std::chrono::hours(1));
  settle(*context);
  timer.reset();
  linkspan_loop.reset();
  context.reset();
  CHECK(events.closed == 1);
}

TEST_CASE("a loop that stops waits for its helpers, and the program's handlers go on meanwhile") {
  asio::io_context context;
  std::optional<AsioLoop> linkspan_loop = make_loop(context);
  Gate gate;
  std::optional<std::error_code> done;
  WorkOfOthers work(done);
  linkspan_loop->loop().await(work);
  Offload offload;
  REQUIRE(offload.start(
      linkspan_loop->loop(), Helpers::Pace::quick, [&] { gate.pass(); },
      [&](std::error_code error) { work.finish(error); }));
  gate.await_arrivals(1);

  SUBCASE("stop()") {
    settle(context);
    linkspan_loop->loop().stop();
    asio::post(context, [&] { asio::post(context, [&] { gate.open(); }); });  // after the tick of the stop
    context.run();
  }
  SUBCASE("its destruction, where nothing else runs") {
    std::thread thread([&] { gate.open(); });
    linkspan_loop.reset();
    thread.join();
  }
  SUBCASE("its destruction in the middle of stopping") {
    settle(context);
    linkspan_loop->loop().stop();
    context.run_for(std::chrono::milliseconds(1));
    CHECK_FALSE(done);
    std::thread thread([&] { gate.open(); });
    linkspan_loop.reset();
    thread.join();
  }
  REQUIRE(done);
  CHECK_FALSE(*done);
}

TEST_CASE("several loops live on one context, and stop one by one") {
  asio::io_context context;
  const AsioLoop first = make_loop(context);
  const AsioLoop second = make_loop(context);
  std::vector<std::string> lines;
  std::optional<Server> server = start_server(first.loop(), echoing());
  const Client client(second.loop(), keeping(lines));
  const ChannelRef channel = client.connect(server->local_endpoint());
  channel.write(std::string("across"));
  CHECK(run_until(context, [&] { return lines.size() == 1; }));
  second.loop().stop();
  CHECK(run_until(context, [&] { return server->connections() == 0; }));
  first.loop().stop();
  context.run();
  CHECK_FALSE(first.loop().post([] {}));
}

TEST_CASE("a busy poll is refused: it is not the loop that waits") {
  asio::io_context context;
  EventLoopOptions options;
  options.busy_poll = std::chrono::microseconds(50);
  const Result<AsioLoop> made = AsioLoop::create(context, options);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == errc::invalid_argument);
}

TEST_CASE("a context that another thread runs is noticed") {
  const std::string words = last_words([] {
    asio::io_context context;
    const AsioLoop linkspan_loop = make_loop(context);
    std::thread([&context] { context.run_one(); }).join();
  });
  CHECK(words.find("a loop runs on the thread that created it") != std::string::npos);
}
