// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a simulated network does besides what every transport promises: hosts, time, faults, and runs that
// repeat.
#include "linkspan/transport/sim_network.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <deque>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/transport/resolution.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan {

using conformance::Acceptor;
using conformance::chain_of;
using conformance::Event;
using conformance::pattern;
using conformance::Recorder;
using conformance::WriteLog;

namespace {

constexpr Duration kLong = std::chrono::hours(1);

/// Two hosts, of which the second listens, and what is accepted there.
struct TwoHosts {
  explicit TwoHosts(const SimOptions& options = {}) : network(options) {
    listener = server().listen(endpoint, {}, acceptor).value_or_throw();
  }
  ~TwoHosts() {
    // What a test does in callbacks uses its variables.
    for (Recorder& events : recorders) events.during = nullptr;
  }

  [[nodiscard]] Transport& client() { return Transport::of(*client_loop); }
  [[nodiscard]] Transport& server() { return Transport::of(*server_loop); }

  /// Both ends of a connection, which read.
  struct Pair {
    Stream near;
    Recorder& near_events;
    Stream far;
    Recorder& far_events;
  };
  Pair connect() {
    Recorder& near_events = recorders.emplace_back();
    Stream near = client().connect(endpoint, {}, near_events);
    REQUIRE(network.run_until([&] { return !acceptor.sockets.empty() && !near_events.events.empty(); }));
    Recorder& far_events = recorders.emplace_back();
    Stream far = server().open(std::move(acceptor.sockets.back()), {}, far_events);
    acceptor.sockets.pop_back();
    near.start_read();
    far.start_read();
    return {std::move(near), near_events, std::move(far), far_events};
  }

