// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/server.hpp"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/channel/handlers.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

using Words = std::vector<std::string>;

class EchoBytes final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

// Puts what happens to a channel into a mailbox. Channels of several loops share it.
class Reporter : public Service<Chain> {
 public:
  explicit Reporter(Mailbox& mailbox) : mailbox_(mailbox) {}
  void on_active() override { mailbox_.put("active"); }
  void on_read(Chain&& data) override { mailbox_.put("read " + data.to_string()); }
  void on_inactive(std::error_code error) override { mailbox_.put("inactive " + error.message()); }

 protected:
  Mailbox& mailbox_;
};

ServerOptions options_with(ChannelInitializer initializer) {
  ServerOptions options;
  options.endpoint = loopback();
  options.initializer = std::move(initializer);
  return options;
}

ServerOptions echo_options() {
  return options_with([](Channel& channel) { return channel.pipeline().append<EchoBytes>(); });
}

// Sends messages above the high watermark while the channel is writable, then ends.
class Producer final : public Service<Chain> {
 public:
  static constexpr std::size_t kMessages = 50;
  static constexpr std::size_t kMessageBytes = 100 * 1024;

  void on_read(Chain&&) override { produce(); }
  void on_writable_changed(bool writable) override {
    if (writable) produce();
  }

 private:
  void produce() {
    while (left_ != 0 && channel().writable()) {
      write(Chain(Slice::adopt(std::string(kMessageBytes, 'm'))));
      if (--left_ == 0) channel().close();
    }
  }

  std::size_t left_ = kMessages;
};

}  // namespace

TEST_CASE("a producer that stops when a channel is not writable goes on, however soon that is over") {
  on_every_transport(1, [](LoopGroup& loops) {
    const auto options = options_with([](Channel& channel) { return channel.pipeline().append<Producer>(); });
    const Server server = Server::start(loops, options).value_or_throw();
    Peer peer(server.local_endpoint());
    peer.send("go");
    CHECK(peer.receive_all().size() == Producer::kMessages * Producer::kMessageBytes);
  });
}

TEST_CASE("a server echoes to many clients on several loops, and sends all before it ends") {
  on_every_transport(2, [](LoopGroup& loops) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    ServerOptions options = options_with([&](Channel& channel) {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      return channel.pipeline().append<EchoBytes>();
    });
    Server server = Server::start(loops, options).value_or_throw();
    std::vector<std::thread> clients;
    std::vector<std::string> received(4);
    std::vector<int> clean(4);
    const auto content = [](std::size_t i) {
      return std::string(std::size_t{1} << 20, static_cast<char>('a' + i));
    };
    for (std::size_t i = 0; i < received.size(); ++i) {
      clients.emplace_back([&, i] {
        Peer peer(server.local_endpoint());
        std::thread sender([&] {
          peer.send(content(i));
          peer.end();
        });
        bool ended = false;
        received[i] = peer.receive_all(&ended);
        clean[i] = ended;
        sender.join();
      });
    }
    for (std::thread& client : clients) client.join();
    for (std::size_t i = 0; i < received.size(); ++i) {
      CHECK((received[i] == content(i)));
      CHECK(clean[i]);
    }
    const std::lock_guard lock(mutex);
    CHECK(threads.size() == 2);
  });
}

TEST_CASE("a server listens on a unix path, too") {
  on_every_transport(1, [](LoopGroup& loops) {
    ServerOptions options = echo_options();
    options.endpoint =
        Endpoint::parse("unix:@linkspan-server-test-" + std::to_string(::getpid())).value_or_throw();
    const Server server = Server::start(loops, options).value_or_throw();
    Peer peer(server.local_endpoint());
    peer.send("hello");
    CHECK(peer.receive(5) == "hello");
  });
}

TEST_CASE("a server that cannot start says why") {
  on_every_transport(1, [](LoopGroup& loops) {
    CHECK(Server::start(loops, options_with(nullptr)).error().message() ==
          "a server has an initializer, which fills the pipelines");
    ServerOptions options = echo_options();
    options.max_connections = 0;
    CHECK(Server::start(loops, options).error().code == errc::invalid_argument);
    options = echo_options();
    const Server first = Server::start(loops, options).value_or_throw();
    options.endpoint = first.local_endpoint();
    CHECK(Server::start(loops, options).error().code == std::errc::address_in_use);
    loops.stop();
    loops.wait();
    CHECK(Server::start(loops, options).error().code == errc::stopped);
  });
}

