// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/client.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linkspan/channel/server.hpp"
#include "tests/channel/handlers.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/helpers.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

using Words = std::vector<std::string>;

class Reporter final : public Service<std::string> {
 public:
  explicit Reporter(Mailbox& mailbox) : mailbox_(mailbox) {}
  void on_active() override { mailbox_.put("active"); }
  void on_read(std::string&& line) override { mailbox_.put("read " + line); }
  void on_read_end() override {
    mailbox_.put("end");
    pass_read_end();
  }
  void on_inactive(std::error_code error) override { mailbox_.put("inactive " + error.message()); }

 private:
  Mailbox& mailbox_;
};

ChannelInitializer reporting(Mailbox& mailbox) {
  return [&mailbox](Channel& channel) {
    return channel.pipeline().append(std::make_unique<Lines>(), std::make_unique<Reporter>(mailbox));
  };
}

ConnectDone telling(Mailbox& mailbox) {
  return [&mailbox](std::error_code error) { mailbox.put("connect " + error.message()); };
}

WriteDone told(Mailbox& mailbox) {
  return [&mailbox](std::error_code error) { mailbox.put("write " + error.message()); };
}

// Counts lines, and says how many there were once the peer has ended its side.
class Counting final : public Service<std::string> {
 public:
  void on_read(std::string&&) override { ++lines_; }
  void on_read_end() override {
    write(std::to_string(lines_));
    channel().close();
  }

 private:
  int lines_ = 0;
};

ServerOptions counting_options() {
  ServerOptions options;
  options.endpoint = loopback();
  options.initializer = [](Channel& channel) { return channel.pipeline().append<Lines, Counting>(); };
  return options;
}

// Where nobody listens: the port of a server that has gone.
Endpoint refusing(LoopGroup& loops) {
  return Server::start(loops, counting_options()).value_or_throw().local_endpoint();
}

// Where connecting takes for ever: a listener whose queue is full drops what else comes.
class Silent {
 public:
  Silent() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const Endpoint any = loopback();
    REQUIRE(::bind(listener_, any.address(), static_cast<socklen_t>(any.address_size())) == 0);
    REQUIRE(::listen(listener_, 0) == 0);
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = Endpoint(reinterpret_cast<const sockaddr*>(&address), size);
    for (int& filler : fillers_) {
      filler = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      static_cast<void>(::connect(filler, reinterpret_cast<const sockaddr*>(&address), size));
    }
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  ~Silent() {
    ::close(listener_);
    for (const int filler : fillers_) ::close(filler);
  }
  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

 private:
  int listener_;
  int fillers_[4];
  Endpoint endpoint_;
};

}  // namespace

TEST_CASE("a client connects, ends its side, and reads on to the end") {
  on_every_transport(2, [](LoopGroup& loops) {
    const Server server = Server::start(loops, counting_options()).value_or_throw();
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    const ChannelRef ref = client.connect(server.local_endpoint(), telling(mailbox));
    mailbox.wait(2);
    ref.write(std::string("a"));
    ref.write(std::string("b"));
    ref.shutdown_write();
    CHECK(mailbox.wait(5) == Words{"active", "connect Success", "read 2", "end", "inactive Success"});
    CHECK_FALSE(ref.alive());
  });
}

TEST_CASE("what is written while connecting is sent in order, also when only the second endpoint accepts") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Server server = Server::start(loops, counting_options()).value_or_throw();
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    std::vector<Endpoint> endpoints{refusing(loops)};
    endpoints.push_back(server.local_endpoint());
    const ChannelRef ref = client.connect(endpoints, telling(mailbox));
    ref.write(std::string("a"), told(mailbox));
    ref.write(std::string("b\nc"), told(mailbox));
    ref.shutdown_write();
    const Words words = mailbox.wait(7);
    CHECK(std::count(words.begin(), words.end(), "write Success") == 2);
    CHECK(std::count(words.begin(), words.end(), "read 3") == 1);
    CHECK(words.back() == "inactive Success");
  });
}

TEST_CASE("a refused connection fails the writes, then ends the channel, then reports why, each once") {
  on_every_transport(1, [](LoopGroup& loops) {
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    const Endpoint nobody = refusing(loops);
    ChannelRef ref;
    CHECK(loops.next().post([&] {  // on the loop, so that the write comes before the failure
      ref = client.connect({nobody, nobody}, telling(mailbox));
      ref.write(std::string("lost"), told(mailbox));
    }));
    const std::string refused = std::make_error_code(std::errc::connection_refused).message();
    CHECK(mailbox.wait(3) == Words{"write " + refused, "inactive " + refused, "connect " + refused});
    CHECK_FALSE(ref.alive());
  });
}

