// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/resp_command.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/frame_events.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/codec/resp_writer.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::string_literals::operator""s;

namespace {

/// Commands as text: their arguments, separated by bars.
struct AsText final : Handler<RespCommand, Chain, Chain, Chain> {
  void on_read(RespCommand&& command) override {
    std::string text;
    for (std::size_t i = 0; i != command.size(); ++i) {
      if (i != 0) text += '|';
      text += command.text(i);
      CHECK(command.chain(i).to_string() == command.text(i));
      CHECK(command.argument_bytes(i) == command.text(i).size());
    }
    pass(Chain(Slice::copy(text)));
  }
};

MakeCodec commands(const RespCommandLimits& limits, bool restricted = false) {
  return [limits, restricted](EmbeddedChannel& channel, std::unique_ptr<Events> last) {
    auto decoder = std::make_unique<RespCommandDecoder>(limits);
    decoder->restrict_unauthenticated(restricted);
    return channel.pipeline().append(std::move(decoder), std::make_unique<AsText>(), std::move(last));
  };
}

MakeCodec small_commands() {
  RespCommandLimits limits;
  limits.max_arguments = 3;
  limits.max_bulk_bytes = 10;
  limits.max_inline_bytes = 12;
  limits.max_command_bytes = 40;
  return commands(limits);
}

std::string encoded(const std::vector<std::string>& arguments) {
  std::string bytes = "*" + std::to_string(arguments.size()) + "\r\n";
  for (const std::string& argument : arguments) {
    bytes += "$" + std::to_string(argument.size()) + "\r\n" + argument + "\r\n";
  }
  return bytes;
}

struct Keeper final : Service<RespCommand, Chain> {
  explicit Keeper(std::vector<RespCommand>& kept_in) : kept(kept_in) {}
  void on_read(RespCommand&& command) override { kept.push_back(std::move(command)); }
  std::vector<RespCommand>& kept;
};

}  // namespace