TEST_CASE(
    "a server that listens on every loop has one address, and connections stay where they were accepted") {
  on_every_transport(3, [](LoopGroup& loops) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    ServerOptions options = options_with([&](Channel& channel) {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      return channel.pipeline().append<EchoBytes>();
    });
    options.listen_on_every_loop = true;
    Server server = Server::start(loops, options).value_or_throw();
    CHECK(server.local_endpoint().port() != 0);
    std::vector<std::unique_ptr<Peer>> peers;
    std::size_t used = 0;
    while (used < 3 && peers.size() < 500) {  // the system spreads them by a hash
      Peer& peer = *peers.emplace_back(std::make_unique<Peer>(server.local_endpoint()));
      peer.send("hello");
      CHECK(peer.receive(5) == "hello");
      const std::lock_guard lock(mutex);
      used = threads.size();
    }
    CHECK(used == 3);
    CHECK(server.connections() == peers.size());
    Mailbox mailbox;
    server.stop(std::chrono::minutes(1), [&] { mailbox.put("done"); });
    for (const auto& peer : peers) CHECK(peer->receive_all().empty());
    peers.clear();
    mailbox.wait(1);
    CHECK(server.connections() == 0);
    CHECK_FALSE(Peer(server.local_endpoint()).connected());
  });
}

TEST_CASE("a server that cannot listen on every loop says why, and leaves no listener behind") {
  on_every_transport(2, [](LoopGroup& loops) {
    ServerOptions options = echo_options();
    options.listen_on_every_loop = true;
    const Server first = Server::start(loops, echo_options()).value_or_throw();
    options.endpoint = first.local_endpoint();  // which shares with nobody
    CHECK(Server::start(loops, options).error().code == std::errc::address_in_use);
    options.endpoint = Endpoint::parse("unix:@linkspan-every-loop").value_or_throw();
    CHECK(Server::start(loops, options).error().message() ==
          "listen_on_every_loop: unix sockets cannot share a path, as unix:@linkspan-every-loop");
    options.endpoint = loopback();
    const Endpoint endpoint = Server::start(loops, options).value_or_throw().local_endpoint();
    options.endpoint = endpoint;
    options.listen_on_every_loop = false;  // so it needs the address for itself
    CHECK(Server::start(loops, options).ok());
  });
}

TEST_CASE("a server whose second listener cannot open closes the first one, and says why") {
  on_every_transport(2, [](LoopGroup& loops) {
    ServerOptions options = echo_options();
    const int bound = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);  // finds a free port
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    REQUIRE(::bind(bound, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(bound, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    ::close(bound);
    options.endpoint = loopback(ntohs(address.sin_port));
    options.listen_on_every_loop = true;
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const int next = ::dup(STDIN_FILENO);
    REQUIRE(next >= 0);
    ::close(next);
    const rlimit one_more{static_cast<rlim_t>(next) + 1, limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &one_more) == 0);
    const auto refused = Server::start(loops, options);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == std::errc::too_many_files_open);
    options.listen_on_every_loop = false;  // so it needs the address for itself
    CHECK(Server::start(loops, options).ok());
  });
}

TEST_CASE("connections beyond the limit are closed on every loop that listens") {
  on_every_transport(2, [](LoopGroup& loops) {
    ServerOptions options = echo_options();
    options.listen_on_every_loop = true;
    options.max_connections = 1;
    const Server server = Server::start(loops, options).value_or_throw();
    Peer first(server.local_endpoint());
    first.send("x");
    CHECK(first.receive(1) == "x");
    for (int i = 0; i < 20; ++i) CHECK(Peer(server.local_endpoint()).receive_all().empty());
    first.send("y");
    CHECK(first.receive(1) == "y");
  });
}