  SimNetwork network;
  SimHost& near_host = network.add_host("near", {"10.0.0.1", "fd00::1"});
  SimHost& far_host = network.add_host("far", {"10.0.0.2", "fd00::2"});
  std::deque<Recorder> recorders;
  Acceptor acceptor;
  std::unique_ptr<EventLoop> client_loop = near_host.make_loop().value_or_throw();
  std::unique_ptr<EventLoop> server_loop = far_host.make_loop().value_or_throw();
  Endpoint endpoint = Endpoint::parse("10.0.0.2:7000").value();
  Listener listener;
};

std::uint64_t hash_of_a_run(std::uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  TwoHosts hosts(options);
  TwoHosts::Pair pair = hosts.connect();
  pair.near.write(chain_of(pattern(500'000)));
  pair.near.close();
  pair.far.write(chain_of("answer"));
  pair.far.shutdown_write();
  REQUIRE(hosts.network.run_until([&] { return pair.near_events.closed() && pair.far_events.closed(); }));
  CHECK((pair.far_events.received == pattern(500'000)));
  return hosts.network.event_hash();
}

class EchoService final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

class AskService final : public Service<Chain> {
 public:
  explicit AskService(std::string& answer) noexcept : answer_(answer) {}
  void on_active() override { write(Chain(Slice::copy("hello"))); }
  void on_read(Chain&& data) override { answer_ += data.to_string(); }
  void on_inactive(std::error_code error) override { answer_ += " (" + error.message() + ")"; }

 private:
  std::string& answer_;
};

}  // namespace

TEST_CASE("a server and a client on simulated hosts: a partition heals, and then one host is killed") {
  SimOptions options;
  options.seed = 42;  // decides everything that is left to chance
  SimNetwork network(options);
  SimHost& here = network.add_host("here", {"10.0.0.1"});
  SimHost& there = network.add_host("there", {"10.0.0.2"});
  const std::unique_ptr<EventLoop> client_loop = here.make_loop().value_or_throw();
  const std::unique_ptr<EventLoop> server_loop = there.make_loop().value_or_throw();

  ServerOptions server_options;
  server_options.endpoint = Endpoint::parse("10.0.0.2:80").value_or_throw();
  server_options.initializer = [](Channel& channel) { return channel.pipeline().append<EchoService>(); };
  const Server server = Server::start(*server_loop, server_options).value_or_throw();

  std::string answer;
  const Client client(*client_loop, [&](Channel& channel) {
    return channel.pipeline().append(std::make_unique<AskService>(answer));
  });
  network.partition(here, there);
  const ChannelRef channel = client.connect("there:80");
  network.run_for(std::chrono::seconds(5));  // of the network's time: at once
  CHECK(answer.empty());
  network.heal(here, there);
  CHECK(network.run_until([&] { return answer == "hello"; }));

  network.kill(there);
  channel.write(Chain(Slice::copy("still there?")));
  network.run_until([&] { return answer.ends_with(")"); });
  CHECK(answer == "hello (connection lost: Connection timed out)");
}

TEST_CASE("a seed decides the run: the same one repeats it event for event, another one does not") {
  const std::uint64_t one = hash_of_a_run(1);
  CHECK(hash_of_a_run(1) == one);
  CHECK(hash_of_a_run(2) != one);
}

TEST_CASE("time is virtual: hours pass at once, timers fire in order at their exact times") {
  SimNetwork network;
  const std::unique_ptr<EventLoop> a = network.add_host("a", {"10.0.0.1"}).make_loop().value_or_throw();
  const std::unique_ptr<EventLoop> b = network.add_host("b", {"10.0.0.2"}).make_loop().value_or_throw();
  std::string order;
  const TimePoint begin = network.now();
  TimePoint last;
  Timer late(*a, [&] {
    order += "late";
    last = network.now();
  });
  Timer early(*b, [&] { order += "early "; });
  late.start(std::chrono::hours(48));
  early.start(std::chrono::hours(24));
  while (network.step()) {
  }
  CHECK(order == "early late");
  CHECK(last - begin >= std::chrono::hours(48));
  CHECK(last - begin < std::chrono::hours(48) + std::chrono::milliseconds(2));
  network.run_for(std::chrono::hours(1));
  CHECK(network.now() - last >= std::chrono::hours(1));
}

TEST_CASE("a busy loop does not stop the time, nor another loop") {
  TwoHosts hosts;
  TwoHosts::Pair pair = hosts.connect();
  bool stop = false;
  std::function<void()> again = [&] {
    if (!stop) static_cast<void>(hosts.client_loop->post(again));
  };
  again();
  pair.far.write(chain_of("through"));
  CHECK(hosts.network.run_until([&] { return pair.near_events.received == "through"; }));
  stop = true;
}

TEST_CASE("what other loops and the test itself do reaches a loop that sleeps") {
  SimNetwork network;
  const std::unique_ptr<EventLoop> loop = network.add_host("a", {"10.0.0.1"}).make_loop().value_or_throw();
  while (network.step()) {
  }
  bool ran = false;
  CHECK(loop->post([&] { ran = true; }));
  CHECK(network.run_until([&] { return ran; }));
  bool fired = false;
  Timer timer(*loop, [&] { fired = true; });
  timer.start(kLong);
  CHECK(network.run_until([&] { return fired; }, 2 * kLong));
  loop->stop();
  while (network.step()) {
  }
  CHECK_FALSE(loop->post([] {}));
}

TEST_CASE("hosts have names; nothing leads to an address that no host has") {
  TwoHosts hosts;
  Resolver& resolver = hosts.network.environment().resolver;
  CHECK(resolver.resolve("far").value() == std::vector<std::string>{"10.0.0.2", "fd00::2"});
  CHECK_FALSE(resolver.resolve("nobody"));
  Recorder nowhere;
  const Stream stream = hosts.client().connect(Endpoint::parse("10.0.0.3:80").value(), {}, nowhere);
  CHECK(hosts.network.run_until([&] { return nowhere.closed(); }));
  CHECK(nowhere.closed_error == std::errc::network_unreachable);
  // Paths and ports are each host's own.
  Recorder own;
  const Stream other = hosts.client().connect(Endpoint::parse("127.0.0.1:7000").value(), {}, own);
  CHECK(hosts.network.run_until([&] { return own.closed(); }));
  CHECK(own.closed_error == std::errc::connection_refused);
}

TEST_CASE(
    "sockets of other hosts, networks or of the kernel are refused, and so are loops with other clocks") {
  TwoHosts hosts;
  Recorder near_events;
  const Stream near = hosts.client().connect(hosts.endpoint, {}, near_events);
  REQUIRE(hosts.network.run_until([&] { return !hosts.acceptor.sockets.empty(); }));
  Recorder stranger;
  const Stream stream = hosts.client().open(std::move(hosts.acceptor.sockets[0]), {}, stranger);
  Recorder real;
  const Stream real_stream = hosts.client().open(Socket(::dup(0)), {}, real);
  CHECK(hosts.network.run_until([&] { return stranger.closed() && real.closed(); }));
  CHECK(stranger.closed_error == errc::invalid_argument);
  CHECK(real.closed_error == errc::invalid_argument);
  CHECK(EventLoop::create(hosts.near_host.engine()).error().code == errc::invalid_argument);
  CHECK_FALSE(hosts.network.environment().threads.start("x", {}, [] {}));
}

TEST_CASE("a simulated unix socket passes simulated sockets of its host, and only those") {
  TwoHosts hosts;
  const Endpoint path = Endpoint::parse("unix:/run/passing").value();
  Acceptor acceptor;
  const Listener listener = hosts.client().listen(path, {}, acceptor).value_or_throw();
  Recorder giver_events;
  Stream giver = hosts.client().connect(path, {}, giver_events);
  Recorder remote_events;
  Stream remote = hosts.server().connect(Endpoint::parse("10.0.0.1:80").value(), {}, remote_events);
  Acceptor here;
  const Listener tcp =
      hosts.client().listen(Endpoint::parse("10.0.0.1:80").value(), {}, here).value_or_throw();
  Recorder other_way;
  const Stream outgoing = hosts.client().connect(hosts.endpoint, {}, other_way);
  REQUIRE(hosts.network.run_until([&] {
    return acceptor.sockets.size() == 1 && here.sockets.size() == 1 && hosts.acceptor.sockets.size() == 1;
  }));

  StreamOptions options;
  options.receive_descriptors = 1;
  Recorder taker_events;
  Stream taker = hosts.client().open(std::move(acceptor.sockets[0]), options, taker_events);
  taker.start_read();
  WriteLog writes;
  std::vector<Socket> passed;
  passed.push_back(std::move(here.sockets[0]));
  giver.write(chain_of("take it"), std::move(passed), writes.next());
  std::vector<Socket> foreign;
  foreign.push_back(std::move(hosts.acceptor.sockets[0]));  // of the other host
  giver.write(chain_of("never"), std::move(foreign), writes.next());
  REQUIRE(hosts.network.run_until(
      [&] { return taker_events.descriptors.size() == 1 && writes.complete_and_in_order(); }));
  CHECK_FALSE(writes.entries[0].error);
  CHECK(writes.entries[1].error == errc::invalid_argument);

  Recorder passed_events;
  Stream stream = hosts.client().open(std::move(taker_events.descriptors[0][0]), {}, passed_events);
  stream.start_read();
  remote.write(chain_of("hello"));
  CHECK(hosts.network.run_until([&] { return passed_events.received == "hello"; }));
}

TEST_CASE("a partition holds back what is sent, and nothing is lost when it heals in time") {
  TwoHosts hosts;
  TwoHosts::Pair pair = hosts.connect();
  const std::string sent = pattern(1'000'000);
  pair.near.write(chain_of(sent));
  hosts.network.run_for(std::chrono::microseconds(300));
  hosts.network.partition(hosts.near_host, hosts.far_host);
  const std::size_t before = pair.far_events.received.size();
  hosts.network.run_for(std::chrono::seconds(30));
  CHECK(pair.far_events.received.size() == before);
  CHECK(before < sent.size());
  hosts.network.heal(hosts.near_host, hosts.far_host);
  CHECK(hosts.network.run_until([&] { return pair.far_events.received.size() == sent.size(); }));
  CHECK((pair.far_events.received == sent));
}

TEST_CASE(
    "a partition that lasts loses the connection of whoever sends; one that only listens learns later") {
  TwoHosts hosts;
  TwoHosts::Pair pair = hosts.connect();
  hosts.network.partition(hosts.near_host, hosts.far_host);
  pair.near.write(chain_of("lost"));
  CHECK(hosts.network.run_until([&] { return pair.near_events.closed(); }));
  CHECK(pair.near_events.closed_error == errc::connection_lost);
  CHECK(pair.near_events.closed_error.value() == ETIMEDOUT);
  hosts.network.run_for(kLong);
  CHECK_FALSE(pair.far_events.closed());
  hosts.network.heal(hosts.near_host, hosts.far_host);
  pair.far.write(chain_of("anybody?"));
  CHECK(hosts.network.run_until([&] { return pair.far_events.closed(); }));
  CHECK(pair.far_events.closed_error.value() == ECONNRESET);
}

TEST_CASE("resets and refusals on demand") {
  TwoHosts hosts;
  TwoHosts::Pair pair = hosts.connect();
  const Endpoint near = pair.near.local_endpoint();
  const Endpoint far = pair.near.peer_endpoint();
  CHECK(far == hosts.endpoint);
  CHECK(hosts.network.reset(far, near));
  CHECK_FALSE(hosts.network.reset(near, far));
  CHECK(hosts.network.run_until([&] { return pair.near_events.closed() && pair.far_events.closed(); }));
  CHECK(pair.near_events.closed_error.value() == ECONNRESET);
  CHECK(pair.far_events.closed_error.value() == ECONNRESET);

  hosts.network.refuse(hosts.far_host);
  Recorder refused;
  const Stream stream = hosts.client().connect(hosts.endpoint, {}, refused);
  CHECK(hosts.network.run_until([&] { return refused.closed(); }));
  CHECK(refused.closed_error == std::errc::connection_refused);
  hosts.network.refuse(hosts.far_host, false);
  const TwoHosts::Pair again = hosts.connect();
}

TEST_CASE("a host that is killed says nothing; when it is back, it resets what it does not know") {
  TwoHosts hosts;
  TwoHosts::Pair quick = hosts.connect();
  TwoHosts::Pair slow = hosts.connect();
  hosts.network.kill(hosts.far_host);
  bool ran = false;
  static_cast<void>(hosts.server_loop->post([&] { ran = true; }));
  quick.near.write(chain_of("hello?"));
  hosts.network.run_for(std::chrono::seconds(20));
  CHECK_FALSE(quick.near_events.closed());
  CHECK_FALSE(ran);
  hosts.network.revive(hosts.far_host);
  CHECK(hosts.network.run_until([&] { return quick.near_events.closed(); }));
  CHECK(quick.near_events.closed_error.value() == ECONNRESET);
  CHECK_FALSE(slow.near_events.closed());

  // Its loop is gone for good, and still ends everything once.
  hosts.server_loop.reset();
  CHECK(slow.far_events.count(Event::closed) == 1);
  CHECK(quick.far_events.count(Event::closed) == 1);
  hosts.listener = Listener();
  hosts.server_loop = hosts.far_host.make_loop().value_or_throw();
  hosts.listener = hosts.server().listen(hosts.endpoint, {}, hosts.acceptor).value_or_throw();
  const TwoHosts::Pair again = hosts.connect();
}

TEST_CASE("latency and bandwidth take the time that they should") {
  SimOptions options;
  options.latency_min = options.latency_max = std::chrono::milliseconds(10);
  options.bytes_per_second = 1'000'000;
  TwoHosts hosts(options);
  TwoHosts::Pair pair = hosts.connect();
  const TimePoint begin = hosts.network.now();
  pair.near.write(chain_of(pattern(2'000'000)));
  CHECK(hosts.network.run_until([&] { return pair.far_events.received.size() == 2'000'000; }));
  const Duration taken = hosts.network.now() - begin;
  CHECK(taken >= std::chrono::milliseconds(2000));
  CHECK(taken <= std::chrono::milliseconds(2500));
}

TEST_CASE("chances break what they should") {
  SimOptions options;
  options.refused_connects = 1;
  TwoHosts refusing(options);
  Recorder refused;
  const Stream stream = refusing.client().connect(refusing.endpoint, {}, refused);
  CHECK(refusing.network.run_until([&] { return refused.closed(); }));
  CHECK(refused.closed_error == std::errc::connection_refused);

  options.refused_connects = 0;
  options.resets = 1;
  TwoHosts resetting(options);
  TwoHosts::Pair pair = resetting.connect();
  pair.near.write(chain_of("never"));
  CHECK(resetting.network.run_until([&] { return pair.near_events.closed() && pair.far_events.closed(); }));
  CHECK(pair.far_events.received.empty());
  CHECK(pair.near_events.closed_error == errc::connection_lost);
}

TEST_CASE("a loop that waits for what can never happen is ended with the reason") {
  const conformance::ChildResult child = conformance::in_child([] {
    SimNetwork network;
    const std::unique_ptr<EventLoop> loop = network.add_host("a", {"10.0.0.1"}).make_loop().value_or_throw();
    loop->run();
  });
  CHECK(child.signal == SIGABRT);
  CHECK(child.errors.find("can never happen") != std::string::npos);
}

TEST_CASE("a name that no simulated host has is an error that says so") {
  SimNetwork network;
  SimHost& host = network.add_host("here", {"10.0.0.1"});
  const std::unique_ptr<EventLoop> loop = host.make_loop().value_or_throw();
  std::error_code error;
  const Resolution lookup(*loop, "nowhere:80", [&](Result<std::vector<Endpoint>> endpoints) {
    if (!endpoints) error = endpoints.error().code;
  });
  CHECK(network.run_until([&] { return !lookup.active(); }));
  CHECK(error == errc::unresolved);
}

}  // namespace linkspan