TEST_CASE("RESP commands that are split anywhere in three give the same events") {
  const MakeCodec make = small_commands();
  CHECK(events_of(make, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n") == "[GET|k]end");
  CHECK(events_of(make, "*1\r\n$0\r\n\r\n*1\r\n$2\r\n\r\n\r\n") == "[][\r\n]end");
  CHECK(events_of(make, "*0\r\nPING a\n*-1\r\n\r\n  \n*1\r\n$1\r\nx\r\n") == "[PING|a][x]end");
}

TEST_CASE("a RESP command is refused with the words of Redis, whatever of it has come") {
  const MakeCodec make = small_commands();
  const auto refused = [&](std::string_view bytes) { return events_of(make, bytes); };
  CHECK(refused("*4\r\n") == "Protocol error: invalid multibulk length");
  CHECK(refused("*a\r\n") == "Protocol error: invalid multibulk length");
  CHECK(refused("*01\r\n") == "Protocol error: invalid multibulk length");
  CHECK(refused("*+1\r\n") == "Protocol error: invalid multibulk length");
  CHECK(refused("*\r\n") == "Protocol error: invalid multibulk length");
  CHECK(refused("*-\r\n") == "Protocol error: invalid multibulk length");
  CHECK(refused("*9223372036854775808\r\n") == "Protocol error: invalid multibulk length");
  CHECK(refused("*" + std::string(40, '1')) == "Protocol error: too big mbulk count string");
  CHECK(refused("*1\r\n$11\r\n") == "Protocol error: invalid bulk length");
  CHECK(refused("*1\r\n$-1\r\n") == "Protocol error: invalid bulk length");
  CHECK(refused("*1\r\n$1a\r\n") == "Protocol error: invalid bulk length");
  CHECK(refused("*1\r\n$" + std::string(40, '1')) == "Protocol error: too big bulk count string");
  CHECK(refused("*1\r\nx") == "Protocol error: expected '$', got 'x'");
  CHECK(refused("*1\r\n$1\r\nxyz") == "Protocol error: expected \\r\\n behind a bulk string");
  CHECK(refused("1234567890123") == "Protocol error: too big inline request");
  CHECK(refused("1234567890123\n") == "Protocol error: too big inline request");
  CHECK(refused("a \"b\n") == "Protocol error: unbalanced quotes in request");
  CHECK(refused("a 'b'c\n") == "Protocol error: unbalanced quotes in request");
  CHECK(refused("*3\r\n$9\r\n123456789\r\n$9\r\n123456789\r\n$9\r\n") ==
        "Protocol error: a command is above max_command_bytes, 40");
  CHECK(refused("*1\r\n$1\r\n") == "the peer ended in the middle of a frame");
}

TEST_CASE("lengths that do not fit anything are refused at the defaults, too") {
  const MakeCodec make = commands(RespCommandLimits());
  CHECK(events_of(make, "*1048577\r\n") == "Protocol error: invalid multibulk length");
  CHECK(events_of(make, "*1\r\n$536870913\r\n") == "Protocol error: invalid bulk length");
  CHECK(events_of(make, "*1\r\n$9223372036854775807\r\n") == "Protocol error: invalid bulk length");
}

TEST_CASE("a peer that has not authenticated sends few and short arguments only") {
  const MakeCodec make = commands(RespCommandLimits(), true);
  CHECK(events_of(make, "*11\r\n") == "Protocol error: unauthenticated multibulk length");
  CHECK(events_of(make, "*1\r\n$16385\r\n") == "Protocol error: unauthenticated bulk length");
  CHECK(events_of(make, "*1\r\n$4\r\nPING\r\n") == "[PING]end");
}

TEST_CASE("a command that is a line is split as Redis splits it") {
  RespCommandLimits limits;
  const MakeCodec make = commands(limits);
  CHECK(events_of(make, " set\tk  \"a b\\x41\\n\\\"\" 'c\\'\\n' \r\n") == "[set|k|a bA\n\"|c'\\n]end");
  CHECK(events_of(make, "a \"\" ''\n") == "[a||]end");
  CHECK(events_of(make, "a\0b c\n"s) == "[a]end");
  CHECK(events_of(make, "x\"y z\"\n") == "[xy z]end");
}

TEST_CASE("random commands come out as they went in, in pieces of any size, with nothing but splits copied") {
  std::mt19937 generator(20);
  for (int round = 0; round != 200; ++round) {
    std::string bytes;
    std::string expected;
    for (std::uint32_t n = 1 + generator() % 6; n != 0; --n) {
      std::vector<std::string> arguments(1 + generator() % 5);
      for (std::string& argument : arguments) {
        argument.resize(generator() % 4 == 0 ? generator() % 5000 : generator() % 20);
        for (char& c : argument) c = static_cast<char>(generator());
      }
      bytes += encoded(arguments);
      for (std::size_t i = 0; i != arguments.size(); ++i) expected += (i == 0 ? "[" : "|") + arguments[i];
      expected += "]";
    }
    std::vector<std::string_view> pieces;
    const std::size_t most = 1 + generator() % 3000;
    for (std::string_view rest = bytes; !rest.empty();) {
      const std::size_t size = std::min<std::size_t>(rest.size(), 1 + generator() % most);
      pieces.push_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    CHECK(events_of(commands(RespCommandLimits()), pieces) == expected + "end");
  }
}

TEST_CASE("what was received of a large argument is in it: nothing is copied") {
  const std::string value(100'000, 'v');
  const std::string bytes = encoded({"SET", "key", value});
  std::vector<RespCommand> kept;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append(std::make_unique<RespCommandDecoder>(), std::make_unique<Keeper>(kept)));
  channel.open();
  const CopyScope scope;
  for (std::size_t at = 0; at < bytes.size(); at += 10'000) {
    channel.receive(Chain(Slice::immortal(std::string_view(bytes).substr(at, 10'000))));
  }
  REQUIRE(kept.size() == 1);
  const Chain argument = kept[0].chain(2);
  CHECK(argument.size() == value.size());
  CHECK(argument.slice_count() == 11);
  CHECK(argument.front().data() == reinterpret_cast<const std::byte*>(bytes.data() + bytes.find('v')));
  CHECK(kept[0].text(0) == "SET");
  CHECK(scope.copied().total() == 0);
  CHECK(kept[0].text(2) == value);  // now it is put together
  CHECK(scope.copied()[CopyPlace::framing] == value.size());
}

TEST_CASE("a command that is kept stays whole while others come") {
  std::vector<RespCommand> kept;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append(std::make_unique<RespCommandDecoder>(), std::make_unique<Keeper>(kept)));
  channel.open();
  std::string bytes;
  for (int i = 0; i != 50; ++i)
    bytes += i % 2 == 0 ? encoded({"GET", std::to_string(i)}) : "get " + std::to_string(i) + "\n";
  channel.receive(bytes);
  REQUIRE(kept.size() == 50);
  for (int i = 0; i != 50; ++i) CHECK(kept[static_cast<std::size_t>(i)].text(1) == std::to_string(i));
}

TEST_CASE("what is decoded of a command is not looked at again when more of it comes") {
  std::string bytes = encoded({"MSET", "abc", "defgh", "ijk"});
  std::string seen;
  EmbeddedChannel channel;
  REQUIRE(commands(RespCommandLimits())(channel, std::make_unique<Events>(seen)));
  channel.open();
  for (std::size_t i = 0; i != bytes.size(); ++i) {
    channel.receive(Chain(Slice::immortal(std::string_view(bytes).substr(i, 1))));
    // Signs and digits of what was decoded already; the first sign is asked for once more at the end.
    const std::size_t decoded = bytes.rfind('$', i);
    for (std::size_t j = 1; decoded != std::string::npos && j < decoded; ++j) {
      if (bytes[j] == '$' || (bytes[j] >= '0' && bytes[j] <= '9')) bytes[j] = '?';
    }
  }
  CHECK(seen == "[MSET|abc|defgh|ijk]");
}

TEST_CASE("commands that a RespWriter makes are those that are decoded") {
  RespWriter writer(heap_allocator());
  writer.command({"SET", "k", ""});
  writer.array(2);
  writer.bulk("ECHO");
  writer.bulk(Chain(Slice::adopt(std::string(5000, 'x'))));
  CHECK(events_of(commands(RespCommandLimits()), std::vector<std::string_view>{writer.take().to_string()}) ==
        "[SET|k|][ECHO|" + std::string(5000, 'x') + "]end");
}