TEST_CASE("an address that does not answer does not keep a client from the next one") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Silent silent;
    const Server server = Server::start(loops, counting_options()).value_or_throw();
    Mailbox mailbox;
    ChannelOptions options;
    options.stream.connect_timeout = std::chrono::hours(1);  // so it is the delay that leads on
    options.stream.connect_attempt_delay = std::chrono::milliseconds(10);
    const Client client(loops, reporting(mailbox), options);
    const ChannelRef ref =
        client.connect({silent.endpoint(), silent.endpoint(), server.local_endpoint()}, telling(mailbox));
    ref.write(std::string("a"));
    ref.shutdown_write();
    CHECK(mailbox.wait(5) == Words{"active", "connect Success", "read 1", "end", "inactive Success"});
  });
}

TEST_CASE("a client without an address, or with too many, reports it like any other failure") {
  on_every_transport(1, [](LoopGroup& loops) {
    const LogCapture log;
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    client.connect(std::vector<Endpoint>(), telling(mailbox));
    CHECK(mailbox.wait(2).back() == "connect invalid argument");
    client.connect(std::vector(Transport::kEndpointsMost + 1, loopback(1)), telling(mailbox));
    CHECK(mailbox.wait(4).back() == "connect " + make_error_code(errc::limit_exceeded).message());
  });
}

TEST_CASE("a connection that is not answered times out") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Silent silent;
    Mailbox mailbox;
    ChannelOptions options;
    options.stream.connect_timeout = std::chrono::milliseconds(1);
    const Client client(loops, reporting(mailbox), options);
    client.connect(silent.endpoint(), telling(mailbox));
    CHECK(mailbox.wait(2) == Words{"inactive deadline passed", "connect deadline passed"});
  });
}

TEST_CASE("close and abort while connecting cancel the attempt") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Silent silent;
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    const std::vector<Endpoint> endpoints{silent.endpoint(), silent.endpoint()};
    client.connect(endpoints, telling(mailbox)).close();
    CHECK(mailbox.wait(2) == Words{"inactive Success", "connect cancelled"});
    const ChannelRef ref = client.connect(endpoints, telling(mailbox));
    ref.write(std::string("never"), told(mailbox));
    ref.abort();
    CHECK(mailbox.wait(5) == Words{"inactive Success", "connect cancelled", "write cancelled",
                                   "inactive aborted", "connect cancelled"});
  });
}

TEST_CASE("close while connecting sends what was written before it closes") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Server server = Server::start(loops, counting_options()).value_or_throw();
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    const Endpoint to = server.local_endpoint();
    CHECK(loops.next().post([&] {
      const ChannelRef ref = client.connect(to, telling(mailbox));
      ref.write(std::string("last words"), told(mailbox));
      ref.close();
    }));
    const Words words = mailbox.wait(4);
    CHECK(std::count(words.begin(), words.end(), "write Success") == 1);
    CHECK(words.back() == "inactive Success");
  });
}

TEST_CASE("close while connecting drops what is not sent by its deadline") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Silent silent;
    Mailbox mailbox;
    ChannelOptions options;
    options.stream.connect_timeout = std::chrono::hours(1);
    const Client client(loops, reporting(mailbox), options);
    CHECK(loops.next().post([&] {
      const ChannelRef ref = client.connect(silent.endpoint(), telling(mailbox));
      ref.write(std::string("never"), told(mailbox));
      ref.close(std::chrono::milliseconds(1));
    }));
    CHECK(mailbox.wait(3) ==
          Words{"write deadline passed", "inactive deadline passed", "connect deadline passed"});
  });
}

TEST_CASE("an initializer that fails ends the attempt with its error") {
  on_every_transport(1, [](LoopGroup& loops) {
    const Silent silent;
    Mailbox mailbox;
    const LogCapture log;
    const Client client(loops, [](Channel& channel) { return channel.pipeline().append<Echo>(); });
    client.connect(silent.endpoint(), telling(mailbox));
    CHECK(mailbox.wait(1) == Words{"connect invalid argument"});
  });
}

namespace {

// Names are looked up at a gate; the helpers are the test's own.
struct NameWorld {
  class Names final : public Resolver {
   public:
    Result<std::vector<std::string>> resolve(const std::string& host) override {
      gate.pass();
      if (host == "unknown") return Error(errc::unresolved, "no such name");
      if (host == "several") return std::vector<std::string>{"::1", "127.0.0.2", "127.0.0.1"};
      if (host == "many") return std::vector<std::string>(2 * Transport::kEndpointsMost, "127.0.0.1");
      return std::vector<std::string>{"127.0.0.1"};
    }
    Gate gate;
  };

