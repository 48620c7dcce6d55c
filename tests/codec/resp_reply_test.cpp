// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Replies of RESP2 and RESP3: what RespReplyDecoder makes of them, and what RespWriter writes.
#include "linkspan/codec/resp_reply.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/frame_events.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/buffer/heap_allocator.hpp"
#include "linkspan/codec/resp_writer.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

std::string text_of(RespValue value) {
  const std::string sign(1, static_cast<char>(value.type()));
  switch (value.type()) {
    case RespType::null: return "null";
    case RespType::integer:
    case RespType::boolean: return sign + std::to_string(value.integer());
    case RespType::array:
    case RespType::map:
    case RespType::set:
    case RespType::push: {
      std::string text = sign + "{";
      std::size_t count = 0;
      for (const RespValue inner : value) {
        if (count++ != 0) text += ',';
        text += text_of(inner);
      }
      CHECK(count == value.size());
      return text + "}";
    }
    default: CHECK(value.chain().to_string() == value.text()); return sign + std::string(value.text());
  }
}

struct AsText final : Handler<RespReply, Chain, Chain, Chain> {
  void on_read(RespReply&& reply) override { pass(Chain(Slice::copy(text_of(reply.root())))); }
};

MakeCodec replies(const RespReplyLimits& limits = {}) {
  return [limits](EmbeddedChannel& channel, std::unique_ptr<Events> last) {
    return channel.pipeline().append(std::make_unique<RespReplyDecoder>(limits), std::make_unique<AsText>(),
                                     std::move(last));
  };
}

MakeCodec small_replies() {
  RespReplyLimits limits;
  limits.max_bulk_bytes = 5;
  limits.max_line_bytes = 5;
  limits.max_values = 5;
  limits.max_depth = 2;
  limits.max_reply_bytes = 25;
  return replies(limits);
}

std::string written(RespVersion version, const std::function<void(RespWriter&)>& write) {
  RespWriter writer(heap_allocator());
  writer.set_version(version);
  write(writer);
  return writer.take().to_string();
}

}  // namespace

TEST_CASE("RESP replies of each type, split anywhere in three, give the same events") {
  const MakeCodec make = replies();
  CHECK(events_of(make, "+OK\r\n-ERR no\r\n:-12\r\n") == "[+OK][-ERR no][:-12]end");
  CHECK(events_of(make, "$2\r\nab\r\n$0\r\n\r\n$-1\r\n*-1\r\n_\r\n") == "[$ab][$][null][null][null]end");
  CHECK(events_of(make, "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n*0\r\n") == "[*{:1,*{$x}}][*{}]end");
  CHECK(events_of(make, "#t\r\n#f\r\n,1.5\r\n(123\r\n!3\r\nERR\r\n") == "[#1][#0][,1.5][(123][!ERR]end");
  CHECK(events_of(make, "%1\r\n+a\r\n~1\r\n:1\r\n>1\r\n+p\r\n") == "[%{+a,~{:1}}][>{+p}]end");
  CHECK(events_of(make, "=5\r\ntxt:a\r\n") == "[=txt:a]end");
}

TEST_CASE("attributes of RESP3 are left out, and count for nothing") {
  const MakeCodec make = replies();
  CHECK(events_of(make, "|1\r\n+k\r\n*1\r\n:1\r\n+v\r\n") == "[+v]end");
  CHECK(events_of(make, "*2\r\n|1\r\n+k\r\n:1\r\n:7\r\n|0\r\n:8\r\n") == "[*{:7,:8}]end");
}

