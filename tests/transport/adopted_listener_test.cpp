// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What every transport promises about listening sockets that were made elsewhere.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/transport/harness.hpp"

namespace linkspan::conformance {

TEST_CASE("a socket that listens already is taken over, with the connections that wait in it") {
  for_each_mode([](World& world) {
    Socket made_elsewhere = world.raw_listener();
    const int descriptor = made_elsewhere.descriptor();
    const Endpoint endpoint = local_endpoint(made_elsewhere);
    const bool is_sim = world.mode().is_sim();  // whose sockets are no descriptors of the process, nor files
    if (!is_sim) REQUIRE(::fcntl(descriptor, F_SETFD, 0) == 0);
    const Socket early = world.raw_connect(endpoint);
    Acceptor acceptor;
    Listener listener = world.transport().listen(std::move(made_elsewhere), acceptor).value_or_throw();
    CHECK(acceptor.sockets.empty());
    CHECK(listener.local_endpoint() == endpoint);
    if (!is_sim) CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    const Socket late = world.raw_connect(endpoint);
    world.run_until([&] { return acceptor.sockets.size() == 2; });

    Recorder events;
    Stream stream = world.transport().open(std::move(acceptor.sockets[0]), {}, events);
    stream.start_read();
    raw_send(early, "hi");
    world.run_until([&] { return events.received == "hi"; });
    world.check_quiet();

    listener.close();
    world.settle();
    Connection& refused = world.connect(endpoint);
    world.run_until([&] { return refused.events.closed(); });
    CHECK(refused.events.closed_error == std::errc::connection_refused);
    // The path belongs to whoever made the socket.
    if (world.is_unix() && !is_sim) CHECK(::access(endpoint.unix_path().c_str(), F_OK) == 0);
  });
}

TEST_CASE("what is no listening stream socket is refused with what was expected, and closed") {
  for_each_kernel_transport([](World& world) {
    Acceptor acceptor;
    const auto refusal = [&](Socket socket) {
      const int descriptor = socket.descriptor();
      const Result<Listener> listener = world.transport().listen(std::move(socket), acceptor);
      REQUIRE_FALSE(listener.ok());
      CHECK(listener.error().code == errc::invalid_argument);
      if (descriptor >= 0) CHECK(::fcntl(descriptor, F_GETFD) == -1);
      return listener.error().message();
    };
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const Socket other_end(ends[1]);
    CHECK(refusal(Socket()) == "a listener needs a socket");
    CHECK(refusal(Socket(ends[0])) == "a listener needs a socket");
    CHECK(refusal(Socket(::socket(AF_INET, SOCK_DGRAM, 0))) == "a listener needs a stream socket");
    CHECK(refusal(Socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0))) == "a listener needs a stream socket");
    const std::string not_listening = "a listener needs a socket that listens: listen() was not called on it";
    CHECK(refusal(Socket(::socket(AF_INET, SOCK_STREAM, 0))) == not_listening);
    const Socket listening = world.raw_listener();
    CHECK(refusal(world.raw_connect(local_endpoint(listening))) == not_listening);
  });
}

TEST_CASE("a loop that stops takes over no listening socket") {
  for_each_transport([](World& world) {
    Acceptor acceptor;
    world.loop().stop();
    world.run();
    const Result<Listener> late = world.transport().listen(world.raw_listener(), acceptor);
    REQUIRE_FALSE(late.ok());
    CHECK(late.error().code == errc::stopped);
  });
}

TEST_CASE("listeners share an address when all of them ask for it, and all accept") {
  for_each_mode([](World& world) {
    if (world.is_unix()) return;  // has no reuse_port
    ListenOptions options;
    options.socket.reuse_port = true;
    Acceptor first;
    Acceptor second;
    const Listener one = world.transport().listen(world.free_endpoint(), options, first).value_or_throw();
    const Endpoint endpoint = one.local_endpoint();
    const Listener two = world.transport().listen(endpoint, options, second).value_or_throw();
    CHECK(two.local_endpoint() == endpoint);
    std::vector<Socket> clients;
    // The system chooses by a hash of the addresses.
    world.run_until([&] {
      if (clients.size() < 1000) clients.push_back(world.raw_connect(endpoint));
      return !first.sockets.empty() && !second.sockets.empty();
    });
    CHECK_FALSE(world.transport().listen(endpoint, {}, first).ok());
  });
}

TEST_CASE("a stream says both addresses once it is open, and its peer's after a reset too") {
  for_each_mode([](World& world) {
    Acceptor acceptor;
    Listener listener = world.transport().listen(world.free_endpoint(), {}, acceptor).value_or_throw();
    const Endpoint endpoint = listener.local_endpoint();
    Connection& near = world.connect(endpoint);
    CHECK(near.stream.local_endpoint() == Endpoint());
    CHECK(near.stream.peer_endpoint() == Endpoint());
    world.run_until([&] { return near.events.count(Event::open) == 1 && acceptor.sockets.size() == 1; });
    Recorder events;
    Stream far = world.transport().open(std::move(acceptor.sockets[0]), {}, events);
    const Endpoint near_address = near.stream.local_endpoint();
    CHECK(near.stream.peer_endpoint() == endpoint);
    CHECK(far.local_endpoint() == endpoint);
    CHECK(far.peer_endpoint() == near_address);
    if (!world.is_unix()) CHECK(near_address.port() != 0);

    // Unread data keep the broken stream open.
    near.write("unread");
    world.run_until([&] { return near.writes.complete_and_in_order(); });
    Endpoint peer_at_break;
    events.during = [&](Event event) {
      if (event == Event::write_closed) peer_at_break = far.peer_endpoint();
    };
    near.stream.abort();
    if (world.is_unix()) {  // knows no reset without unread data on the other side
      world.run_until([&] { return near.events.closed(); });
      world.settle();
    } else {
      world.run_until([&] { return events.count(Event::write_closed) == 1; });
      CHECK(peer_at_break == near_address);
    }
    CHECK(far.peer_endpoint() == near_address);
    CHECK(far.local_endpoint() == endpoint);
  });
}

}  // namespace linkspan::conformance