  void on_every_transport(const std::function<void(LoopGroup&)>& body) {
    for (const std::string_view name : transport_names()) {
      CAPTURE(name);
      LoopGroupOptions options;
      options.loop.environment = &environment;
      options.loop.helpers = helpers.get();
      auto group = LoopGroup::create(transport_engine(name).value_or_throw(), options);
      if (group) body(*group.value());
    }
    names.gate.open();
  }

  Names names;
  const Environment& system = Environment::system();
  Environment environment{system.clock, system.random, system.threads, names, system.files};
  std::unique_ptr<HelperThreads> helpers = HelperThreads::create().value_or_throw();
};

}  // namespace

TEST_CASE("a client connects by name, and what is written meanwhile is sent") {
  on_every_transport(2, [](LoopGroup& loops) {
    const Server server = Server::start(loops, counting_options()).value_or_throw();
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    const ChannelRef ref = client.connect("localhost:" + std::to_string(server.local_endpoint().port()));
    ref.write(std::string("a"));
    ref.shutdown_write();
    CHECK(mailbox.wait(4) == Words{"active", "read 1", "end", "inactive Success"});
  });
}

TEST_CASE("of the addresses of a name the first that answers is taken, however many there are") {
  NameWorld world;
  world.names.gate.open();
  world.on_every_transport([](LoopGroup& loops) {
    const LogCapture log;                                                             // without IPv6
    const Server server = Server::start(loops, counting_options()).value_or_throw();  // on 127.0.0.1 alone
    for (const std::string name : {"several:", "many:"}) {
      Mailbox mailbox;
      const Client client(loops, reporting(mailbox));
      const ChannelRef ref = client.connect(name + std::to_string(server.local_endpoint().port()));
      ref.write(std::string("a"));
      ref.shutdown_write();
      CHECK(mailbox.wait(4) == Words{"active", "read 1", "end", "inactive Success"});
    }
  });
}

TEST_CASE("a name that cannot be resolved fails the writes, then ends the channel, then reports why") {
  NameWorld world;
  world.names.gate.open();
  world.on_every_transport([](LoopGroup& loops) {
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    ChannelRef ref;
    CHECK(loops.next().post([&] {
      ref = client.connect("unknown:80", telling(mailbox));
      ref.write(std::string("lost"), told(mailbox));
    }));
    CHECK(mailbox.wait(3) == Words{"write the name could not be resolved",
                                   "inactive the name could not be resolved",
                                   "connect the name could not be resolved"});
    CHECK_FALSE(ref.alive());
    client.connect("no port", telling(mailbox));
    CHECK(mailbox.wait(5).back() == "connect invalid argument");
  });
}

TEST_CASE("close, abort and the loop's stop end a client that waits for a name, at once") {
  NameWorld world;
  world.on_every_transport([](LoopGroup& loops) {
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    client.connect("example:80", telling(mailbox)).close();
    CHECK(mailbox.wait(2) == Words{"inactive Success", "connect cancelled"});
    const ChannelRef ref = client.connect("example:80", telling(mailbox));
    ref.write(std::string("never"), told(mailbox));
    ref.post([&mailbox](Channel& channel) {
      CHECK(channel.peer_endpoint() == Endpoint());
      channel.shutdown_write();
      channel.flush();
      channel.abort();
      mailbox.put("aborted");
    });
    CHECK(mailbox.wait(6) == Words{"inactive Success", "connect cancelled", "aborted", "write cancelled",
                                   "inactive aborted", "connect cancelled"});
    client.connect("example:80", telling(mailbox)).post([&mailbox](Channel&) { mailbox.put("waits"); });
    mailbox.wait(7);
    loops.stop();
    loops.wait();
    CHECK(mailbox.wait(9).back() == "connect cancelled");
  });
}

TEST_CASE("a client on a loop that has stopped reports it inside the call") {
  on_every_transport(1, [](LoopGroup& loops) {
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    loops.stop();
    loops.wait();
    const ChannelRef ref = client.connect(loopback(1), telling(mailbox));
    CHECK(mailbox.words() == Words{"connect the loop is stopping"});
    ref.write(std::string("x"), told(mailbox));
    CHECK(mailbox.words().back() == "write cancelled");
  });
}

TEST_CASE("many threads write through one ref and everything arrives once") {
  on_every_transport(2, [](LoopGroup& loops) {
    const Server server = Server::start(loops, counting_options()).value_or_throw();
    Mailbox mailbox;
    const Client client(loops, reporting(mailbox));
    const ChannelRef ref = client.connect(server.local_endpoint());
    std::atomic<int> completed{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 250; ++i) ref.write(std::string("line"), [&](std::error_code) { ++completed; });
      });
    }
    for (std::thread& thread : threads) thread.join();
    ref.shutdown_write();
    CHECK(mailbox.wait(4) == Words{"active", "read 1000", "end", "inactive Success"});
    CHECK(completed == 1000);
  });
}
