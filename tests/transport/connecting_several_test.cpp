// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about connecting to several addresses of one peer. The loop's clock is the
// test's, so that delays pass when the test says so, and only then; the simulated network has its own.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "lib/transport/connector.hpp"
#include "tests/support/fake_clock.hpp"
#include "tests/support/log_capture.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

using Endpoints = std::vector<Endpoint>;

// A plain listener that takes connections only while its queue has room: it answers no further ones, until
// some of those are accepted.
class Silent {
 public:
  explicit Silent(World& world) : listener_(world.raw_listener(0)), endpoint_(local_endpoint(descriptor())) {
    for (int i = 0; i < 2; ++i) {
      Socket socket(::socket(endpoint_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      static_cast<void>(::connect(socket.descriptor(), endpoint_.address(),
                                  static_cast<socklen_t>(endpoint_.address_size())));
      waiting_.push_back(std::move(socket));
    }
    REQUIRE(::fcntl(descriptor(), F_SETFL, O_NONBLOCK) == 0);
  }
  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] int descriptor() const { return listener_.descriptor(); }

 private:
  Socket listener_;
  Endpoint endpoint_;
  std::vector<Socket> waiting_;
};

// A plain listener that says whether somebody has come.
class Answering {
 public:
  explicit Answering(World& world) : listener_(world.raw_listener()) {
    REQUIRE(::fcntl(listener_.descriptor(), F_SETFL, O_NONBLOCK) == 0);
  }
  [[nodiscard]] Endpoint endpoint() const { return local_endpoint(listener_.descriptor()); }
  /// Empty when nobody has come since the last time.
  [[nodiscard]] Socket accept() const {
    return Socket(::accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  Socket listener_;
};

Endpoint refusing(World& world) {
  return local_endpoint(world.raw_listener().descriptor());  // closed again
}

struct TimedWorld {
  explicit TimedWorld(const Mode& mode) : world(mode, options()) {}

  [[nodiscard]] EventLoopOptions options() {
    EventLoopOptions options;
    options.environment = &time.environment;
    return options;
  }
  Connection& connect(const Endpoints& endpoints, const StreamOptions& stream_options = {}) {
    return world.connect(endpoints, stream_options);
  }
  void pass(Duration duration) {
    time.clock.advance(duration);
    REQUIRE(world.loop().post([] {}));  // a guest's host knows the real time only
    world.settle();
  }

  test::FakeWorld time;
  World world;
};

void for_each_timed(const std::function<void(TimedWorld&)>& body) {
  for_each_kernel_mode_name([&](const Mode& mode) {
    TimedWorld world(mode);
    body(world);
  });
}

// Unix sockets connect, or fail, at once: what has to wait needs TCP.
void for_each_timed_tcp(const std::function<void(TimedWorld&)>& body) {
  for_each_timed([&](TimedWorld& world) {
    if (!world.world.is_unix()) body(world);
  });
}

constexpr Duration kDelay = std::chrono::milliseconds(250);
constexpr Duration kTick = std::chrono::milliseconds(2);

}  // namespace

TEST_CASE("the families of the addresses take turns, beginning with that of the first") {
  const auto parsed = [](const std::vector<std::string>& texts) {
    Endpoints endpoints;
    for (const std::string& text : texts) endpoints.push_back(Endpoint::parse(text).value());
    return endpoints;
  };
  CHECK(interleave_families({}).empty());
  CHECK(interleave_families(parsed({"[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"})) ==
        parsed({"[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"}));
  CHECK(interleave_families(parsed({"1.1.1.1:1", "1.1.1.2:1", "unix:/a", "[::1]:1", "unix:/b"})) ==
        parsed({"1.1.1.1:1", "unix:/a", "[::1]:1", "1.1.1.2:1", "unix:/b"}));
}

TEST_CASE("an address that refuses is followed by the next at once") {
  for_each_timed([](TimedWorld& timed) {
    const Answering answering(timed.world);
    Connection& c = timed.connect({refusing(timed.world), refusing(timed.world), answering.endpoint()});
    c.stream.start_read();
    c.write("early");
    timed.world.run_until([&] { return c.events.count(Event::open) == 1; });  // no time has passed
    CHECK(c.stream.peer_endpoint() == answering.endpoint());
    c.peer = Peer(answering.accept());
    c.peer.send("hello");
    timed.world.run_until([&] { return c.peer.received == "early" && c.events.received == "hello"; });
    CHECK(c.events.count(Event::open) == 1);
    CHECK(c.writes.complete_and_in_order());
  });
}

TEST_CASE("an address that does not answer is followed by the next after the delay, not before") {
  for_each_timed_tcp([](TimedWorld& timed) {
    const Silent silent(timed.world);
    const Answering answering(timed.world);
    const std::size_t before = timed.world.open_descriptors();
    Connection& c = timed.connect({silent.endpoint(), answering.endpoint()});
    timed.world.settle();
    timed.pass(kDelay - kTick);
    CHECK(c.events.events.empty());
    CHECK_FALSE(answering.accept());
    timed.pass(2 * kTick);
    timed.world.run_until([&] { return c.events.count(Event::open) == 1; });
    CHECK(c.stream.peer_endpoint() == answering.endpoint());
    const Socket peer = answering.accept();
    REQUIRE(peer);
    timed.world.settle();
    CHECK(timed.world.open_descriptors() ==
          before + 2);  // the stream's and its peer's: the other attempt has gone
  });
}

TEST_CASE(
    "a failure while an older attempt waits starts the next one; the last failure waits for the older") {
  for_each_timed_tcp([](TimedWorld& timed) {
    const Silent silent(timed.world);
    const Answering answering(timed.world);
    Connection& c = timed.connect({silent.endpoint(), refusing(timed.world), answering.endpoint()});
    Connection& waits = timed.connect({silent.endpoint(), refusing(timed.world)});
    timed.world.settle();
    timed.pass(kDelay + kTick);
    timed.world.run_until([&] { return c.events.count(Event::open) == 1; });
    timed.world.settle();
    CHECK(waits.events.events.empty());
    timed.pass(std::chrono::seconds(10));
    timed.world.run_until([&] { return waits.events.closed(); });
    CHECK(waits.events.closed_error == errc::timed_out);
  });
}

TEST_CASE("when all addresses fail, the writes fail and on_closed says the last error") {
  for_each_timed([](TimedWorld& timed) {
    Connection& c = timed.connect({refusing(timed.world), refusing(timed.world), refusing(timed.world)});
    c.write("queued");
    timed.world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.events == std::vector{Event::closed});
    CHECK(c.events.closed_error.category() == std::system_category());
    if (!timed.world.is_unix()) CHECK(c.events.closed_error == std::errc::connection_refused);
    CHECK(c.writes.entries.at(0).error == c.events.closed_error);
    CHECK(c.events.unsent == "queued");
  });
}

TEST_CASE("that there is no way to an address is told only when there was no other answer") {
  const test::LogCapture quiet;
  for_each_kernel_transport_name([](const Mode& mode) {
    TimedWorld timed(mode);
    StreamOptions options;
    options.local_address = Endpoint::parse("127.0.0.1:0").value();  // no IPv6 then
    const Endpoint other_family = Endpoint::parse("[::1]:1").value();
    Connection& c = timed.connect({refusing(timed.world), other_family}, options);
    Connection& none = timed.connect({other_family, other_family}, options);
    timed.world.run_until([&] { return c.events.closed() && none.events.closed(); });
    CHECK(c.events.closed_error == std::errc::connection_refused);
    CHECK(none.events.closed_error);
    CHECK(none.events.closed_error != std::errc::connection_refused);
  });
}

TEST_CASE("the connect timeout is for all addresses together") {
  for_each_timed_tcp([](TimedWorld& timed) {
    const Silent silent(timed.world);
    const std::size_t before = timed.world.open_descriptors();
    Connection& c = timed.connect(Endpoints(8, silent.endpoint()));
    c.write("queued");
    timed.world.settle();
    for (int i = 0; i < 9; ++i) timed.pass(std::chrono::seconds(1));
    CHECK(c.events.events.empty());
    CHECK(timed.world.open_descriptors() == before + 8);
    timed.pass(std::chrono::seconds(1) + kTick);
    timed.world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error == errc::timed_out);
    CHECK(c.writes.entries.at(0).error == errc::timed_out);
    CHECK(timed.world.open_descriptors() == before);
  });
}

