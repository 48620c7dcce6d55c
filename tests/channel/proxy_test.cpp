// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Backpressure through two channels: the example's proxy between a source that is fast and a sink that stops.
#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "examples/proxy/proxy_handler.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/sanitized.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTotal = (kSanitized ? 64 : 1024) * kMiB;

// A listening socket of the system, and what was accepted on it.
struct Sink {
  int listener;
  Endpoint endpoint;

  Sink() : listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Endpoint any = loopback();
    REQUIRE(::bind(listener, any.address(), static_cast<socklen_t>(any.address_size())) == 0);
    REQUIRE(::listen(listener, 16) == 0);
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint = Endpoint(reinterpret_cast<sockaddr*>(&address), size);
  }
  ~Sink() { ::close(listener); }
  [[nodiscard]] int accept() const { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); }
};

// Byte `position` of what the source sends: a block whose period is no power of two.
const std::string& block() {
  static const std::string made = [] {
    std::string text(251 * 1024, '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>((i * 31 + i / 251) & 0xff);
    return text;
  }();
  return made;
}

// Sends the blocks until the socket has taken nothing for a while, and all the rest when told to.
struct Source {
  std::atomic<std::size_t> sent{0};

  void run(int descriptor, std::size_t total) {
    while (sent < total) {
      const std::size_t at = sent % block().size();
      const std::size_t size = std::min(block().size() - at, total - sent);
      const ssize_t count = ::send(descriptor, block().data() + at, size, MSG_NOSIGNAL);
      if (count <= 0) return;
      sent += static_cast<std::size_t>(count);
    }
    ::shutdown(descriptor, SHUT_WR);
  }
};

// Reads all, and says how much of it was what the source has sent.
std::size_t verified(int descriptor) {
  std::string part(block().size(), '\0');
  std::size_t good = 0;
  ssize_t got;
  while ((got = ::recv(descriptor, part.data(), part.size() - good % part.size(), 0)) > 0) {
    const auto size = static_cast<std::size_t>(got);
    if (std::string_view(part).substr(0, size) !=
        std::string_view(block()).substr(good % block().size(), size)) {
      break;
    }
    good += size;
  }
  return good;
}

// What the receive slots of a loop hold. io_uring has two rings of blocks, of at most these sizes together;
// what they have received when reading is paused is kept, while fresh blocks stand in their place already.
std::size_t receive_slot_bytes(EventLoop& loop) {
  constexpr std::size_t kRings = (std::size_t{8} << 20) + (512 << 10);
  return loop.engine().name() == "io_uring" ? 2 * kRings : 0;
}

}  // namespace

TEST_CASE("a proxy holds no more than its marks say while its sink does not read, and loses nothing") {
  on_every_transport(1, [](LoopGroup& loops) {
    EventLoop& loop = *loops.loops().front();
    const Sink sink;
    ServerOptions options;
    options.endpoint = loopback();
    options.initializer = [&](Channel& channel) {
      return examples::ProxySide::accept(channel, sink.endpoint, ChannelOptions());
    };
    const Server server = Server::start(loops, options).value_or_throw();
    const int from = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const Endpoint to = server.local_endpoint();
    REQUIRE(::connect(from, to.address(), static_cast<socklen_t>(to.address_size())) == 0);
    const int into = sink.accept();
    Source source;
    std::thread sender([&] { source.run(from, kTotal); });

    // The sink stands still until the source does: nothing is sent in 50 looks.
    for (std::size_t last = 0, same = 0; same < 50;) {
      ::poll(nullptr, 0, 2);
      const std::size_t now = source.sent;
      same = now == last && now != 0 ? same + 1 : 0;
      last = now;
    }
    CHECK(source.sent < kTotal);
    CHECK(verified(into) == kTotal);
    sender.join();
    ::shutdown(into, SHUT_WR);  // the other direction ends, too
    char byte;
    CHECK(::recv(from, &byte, 1, 0) == 0);

    // One direction carries data; the other one has nothing but what its receives stand ready with.
    constexpr std::size_t kRead = 256 << 10;
    const std::size_t bound = Watermarks().high_bytes + kRead + receive_slot_bytes(loop);
    const std::size_t high_water = loop.pool().statistics().high_water_bytes;
    MESSAGE(loop.engine().name() << ": the pool's high water is " << high_water << " of " << bound);
    CHECK(high_water <= bound);
    ::close(from);
    ::close(into);
  });
}

TEST_CASE("a proxy passes on a reset, and a target that nobody listens at") {
  on_every_transport(1, [](LoopGroup& loops) {
    auto sink = std::make_unique<Sink>();
    ServerOptions options;
    options.endpoint = loopback();
    const Endpoint target = sink->endpoint;
    options.initializer = [&](Channel& channel) {
      return examples::ProxySide::accept(channel, target, ChannelOptions());
    };
    const Server server = Server::start(loops, options).value_or_throw();
    {
      test::Peer peer(server.local_endpoint());
      test::Peer far(sink->accept());
      peer.send("hello");
      CHECK(far.receive(5) == "hello");
      far.send("there");
      CHECK(peer.receive(5) == "there");
      far.reset();
      bool clean = true;
      CHECK(peer.receive_all(&clean).empty());
      CHECK_FALSE(clean);
    }
    sink.reset();
    test::Peer peer(server.local_endpoint());
    bool clean = true;
    CHECK(peer.receive_all(&clean).empty());
    CHECK_FALSE(clean);
  });
}