TEST_CASE("limits of a reply are named when they are exceeded, whatever of it has come") {
  const MakeCodec make = small_replies();
  CHECK(events_of(make, "+12345\r\n") == "[+12345]end");
  CHECK(events_of(make, "+123456\r\n") == "a line is above max_line_bytes, 5");
  CHECK(events_of(make, "+1234567") == "a line is above max_line_bytes, 5");
  CHECK(events_of(make, "$6\r\n") == "a string is above max_bulk_bytes, 5");
  CHECK(events_of(make, "*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n") == "[*{:1,:2,:3,:4}]end");
  CHECK(events_of(make, "*6\r\n") == "a reply's values are above max_values, 5");
  CHECK(events_of(make, "%3\r\n") == "a reply's values are above max_values, 5");
  CHECK(events_of(make, "*9223372036854775807\r\n") == "a reply's values are above max_values, 5");
  CHECK(events_of(make, "*1\r\n*1\r\n*1\r\n") == "a reply's depth is above max_depth, 2");
  CHECK(events_of(make, "*3\r\n$5\r\nabcde\r\n$5\r\nabcde\r\n") == "a reply is above max_reply_bytes, 25");
}

TEST_CASE("a reply that breaks a rule is an error") {
  const MakeCodec make = replies();
  CHECK(events_of(make, "?\r\n") == "a value begins with '?'");
  CHECK(events_of(make, ":1x\r\n") == "an integer that is none");
  CHECK(events_of(make, ":\r\n") == "an integer that is none");
  CHECK(events_of(make, "#x\r\n") == "a boolean that is neither t nor f");
  CHECK(events_of(make, "_x\r\n") == "a null with a text");
  CHECK(events_of(make, "+x\n") == "a line ends without \\r");
  CHECK(events_of(make, "+\n") == "a line ends without \\r");
  CHECK(events_of(make, "$1x\r\n") == "a length that is no number");
  CHECK(events_of(make, "$-2\r\n") == "a negative length");
  CHECK(events_of(make, "%-1\r\n") == "a negative length");
  CHECK(events_of(make, "$" + std::string(40, '1')) == "a length of too many digits");
  CHECK(events_of(make, "$1\r\nxyz") == "no \\r\\n behind a string");
  CHECK(events_of(make, "*1\r\n") == "the peer ended in the middle of a frame");
}

TEST_CASE("reals are numbers, and what is none has no value") {
  for (const auto& [text, value] : std::vector<std::pair<std::string, double>>{
           {"1.5", 1.5}, {"-2e3", -2000}, {"inf", std::numeric_limits<double>::infinity()}}) {
    EmbeddedChannel channel;
    auto collector = std::make_unique<Collector<RespReply, Chain>>();
    Collector<RespReply, Chain>& collected = *collector;
    REQUIRE(channel.pipeline().append(std::make_unique<RespReplyDecoder>(), std::move(collector)));
    channel.open();
    channel.receive("," + text + "\r\n,x\r\n");
    REQUIRE(collected.messages.size() == 2);
    CHECK(collected.messages[0].root().real() == value);
    CHECK(collected.messages[1].root().real() == std::nullopt);
  }
}

TEST_CASE("a writer says the same in both versions, with the types that each has") {
  const auto all = [](RespWriter& writer) {
    writer.simple_string("OK");
    writer.error("ERR a\r\nb");
    writer.integer(-7);
    writer.bulk("ab");
    writer.null();
    writer.null_array();
    writer.array(0);
    writer.map(1);
    writer.set(2);
    writer.push(1);
    writer.boolean(true);
    writer.real(0.5);
    writer.verbatim("txt", "abc");
  };
  CHECK(written(RespVersion::two, all) ==
        "+OK\r\n-ERR a  b\r\n:-7\r\n$2\r\nab\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*2\r\n*1\r\n:1\r\n$3\r\n0.5\r\n"
        "$3\r\nabc\r\n");
  CHECK(written(RespVersion::three, all) ==
        "+OK\r\n-ERR a  b\r\n:-7\r\n$2\r\nab\r\n_\r\n_\r\n*0\r\n%1\r\n~2\r\n>1\r\n#t\r\n,0.5\r\n"
        "=7\r\ntxt:abc\r\n");
  CHECK(written(RespVersion::three, [](RespWriter& writer) {
          writer.real(std::numeric_limits<double>::infinity());
          writer.real(-std::numeric_limits<double>::infinity());
          writer.real(std::nan(""));
          writer.integer(std::numeric_limits<std::int64_t>::min());
        }) == ",inf\r\n,-inf\r\n,nan\r\n:-9223372036854775808\r\n");
}