TEST_CASE("abort, close and destruction between two attempts leave nothing behind") {
  for_each_timed_tcp([](TimedWorld& timed) {
    const Silent silent(timed.world);
    const Answering answering(timed.world);
    const std::size_t before = timed.world.open_descriptors();
    const Endpoints endpoints{silent.endpoint(), silent.endpoint(), silent.endpoint(), answering.endpoint()};
    Connection& aborted = timed.connect(endpoints);
    Connection& closed = timed.connect(endpoints);
    Connection& destroyed = timed.connect(endpoints);
    for (Connection* c : {&aborted, &closed, &destroyed}) c->write("queued");
    timed.world.settle();
    timed.pass(kDelay + kTick);
    CHECK(timed.world.open_descriptors() == before + 6);
    aborted.stream.abort();
    closed.stream.close(std::chrono::milliseconds(1));
    destroyed.stream = Stream();
    timed.world.settle();
    timed.pass(kTick);
    timed.world.run_until([&] {
      return aborted.events.closed() && closed.events.closed() && !destroyed.writes.entries.empty();
    });
    CHECK(aborted.events.closed_error == errc::aborted);
    CHECK(closed.events.closed_error == errc::timed_out);
    CHECK(destroyed.events.events.empty());
    CHECK(aborted.writes.entries.at(0).error == errc::cancelled);
    CHECK(destroyed.writes.entries.at(0).error == errc::cancelled);
    CHECK(timed.world.open_descriptors() == before);
    timed.pass(kDelay * 4);
    CHECK_FALSE(answering.accept());
  });
}

