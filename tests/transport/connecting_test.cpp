// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about connecting and listening.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <utility>
#include <vector>

#include "linkspan/base/log.hpp"
#include "tests/transport/harness.hpp"

namespace linkspan::conformance {
namespace {

Endpoint endpoint_that_refuses(World& world) {
  return local_endpoint(world.raw_listener());  // closed again
}

}  // namespace

TEST_CASE("connecting: on_open first, writes queue until then, data goes both ways") {
  for_each_mode([](World& world) {
    const Socket listener = world.raw_listener();
    Connection& c = world.connect(local_endpoint(listener));
    c.stream.start_read();
    c.write("early");
    c.stream.flush();
    CHECK(c.events.events.empty());
    world.accept_raw(listener, c);
    CHECK(c.events.events.front() == Event::open);
    c.peer.send("hello");
    world.run_until([&] { return c.peer.received == "early" && c.events.received == "hello"; });
    CHECK(c.events.count(Event::open) == 1);
  });
}

TEST_CASE("a refused connection: queued writes fail, then on_closed with the system's error; no on_open") {
  for_each_mode([](World& world) {
    Connection& c = world.connect(endpoint_that_refuses(world));
    c.write("queued");
    c.write(Chain());
    CHECK(c.events.events.empty());
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.events == std::vector{Event::closed});
    if (world.is_unix()) {
      CHECK((c.events.closed_error == std::errc::connection_refused ||
             c.events.closed_error == std::errc::no_such_file_or_directory));
    } else {
      CHECK(c.events.closed_error == std::errc::connection_refused);
    }
    REQUIRE(c.writes.complete_and_in_order());
    for (const WriteLog::Entry& entry : c.writes.entries) CHECK(entry.error == c.events.closed_error);
    CHECK(c.events.unsent == "queued");
    world.check_quiet();
  });
}

TEST_CASE("an address that never answers: the connect timeout ends it") {
  for_each_mode([](World& world) {
    const FullListener full(world);
    StreamOptions options;
    options.connect_timeout = std::chrono::milliseconds(30);
    Connection& c = world.connect(full.endpoint, options);
    c.write("queued");
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.events == std::vector{Event::closed});
    if (!world.is_unix()) CHECK(c.events.closed_error == errc::timed_out);
    CHECK(c.writes.entries.at(0).error == c.events.closed_error);
    world.check_quiet();
  });
}

TEST_CASE("close while connecting keeps its own deadline; abort ends at once") {
  for_each_mode([](World& world) {
    if (world.is_unix()) return;  // unix sockets connect, or fail, at once
    const FullListener full(world);
    StreamOptions options;
    options.connect_timeout = std::chrono::hours(1);
    for (const bool started : {false, true}) {
      CAPTURE(started);
      Connection& closed = world.connect(full.endpoint, options);
      Connection& aborted = world.connect(full.endpoint, options);
      if (started) world.settle();
      closed.write("queued");
      aborted.write("queued");
      closed.stream.close(std::chrono::milliseconds(30));
      aborted.stream.abort();
      world.run_until([&] { return closed.events.closed() && aborted.events.closed(); });
      CHECK(closed.events.closed_error == errc::timed_out);
      CHECK(aborted.events.closed_error == errc::aborted);
      CHECK(closed.writes.complete_and_in_order());
      CHECK(aborted.writes.entries.at(0).error == errc::cancelled);
      CHECK(aborted.events.count(Event::open) == 0);
    }
  });
}

TEST_CASE("close while connecting sends what is queued once the connection is there") {
  for_each_mode([](World& world) {
    const Socket listener = world.raw_listener();
    Connection& c = world.connect(local_endpoint(listener));
    c.write("all of it");
    c.stream.close();
    world.run_until([&] { return c.writes.complete_and_in_order(); });
    c.peer = Peer(world.raw_accept(listener));
    world.run_until([&] { return c.peer.ended; });
    CHECK(c.peer.received == "all of it");
    c.peer.close();
    world.run_until([&] { return c.events.closed(); });
    CHECK_FALSE(c.events.closed_error);
  });
}

TEST_CASE("no address and no socket are reported by on_closed, not inside the call") {
  for_each_transport([](World& world) {
    Connection& c = world.connect(Endpoint());
    Recorder no_socket;
    const Stream stream = world.transport().open(Socket(), {}, no_socket);
    CHECK(c.events.events.empty());
    CHECK(no_socket.events.empty());
    c.write("x");
    world.run_until([&] { return c.events.closed() && no_socket.closed(); });
    CHECK(c.events.closed_error == errc::invalid_argument);
    CHECK(c.writes.entries.at(0).error == errc::invalid_argument);
    CHECK(no_socket.closed_error == errc::invalid_argument);
  });
}