TEST_CASE("a server takes over a socket that listens already") {
  on_every_transport(2, [](LoopGroup& loops) {
    const auto make = [] {
      Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const Endpoint any = loopback();
      REQUIRE(::bind(socket.descriptor(), any.address(), static_cast<socklen_t>(any.address_size())) == 0);
      REQUIRE(::listen(socket.descriptor(), 16) == 0);
      return socket;
    };
    ServerOptions options = echo_options();
    options.endpoint = Endpoint();  // not used
    const Server server = Server::start(loops, make(), options).value_or_throw();
    Peer peer(server.local_endpoint());
    peer.send("hello");
    CHECK(peer.receive(5) == "hello");
    EventLoop& loop = *loops.loops().back();
    const Server on_one_loop = Server::start(loop, make(), options).value_or_throw();
    Peer other(on_one_loop.local_endpoint());
    other.send("hello");
    CHECK(other.receive(5) == "hello");
    CHECK(Server::start(loop, Socket(), options).error().code == errc::invalid_argument);
    CHECK(Server::start(loops, Socket(), options).error().code == errc::invalid_argument);
    Socket deaf(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK(Server::start(loops, std::move(deaf), options).error().code == errc::invalid_argument);
    options.listen_on_every_loop = true;
    CHECK(Server::start(loops, make(), options).error().code == errc::invalid_argument);
  });
}

TEST_CASE("a channel names its peer until the end, also when the peer has reset the connection") {
  on_every_transport(1, [](LoopGroup& loops) {
    class Naming final : public Reporter {
     public:
      using Reporter::Reporter;
      void on_active() override { mailbox_.put(channel().peer_endpoint().to_string()); }
      void on_inactive(std::error_code) override { mailbox_.put(channel().peer_endpoint().to_string()); }
    };
    Mailbox mailbox;
    const Server server = Server::start(loops, options_with([&](Channel& channel) {
                                          return channel.pipeline().append(std::make_unique<Naming>(mailbox));
                                        }))
                              .value_or_throw();
    Peer peer(server.local_endpoint());
    mailbox.wait(1);
    peer.reset();
    const Words words = mailbox.wait(2);
    CHECK(words[0].starts_with("127.0.0.1:"));
    CHECK(words[0] == words[1]);
  });
}

TEST_CASE("a stopping server sends what is queued") {
  on_every_transport(2, [](LoopGroup& loops) {
    constexpr std::size_t kSize = std::size_t{8} << 20;
    class Sending final : public Reporter {
     public:
      using Reporter::Reporter;
      void on_active() override {
        write(Chain(Slice::adopt(std::string(kSize, 'q'))));
        mailbox_.put("active");
      }
    };
    Mailbox mailbox;
    Server server = Server::start(loops, options_with([&](Channel& channel) {
                                    return channel.pipeline().append(std::make_unique<Sending>(mailbox));
                                  }))
                        .value_or_throw();
    Peer peer(server.local_endpoint());
    mailbox.wait(1);
    server.stop(std::chrono::minutes(1), [&] { mailbox.put("done"); });
    bool clean = false;
    CHECK(peer.receive_all(&clean).size() == kSize);
    CHECK(clean);
    peer.close();
    CHECK(mailbox.wait(3) == Words{"active", "inactive Success", "done"});
    CHECK(server.connections() == 0);
    CHECK_FALSE(Peer(server.local_endpoint()).connected());
    server.stop(std::chrono::minutes(1), [&] { mailbox.put("again"); });
    CHECK(mailbox.wait(4).back() == "again");
  });
}

TEST_CASE("a stopping server aborts what is open at the deadline") {
  on_every_transport(1, [](LoopGroup& loops) {
    class Stubborn final : public Reporter {
     public:
      using Reporter::Reporter;
      void on_drain(Duration) override { mailbox_.put("drain"); }
    };
    Mailbox mailbox;
    Server server = Server::start(loops, options_with([&](Channel& channel) {
                                    return channel.pipeline().append(std::make_unique<Stubborn>(mailbox));
                                  }))
                        .value_or_throw();
    Peer peer(server.local_endpoint());
    mailbox.wait(1);
    server.stop(std::chrono::milliseconds(1), [&] { mailbox.put("done"); });
    CHECK(mailbox.wait(4) == Words{"active", "drain", "inactive aborted", "done"});
  });
}

TEST_CASE("a handler can finish its work before a stopping server closes the channel") {
  on_every_transport(1, [](LoopGroup& loops) {
    class Working final : public Reporter {
     public:
      Working(Mailbox& mailbox, ChannelRef& ref) : Reporter(mailbox), ref_(ref) {}
      void on_active() override {
        ref_ = channel().ref();
        mailbox_.put("active");
      }
      void on_drain(Duration) override { mailbox_.put("drain"); }

     private:
      ChannelRef& ref_;
    };
    Mailbox mailbox;
    ChannelRef ref;
    Server server = Server::start(loops, options_with([&](Channel& channel) {
                                    return channel.pipeline().append(std::make_unique<Working>(mailbox, ref));
                                  }))
                        .value_or_throw();
    Peer peer(server.local_endpoint());
    mailbox.wait(1);
    server.stop(std::chrono::minutes(1), [&] { mailbox.put("done"); });
    mailbox.wait(2);
    ref.write(Chain(Slice::copy("the rest")));
    ref.close();
    CHECK(peer.receive_all() == "the rest");
    peer.close();
    CHECK(mailbox.wait(4) == Words{"active", "drain", "inactive Success", "done"});
  });
}

TEST_CASE("connections beyond the limit are closed at once, and the server goes on") {
  on_every_transport(1, [](LoopGroup& loops) {
    Mailbox mailbox;
    ServerOptions options = options_with(
        [&](Channel& channel) { return channel.pipeline().append(std::make_unique<Reporter>(mailbox)); });
    options.max_connections = 1;
    const Server server = Server::start(loops, options).value_or_throw();
    std::optional<Peer> first(server.local_endpoint());
    mailbox.wait(1);
    CHECK(Peer(server.local_endpoint()).receive_all().empty());
    CHECK(server.connections() == 1);
    first->send("still here");
    CHECK(mailbox.wait(2).back() == "read still here");
    first.reset();
    CHECK(mailbox.wait(3).back() == "inactive Success");
    while (server.connections() != 0) std::this_thread::yield();
    Peer third(server.local_endpoint());
    CHECK(mailbox.wait(4).back() == "active");
  });
}

TEST_CASE("an initializer that fails or throws closes that connection only, and is logged") {
  LogCapture log;
  on_every_transport(1, [&](LoopGroup& loops) {
    std::atomic<int> count{0};
    const Server server = Server::start(loops, options_with([&](Channel& channel) -> Status {
                                          switch (count++) {
                                            case 0: return channel.pipeline().append<Echo>();
                                            case 1: throw std::runtime_error("initializer");
                                            default: return channel.pipeline().append<EchoBytes>();
                                          }
                                        }))
                              .value_or_throw();
    CHECK(Peer(server.local_endpoint()).receive_all().empty());
    CHECK(Peer(server.local_endpoint()).receive_all().empty());
    Peer peer(server.local_endpoint());
    peer.send("fine");
    CHECK(peer.receive(4) == "fine");
  });
  CHECK(log.contains("the wire passes on Chain, but test::Echo reads std::string"));
  CHECK(log.contains("initializer threw: initializer"));
}

TEST_CASE("a peer's reset fails the queued writes and ends the channel once") {
  on_every_transport(1, [](LoopGroup& loops) {
    class Sending final : public Reporter {
     public:
      using Reporter::Reporter;
      void on_active() override {
        mailbox_.put("active");
        for (int i = 0; i < 2; ++i) {
          write(Chain(Slice::adopt(std::string(std::size_t{16} << 20, 'q'))),
                [&mailbox = mailbox_](std::error_code error) {
                  mailbox.put(error == errc::connection_lost ? "lost" : error.message());
                });
        }
      }
      void on_inactive(std::error_code error) override {
        mailbox_.put(error == errc::connection_lost ? "inactive lost" : error.message());
      }
    };
    Mailbox mailbox;
    const Server server =
        Server::start(loops, options_with([&](Channel& channel) {
                        return channel.pipeline().append(std::make_unique<Sending>(mailbox));
                      }))
            .value_or_throw();
    Peer peer(server.local_endpoint());
    mailbox.wait(1);
    peer.reset();
    CHECK(mailbox.wait(4) == Words{"active", "lost", "lost", "inactive lost"});
  });
}

TEST_CASE("a server can be destroyed inside a handler of its own, and after its loops have stopped") {
  on_every_transport(2, [](LoopGroup& loops) {
    struct Owner {
      std::mutex mutex;
      std::unique_ptr<Server> server;
    } owner;
    class Destroying final : public Reporter {
     public:
      Destroying(Mailbox& mailbox, Owner& owner) : Reporter(mailbox), owner_(owner) {}
      void on_read(Chain&&) override {
        const std::lock_guard lock(owner_.mutex);
        owner_.server.reset();
      }

     private:
      Owner& owner_;
    };
    Mailbox mailbox;
    const ServerOptions options = options_with([&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<Destroying>(mailbox, owner));
    });
    Endpoint endpoint;
    {
      const std::lock_guard lock(owner.mutex);
      owner.server = std::make_unique<Server>(Server::start(loops, options).value_or_throw());
      endpoint = owner.server->local_endpoint();
    }
    Peer peer(endpoint);
    mailbox.wait(1);
    peer.send("x");
    CHECK(peer.receive_all().empty());
    mailbox.wait(2);

    Server second = Server::start(loops, options).value_or_throw();
    Peer other(second.local_endpoint());
    mailbox.wait(3);
    loops.stop();
    loops.wait();
    CHECK(mailbox.wait(4).back() == "inactive aborted");
    bool done = false;
    second.stop(std::chrono::minutes(1), [&] { done = true; });
    CHECK(done);
  });
}

TEST_CASE("a server and its channels can live on a loop of the caller's own thread") {
  for (const std::string_view name : transport_names()) {
    CAPTURE(name);
    auto loop = EventLoop::create(transport_engine(name).value_or_throw());
    if (!loop) continue;
    std::optional<Server> server;
    server.emplace(Server::start(*loop.value(), echo_options()).value_or_throw());
    std::string received;
    std::thread client([&] {
      {
        Peer peer(server->local_endpoint());
        peer.send("once");
        received = peer.receive(4);
      }
      server->stop(std::chrono::minutes(1), [&] { loop.value()->stop(); });
    });
    loop.value()->run();
    client.join();
    CHECK(received == "once");
    server.reset();
  }
}
