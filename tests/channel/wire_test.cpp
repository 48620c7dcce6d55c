// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a channel's handlers do with its stream beside bytes: files, descriptors, memory of their own.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/peer.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

Endpoint unix_endpoint() {
  static int number = 0;
  return Endpoint::parse("unix:@linkspan-wire-test-" + std::to_string(::getpid()) + "-" +
                         std::to_string(++number))
      .value_or_throw();
}

std::shared_ptr<const File> file_of(std::string content) {
  const std::string path = "/tmp/linkspan-wire-test-" + std::to_string(::getpid());
  std::unique_ptr<File> file = system_files().open(path, OpenMode::create_new).value_or_throw();
  REQUIRE(file->write_at(Chain(Slice::adopt(std::move(content))), 0));
  REQUIRE(system_files().remove(path));
  return file;
}

// Answers each read with a head, a part of a file and a tail.
class SendFile final : public Service<Chain> {
 public:
  SendFile(std::shared_ptr<const File> file, std::uint64_t size, Mailbox& mailbox)
      : file_(std::move(file)), size_(size), mailbox_(mailbox) {}
  void on_read(Chain&&) override {
    write(Chain(Slice::copy("head ")));
    write_to_wire(FileRange{file_, 1, size_ - 1},
                  [this](std::error_code error) { mailbox_.put(error ? error.message() : "file sent"); });
    write(Chain(Slice::copy(" tail")));
  }

 private:
  std::shared_ptr<const File> file_;
  std::uint64_t size_;
  Mailbox& mailbox_;
};

// Sends what it has read back, with a descriptor of /dev/null.
class SendDescriptor final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override {
    std::vector<Socket> sockets;
    sockets.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    write_to_wire({std::move(data), std::move(sockets)});
  }
};

class HearDescriptors final : public Service<Chain> {
 public:
  explicit HearDescriptors(Mailbox& mailbox) : mailbox_(mailbox) {}
  void on_read(Chain&& data) override { mailbox_.put("read " + data.to_string()); }
  void on_descriptors(std::vector<Socket>&& sockets) override {
    char byte;
    const bool end = ::read(sockets.at(0).descriptor(), &byte, 1) == 0;
    mailbox_.put("descriptors " + std::to_string(sockets.size()) + (end ? " at end" : ""));
  }

 private:
  Mailbox& mailbox_;
};

// Takes `size` bytes behind the first read into a block of its own.
class TakePage final : public Service<Chain> {
 public:
  TakePage(std::size_t size, Mailbox& mailbox) : size_(size), mailbox_(mailbox) {}
  void on_active() override {
    channel().receive_into(channel().loop().pool().allocate(size_), size_,
                           [this](std::error_code error, Block&& block, std::size_t bytes) {
                             const Slice page = std::move(block).freeze_all(bytes);
                             mailbox_.put((error ? error.message() : "page") + " " + std::to_string(bytes) +
                                          " " + std::string(page.view().substr(0, 2)));
                           });
  }
  void on_read(Chain&& data) override { mailbox_.put("read " + data.to_string()); }

 private:
  std::size_t size_;
  Mailbox& mailbox_;
};

}  // namespace

TEST_CASE("a handler sends a part of a file in its place among what it writes") {
  on_every_transport(1, [](LoopGroup& loops) {
    std::string content;
    for (int i = 0; content.size() < 700'000; ++i) content += std::to_string(i) + " ";
    const std::shared_ptr<const File> file = file_of(content);
    Mailbox mailbox;
    ServerOptions options;
    options.endpoint = loopback();
    options.initializer = [&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<SendFile>(file, content.size(), mailbox));
    };
    const Server server = Server::start(loops, options).value_or_throw();
    test::Peer peer(server.local_endpoint());
    peer.send("go");
    const std::string expected = "head " + content.substr(1) + " tail";
    CHECK((peer.receive(expected.size()) == expected));
    CHECK(mailbox.wait(1).front() == "file sent");
  });
}

