// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// key-value PORT: remembers what UDP messages tell it, on 127.0.0.1: "key=value" sets, "key" asks.
#include <cstdio>
#include <linkspan/channel/datagram_channel.hpp>
#include <linkspan/transport/transport.hpp>
#include <map>

using namespace linkspan;

struct Line {
  std::string text;
  Endpoint peer;
};

class LineCodec final : public Codec<Packet, Line> {
 public:
  void on_read(Packet&& packet) override {
    if (!packet.truncated) pass({packet.data.to_string(), packet.peer});
  }
  void on_write(Line&& line) override { write({Chain(Slice::adopt(std::move(line.text))), line.peer}); }
};

class KeyValueService final : public Service<Line> {
 public:
  void on_read(Line&& line) override {
    const std::size_t equals = line.text.find('=');
    if (equals == std::string::npos) {
      const auto found = values_.find(line.text);
      write({found == values_.end() ? "?" : found->second, line.peer});
    } else if (values_.size() < kMostValues) {
      values_[line.text.substr(0, equals)] = line.text.substr(equals + 1);
    }
  }

 private:
  static constexpr std::size_t kMostValues = 100'000;
  std::map<std::string, std::string> values_;
};

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: key-value PORT\n");
    return 2;
  }
  const auto loop = EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
  DatagramChannelOptions options;
  options.local = Endpoint::parse(std::string("127.0.0.1:") + argv[1]).value_or_throw();
  options.initializer = [](Channel& channel) {
    return channel.pipeline().append<LineCodec, KeyValueService>();
  };
  const BoundChannel bound = open_datagram_channel(*loop, std::move(options)).value_or_throw();
  std::printf("bound to %s\n", bound.local.to_string().c_str());
  std::fflush(stdout);
  loop->run();
} catch (const Exception& error) {
  std::fprintf(stderr, "key-value: %s\n", error.what());
  return 1;
}