TEST_CASE("a writer references large values, and writes small replies into few blocks") {
  const Slice large = Slice::adopt(std::string(10'000, 'v'));
  RespWriter writer(heap_allocator());
  for (int i = 0; i != 3; ++i) {
    writer.bulk(Chain(large));
    for (int j = 0; j != 10; ++j) writer.integer(j);
  }
  const std::size_t size = writer.size();
  const Chain chain = writer.take();
  CHECK(chain.size() == size);
  CHECK(writer.size() == 0);
  CHECK(chain.slice_count() == 7);
  CHECK(chain[1].data() == large.data());
  writer.integer(1);
  const Chain next = writer.take();
  CHECK(next == ":1\r\n");
  CHECK(next.front().block_id() == chain.back().block_id());
}

TEST_CASE("a writer whose allocator refuses says so") {
  HeapAllocator none(0);
  RespWriter writer(none);
  writer.integer(1);
  writer.bulk("x");
  writer.bulk(Chain(Slice::adopt(std::string(5000, 'x'))));
  CHECK(writer.error_code() == errc::pool_exhausted);
}

TEST_CASE("random replies come out as they were written, in pieces of any size") {
  std::mt19937 generator(21);
  for (int round = 0; round != 200; ++round) {
    RespWriter writer(heap_allocator());
    writer.set_version(round % 2 == 0 ? RespVersion::two : RespVersion::three);
    std::string expected;
    const auto value = [&](const auto& self, int depth) -> std::string {
      switch (generator() % (depth == 0 ? 4 : 6)) {
        case 0: writer.simple_string("s"); return "+s";
        case 1: {
          const auto number = static_cast<std::int64_t>(generator()) - (std::int64_t{1} << 31);
          writer.integer(number);
          return ":" + std::to_string(number);
        }
        case 2: writer.null(); return "null";
        case 3: {
          std::string text(generator() % 5 == 0 ? generator() % 6000 : generator() % 30, '\0');
          for (char& c : text) c = static_cast<char>(generator());
          if (generator() % 2 == 0) {
            writer.bulk(text);
          } else {
            writer.bulk(Chain(Slice::copy(text)));
          }
          return "$" + text;
        }
        default: {
          const std::size_t count = generator() % 4;
          writer.array(count);
          std::string text = "*{";
          for (std::size_t i = 0; i != count; ++i) text += (i == 0 ? "" : ",") + self(self, depth - 1);
          return text + "}";
        }
      }
    };
    for (int n = 0; n != 4; ++n) expected += "[" + value(value, 3) + "]";
    const std::string bytes = writer.take().to_string();
    std::vector<std::string_view> pieces;
    const std::size_t most = 1 + generator() % 2000;
    for (std::string_view rest = bytes; !rest.empty();) {
      const std::size_t size = std::min<std::size_t>(rest.size(), 1 + generator() % most);
      pieces.push_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    CHECK(events_of(replies(), pieces) == expected + "end");
  }
}

TEST_CASE("a large string of a reply is the memory that was received") {
  const std::string value(50'000, 'v');
  const std::string bytes = "*2\r\n:1\r\n$50000\r\n" + value + "\r\n";
  EmbeddedChannel channel;
  auto collector = std::make_unique<Collector<RespReply, Chain>>();
  Collector<RespReply, Chain>& collected = *collector;
  REQUIRE(channel.pipeline().append(std::make_unique<RespReplyDecoder>(), std::move(collector)));
  channel.open();
  const CopyScope scope;
  channel.receive(Chain(Slice::immortal(std::string_view(bytes).substr(0, 30'000))));
  channel.receive(Chain(Slice::immortal(std::string_view(bytes).substr(30'000))));
  REQUIRE(collected.messages.size() == 1);
  const RespValue last = *++collected.messages[0].root().begin();
  const Chain shared = last.chain();
  CHECK(shared.slice_count() == 2);
  CHECK(shared.front().data() == reinterpret_cast<const std::byte*>(bytes.data() + bytes.find('v')));
  CHECK(scope.copied().total() == 0);
}