TEST_CASE("descriptors travel between the handlers of two channels, before the bytes they were sent with") {
  on_every_transport(1, [](LoopGroup& loops) {
    Mailbox mailbox;
    ServerOptions options;
    options.endpoint = unix_endpoint();
    options.initializer = [](Channel& channel) { return channel.pipeline().append<SendDescriptor>(); };
    const Server server = Server::start(loops, options).value_or_throw();
    ChannelOptions client_options;
    client_options.stream.receive_descriptors = 4;
    const Client client(
        loops,
        [&](Channel& channel) {
          return channel.pipeline().append(std::make_unique<HearDescriptors>(mailbox));
        },
        client_options);
    const ChannelRef channel = client.connect(server.local_endpoint());
    std::vector<Socket> sockets;
    sockets.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    channel.write(WithDescriptors{Chain(Slice::copy("x")), std::move(sockets)});  // the server closes it
    CHECK(mailbox.wait(2) == std::vector<std::string>{"descriptors 1 at end", "read x"});
    channel.abort();
  });
}

TEST_CASE("descriptors that are written before the connection is open are sent when it is, or closed") {
  on_every_transport(1, [](LoopGroup& loops) {
    Mailbox mailbox;
    ServerOptions options;
    options.endpoint = unix_endpoint();
    options.channel.stream.receive_descriptors = 4;
    options.initializer = [&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<HearDescriptors>(mailbox));
    };
    std::optional<Server> server(Server::start(loops, options).value_or_throw());
    const auto write_early = [&](const std::string& name) {
      CHECK(loops.next().post([&, name] {
        const Client client(loops,
                            [](Channel& channel) { return channel.pipeline().append<SendDescriptor>(); });
        const ChannelRef channel = client.connect(options.endpoint);
        int ends[2];
        CHECK(::pipe2(ends, O_CLOEXEC) == 0);
        std::vector<Socket> sockets;
        sockets.emplace_back(ends[0]);
        ::close(ends[1]);  // the reading end is at its end
        CHECK(channel.here()->active() == false);
        channel.write(WithDescriptors{Chain(Slice::copy("early")), std::move(sockets)},
                      [&, name, read_end = ends[0]](std::error_code error) {
                        const bool closed = ::fcntl(read_end, F_GETFD) < 0;
                        mailbox.put(name + (error ? " failed" : " sent") + (closed ? ", closed" : ""));
                      });
        channel.close();
      }));
    };
    write_early("first");
    std::vector<std::string> words = mailbox.wait(3);
    std::sort(words.begin(), words.end());
    CHECK(words == std::vector<std::string>{"descriptors 1 at end", "first sent, closed", "read early"});
    server.reset();
    write_early("second");
    CHECK(mailbox.wait(4).back() == "second failed, closed");
  });
}

TEST_CASE("descriptors over a socket that has none fail that write alone") {
  on_every_transport(1, [](LoopGroup& loops) {
    Mailbox mailbox;
    ServerOptions options;
    options.endpoint = loopback();
    options.initializer = [&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<HearDescriptors>(mailbox));
    };
    const Server server = Server::start(loops, options).value_or_throw();
    const Client client(loops, [](Channel& channel) { return channel.pipeline().append<SendDescriptor>(); });
    const ChannelRef channel = client.connect(server.local_endpoint(), [&](std::error_code) {
      mailbox.put("connected");  // written before, descriptors fail only once it is known what the socket is
    });
    mailbox.wait(1);
    std::vector<Socket> sockets;
    sockets.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    channel.write(WithDescriptors{Chain(Slice::copy("x")), std::move(sockets)},
                  [&](std::error_code error) { mailbox.put(error == errc::unavailable ? "refused" : "?"); });
    CHECK(mailbox.wait(2).back() == "refused");
    channel.write(Chain(Slice::copy("y")));
    CHECK(mailbox.wait(3).back() == "read y");
    channel.abort();
  });
}

TEST_CASE("a handler receives the next bytes into memory of its own, the rest is read") {
  on_every_transport(1, [](LoopGroup& loops) {
    Mailbox mailbox;
    ServerOptions options;
    options.endpoint = loopback();
    options.initializer = [&](Channel& channel) {
      return channel.pipeline().append(std::make_unique<TakePage>(100'000, mailbox));
    };
    const Server server = Server::start(loops, options).value_or_throw();
    test::Peer peer(server.local_endpoint());
    peer.send(std::string(100'000, 'p') + "rest");
    CHECK(mailbox.wait(2) == std::vector<std::string>{"page 100000 pp", "read rest"});
  });
}