TEST_CASE("close while several addresses are tried sends what is queued to the one that answers") {
  for_each_timed([](TimedWorld& timed) {
    const Answering answering(timed.world);
    Connection& c = timed.connect({refusing(timed.world), answering.endpoint()});
    c.write("all of it");
    c.stream.close();
    timed.world.run_until([&] { return c.writes.complete_and_in_order(); });
    c.peer = Peer(answering.accept());
    timed.world.run_until([&] { return c.peer.ended; });
    CHECK(c.peer.received == "all of it");
    c.peer.close();
    timed.world.run_until([&] { return c.events.closed(); });
    CHECK_FALSE(c.events.closed_error);
  });
}

TEST_CASE("a loop that stops between two attempts completes everything") {
  for_each_timed_tcp([](TimedWorld& timed) {
    const Silent silent(timed.world);
    Connection& c = timed.connect({silent.endpoint(), silent.endpoint(), silent.endpoint()});
    c.write("queued");
    timed.world.settle();
    timed.pass(kDelay + kTick);
    timed.world.loop().stop();
    timed.world.run();
    CHECK(c.events.events == std::vector{Event::closed});
    CHECK(c.events.closed_error == errc::aborted);
    CHECK(c.writes.entries.at(0).error == errc::cancelled);
    CHECK(timed.world.loop().engine().idle());
  });
}

TEST_CASE("no address, and too many, are reported by on_closed") {
  const test::LogCapture log;
  for_each_timed([](TimedWorld& timed) {
    const Answering answering(timed.world);
    Connection& none = timed.connect({});
    Connection& too_many = timed.connect(Endpoints(Transport::kEndpointsMost + 1, answering.endpoint()));
    Connection& most = timed.connect(Endpoints(Transport::kEndpointsMost, answering.endpoint()));
    Connection& empty_first = timed.connect({Endpoint(), answering.endpoint()});
    none.write("x");
    CHECK(none.events.events.empty());
    timed.world.run_until([&] { return none.events.closed() && too_many.events.closed(); });
    CHECK(none.events.closed_error == errc::invalid_argument);
    CHECK(none.writes.entries.at(0).error == errc::invalid_argument);
    CHECK(too_many.events.closed_error == errc::limit_exceeded);
    timed.world.run_until(
        [&] { return most.events.count(Event::open) == 1 && empty_first.events.count(Event::open) == 1; });
  });
  CHECK(log.contains("65 addresses are more than 64 (Transport::kEndpointsMost)"));
}

TEST_CASE("a unix path that is not there is followed by TCP, and by the other family") {
  for_each_kernel_transport_name([](const Mode& mode) {
    TimedWorld timed(mode);
    World six({mode.transport, Family::tcp6});
    World paths({mode.transport, Family::unix_path});
    const Answering answering(six);
    Connection& c = timed.connect({refusing(paths), refusing(timed.world), answering.endpoint()});
    std::vector<Socket> none;
    none.emplace_back(::dup(0));
    c.stream.write(chain_of("x"), std::move(none), c.writes.next());
    timed.world.run_until([&] { return c.events.count(Event::open) == 1; });
    CHECK(c.stream.peer_endpoint() == answering.endpoint());
    CHECK(c.writes.entries.at(0).error == errc::unavailable);  // what answers may be no unix socket
  });
}

TEST_CASE("descriptors that are written while unix paths are tried go to the one that answers") {
  for_each_kernel_transport_name([](const Mode& mode) {
    TimedWorld timed(Mode{mode.transport, Family::unix_path});
    const Answering answering(timed.world);
    Connection& c = timed.connect({refusing(timed.world), answering.endpoint()});
    std::vector<Socket> one;
    one.emplace_back(::dup(0));
    c.stream.write(chain_of("x"), std::move(one), c.writes.next());
    timed.world.run_until([&] { return !c.writes.entries.empty(); });
    CHECK_FALSE(c.writes.entries.at(0).error);
  });
}

}  // namespace linkspan::conformance