TEST_CASE("a listener accepts all that connect and names its real address") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    const Endpoint endpoint = listener.local_endpoint();
    if (!world.is_unix()) CHECK(endpoint.port() != 0);
    std::vector<Socket> clients;
    for (int i = 0; i < 200; ++i) clients.push_back(world.raw_connect(endpoint));
    world.run_until([&] { return acceptor.sockets.size() == 200; });

    Recorder events;
    Stream stream = world.transport().open(std::move(acceptor.sockets[0]), {}, events);
    stream.start_read();
    raw_send(clients[0], "hi");
    world.run_until([&] { return events.received == "hi"; });
    CHECK(stream.local_endpoint() == endpoint);
    world.check_quiet();
  });
}

TEST_CASE("a closed listener accepts no more, and connecting to it is refused") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    const Endpoint endpoint = listener.local_endpoint();
    world.settle();
    const Socket client = world.raw_connect(endpoint);
    listener.close();
    listener.close();
    CHECK_FALSE(listener);
    CHECK(listener.local_endpoint() == Endpoint());
    world.settle();
    CHECK(acceptor.sockets.empty());
    Connection& c = world.connect(endpoint);
    world.run_until([&] { return c.events.closed(); });
    CHECK(c.events.closed_error);
  });
}

TEST_CASE("when a listener is closed its address is free at once") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    std::vector<Endpoint> endpoints{world.free_endpoint()};
    if (world.is_unix() && !world.mode().is_sim()) {
      endpoints.push_back(Endpoint::parse("unix:@linkspan-free-at-once").value());
    }
    for (Endpoint endpoint : endpoints) {
      Listener listener = world.transport().listen(endpoint, {}, acceptor).value_or_throw();
      endpoint = listener.local_endpoint();
      const auto close_and_listen_again = [&] {
        listener.close();
        Result<Listener> again = world.transport().listen(endpoint, {}, acceptor);
        REQUIRE(again.ok());
        listener = std::move(again).value();
      };
      close_and_listen_again();  // in the tick in which it was opened
      for (int i = 0; i < 3; ++i) {
        world.settle();
        close_and_listen_again();
      }
      bool again = false;
      acceptor.during = [&] {
        if (!std::exchange(again, true)) close_and_listen_again();
      };
      const Socket first = world.raw_connect(endpoint);
      world.run_until([&] { return again; });
      acceptor.during = nullptr;
      const std::size_t accepted = acceptor.sockets.size();
      const Socket second = world.raw_connect(endpoint);
      world.run_until([&] { return acceptor.sockets.size() == accepted + 1; });
      world.check_quiet();
    }
  });
}

TEST_CASE("a listener may be closed or destroyed inside on_accept") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    acceptor.during = [&] { listener = Listener(); };
    const Endpoint endpoint = listener.local_endpoint();
    std::vector<Socket> clients;
    for (int i = 0; i < 5; ++i) clients.push_back(world.raw_connect(endpoint));
    world.run_until([&] { return !acceptor.sockets.empty(); });
    world.settle();
    CHECK(acceptor.sockets.size() == 1);
  });
}

TEST_CASE("a peer that resets before it is accepted does not stop the listener") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    const Endpoint endpoint = listener.local_endpoint();
    for (int i = 0; i < 3; ++i) Peer(world.raw_connect(endpoint)).reset();
    const Socket client = world.raw_connect(endpoint);
    raw_send(client, "alive");
    std::deque<Recorder> streams_events;
    std::vector<Stream> streams;
    world.run_until([&] {
      for (Socket& socket : std::exchange(acceptor.sockets, {})) {
        streams.push_back(world.transport().open(std::move(socket), {}, streams_events.emplace_back()));
        streams.back().start_read();
      }
      for (const Recorder& events : streams_events) {
        if (events.received == "alive") return true;
      }
      return false;
    });
    CHECK(acceptor.errors.empty());
  });
}

TEST_CASE("a connection that is reset before it is opened is open, then lost") {
  for_each_mode([](World& world) {
    if (world.is_unix()) return;  // knows no reset of a connection without unread data
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    Peer peer(world.raw_connect(listener.local_endpoint()));
    world.run_until([&] { return acceptor.sockets.size() == 1; });
    peer.reset();
    Recorder events;
    const Stream stream = world.transport().open(std::move(acceptor.sockets[0]), {}, events);
    world.run_until([&] { return events.closed(); });
    CHECK(events.events == std::vector{Event::open, Event::write_closed, Event::closed});
    CHECK(events.closed_error == errc::connection_lost);
  });
}

TEST_CASE("an address in use is an error that names it") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    const Endpoint endpoint = listener.local_endpoint();
    const Result<Listener> second = world.transport().listen(endpoint, {}, acceptor);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == std::errc::address_in_use);
    CHECK(second.error().message().find(endpoint.to_string()) != std::string::npos);
    world.settle();
    // Finding out whether somebody listens must not disturb the one that does.
    const Socket client = world.raw_connect(endpoint);
    world.run_until([&] { return !acceptor.sockets.empty(); });
  });
}

TEST_CASE("a unix path that nobody listens on any more is taken over, and removed at close") {
  for_each_kernel_transport_name([](const Mode& mode) {
    World world({mode.transport, Family::unix_path});
    const Endpoint stale = endpoint_that_refuses(world);
    REQUIRE(::access(stale.unix_path().c_str(), F_OK) == 0);
    Acceptor acceptor;
    Listener listener = world.transport().listen(stale, {}, acceptor).value_or_throw();
    const Socket client = world.raw_connect(stale);
    world.run_until([&] { return acceptor.sockets.size() == 1; });
    listener.close();
    CHECK(::access(stale.unix_path().c_str(), F_OK) != 0);
  });
}

TEST_CASE("a file that is no socket is never removed to listen at its path") {
  for_each_kernel_transport_name([](const Mode& mode) {
    World world({mode.transport, Family::unix_path});
    const Endpoint endpoint = world.free_endpoint();
    std::ofstream(endpoint.unix_path()) << "precious";
    Acceptor acceptor;
    const Result<Listener> listener = world.transport().listen(endpoint, {}, acceptor);
    REQUIRE_FALSE(listener.ok());
    CHECK(listener.error().code == std::errc::address_in_use);
    std::string text;
    std::ifstream(endpoint.unix_path()) >> text;
    CHECK(text == "precious");
  });
}

TEST_CASE("an abstract unix address needs no file") {
  for_each_transport_name([](const Mode& mode) {
    World world({mode.transport, Family::unix_path});
    const Endpoint endpoint =
        Endpoint::parse("unix:@linkspan-" + mode.transport + "-" + std::to_string(::getpid())).value();
    Acceptor acceptor;
    Listener listener = world.transport().listen(endpoint, {}, acceptor).value_or_throw();
    CHECK(listener.local_endpoint() == endpoint);
    const Socket client = world.raw_connect(endpoint);
    world.run_until([&] { return acceptor.sockets.size() == 1; });
  });
}

namespace {

// No descriptor can be opened from now on. Returns the limit that was there.
rlimit take_all_descriptors() {
  const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
  ::close(next);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit low{static_cast<rlim_t>(next), limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  return limit;
}

}  // namespace

TEST_CASE("out of descriptors: connecting is an error of that stream alone, the first on its loop too") {
  for_each_kernel_mode_name([](const Mode& mode) {
    const ChildResult result = in_child([&] {
      set_log_level(LogLevel::off);
      World world(mode);
      const Endpoint endpoint = endpoint_that_refuses(world);
      const rlimit limit = take_all_descriptors();
      Connection& refused = world.connect(endpoint);
      world.run_until([&] { return refused.events.closed(); });
      REQUIRE(refused.events.closed_error == std::errc::too_many_files_open);
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
      Connection& next = world.connect(endpoint);
      world.run_until([&] { return next.events.closed(); });
      REQUIRE(next.events.closed_error != std::errc::too_many_files_open);
    });
    CHECK(result.signal == 0);
    CHECK(result.exit_code == 0);
  });
}

TEST_CASE(
    "out of descriptors: the listener backs off without spinning, then accepts; no connection is lost") {
  for_each_kernel_mode_name([](const Mode& mode) {
    const ChildResult result = in_child([&] {
      set_log_level(LogLevel::off);
      World world(mode);
      Acceptor acceptor;
      Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
      std::vector<Socket> clients;
      for (int i = 0; i < 3; ++i) clients.push_back(world.raw_connect(listener.local_endpoint()));
      const rlimit limit = take_all_descriptors();
      world.run_until([&] { return !acceptor.errors.empty(); });
      REQUIRE(acceptor.errors[0] == std::errc::too_many_files_open);
      REQUIRE(acceptor.sockets.empty());
      const std::uint64_t before = world.loop().counters().system_calls.get();
      world.run_until([&] { return acceptor.errors.size() == 3; });
      REQUIRE(world.loop().counters().system_calls.get() - before < 1000);
      REQUIRE(acceptor.sockets.empty());
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
      world.run_until([&] { return acceptor.sockets.size() == 3; });
    });
    CHECK(result.signal == 0);
    CHECK(result.exit_code == 0);
  });
}

}  // namespace linkspan::conformance
