// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/compression_codec.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/frame_events.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"

using namespace linkspan;
using namespace linkspan::test;
using Algorithm = CompressionAlgorithm;
using std::string_literals::operator""s;

namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::zlib, Algorithm::gzip, Algorithm::zstd};

std::string noise(std::size_t size) {
  std::mt19937 generator(4);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

/// A channel whose frames are compressed, and what tells of its events.
struct Fixture {
  explicit Fixture(const CompressionOptions& options, std::function<void(Events&)> on_frame = nullptr) {
    REQUIRE(channel.pipeline().append(std::make_unique<LengthPrefixCodec>(),
                                      std::make_unique<CompressionCodec>(options),
                                      std::make_unique<Events>(seen, std::move(on_frame))));
    channel.open();
  }

  std::string seen;
  EmbeddedChannel channel;
};

/// Frames as they are on the wire.
Chain on_wire(const CompressionOptions& options, const std::vector<std::string>& frames) {
  Fixture fixture(options);
  for (const std::string& frame : frames) fixture.channel.write(Chain(Slice::copy(frame)));
  CHECK(fixture.seen == "");
  return fixture.channel.take_sent();
}

std::string prefixed(std::string_view frame) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(frame.size() >> shift));
  return bytes.append(frame);
}

std::size_t count(std::string_view text, char letter) {
  return static_cast<std::size_t>(std::ranges::count(text, letter));
}

// Shown in docs/GUIDE.md.
Status fill(Channel& channel, std::unique_ptr<Events> service) {
  CompressionOptions options;
  options.algorithm = CompressionAlgorithm::zstd;
  options.max_frame_bytes = std::size_t{1} << 20;
  LengthPrefixOptions framing;
  framing.max_frame_bytes = options.max_frame_bytes + 1;  // one byte says how it is compressed
  return channel.pipeline().append(std::make_unique<LengthPrefixCodec>(framing),
                                   std::make_unique<CompressionCodec>(options), std::move(service));
}

}  // namespace

TEST_CASE("compressed frames come back, and on the wire are what is said to be in front of them") {
  const std::vector<std::string> frames = {"", "small", std::string(100'000, 'x'), noise(5000)};
  for (const Algorithm algorithm : kAlgorithms) {
    CompressionOptions options;
    options.algorithm = algorithm;
    const std::string bytes = on_wire(options, frames).to_string();
    CHECK(bytes.size() < 6000);
    CHECK(bytes.starts_with("\0\0\0\1\0\0\0\0\6\0small"s));
    CHECK(bytes[19] == static_cast<char>(algorithm));
    CHECK(bytes.ends_with('\0' + frames[3]));
    Fixture receiver(options);
    receiver.channel.receive(bytes);
    CHECK((receiver.seen == "[][small][" + frames[2] + "][" + frames[3] + "]"));
  }
}

TEST_CASE("the guide's pipeline compresses") {
  std::string seen;
  EmbeddedChannel channel;
  REQUIRE(fill(channel, std::make_unique<Events>(seen)));
  channel.open();
  const std::string frame(1 << 20, 'x');
  channel.write(Chain(Slice::immortal(std::string_view(frame))));
  Chain bytes = channel.take_sent();
  CHECK(bytes.size() < 1000);
  channel.receive(std::move(bytes));
  CHECK((seen == "[" + frame + "]"));
}

TEST_CASE("frames that are small or would not shrink are sent by reference") {
  const std::string small(511, 'x');
  const std::string hard = noise(100'000);
  Fixture fixture{CompressionOptions()};
  const CopyScope scope;
  for (const std::string* frame : {&small, &hard}) {
    fixture.channel.write(Chain(Slice::immortal(std::string_view(*frame))));
    const Chain out = fixture.channel.take_sent();
    CHECK(out.back().view().data() == frame->data());
    CHECK(out.back().size() == frame->size());
  }
  CHECK(scope.copied().total() == 0);
  fixture.channel.write(Chain(Slice::copy(std::string(512, 'x'))));
  CHECK(fixture.channel.take_sent().size() < 100);
}

TEST_CASE("a frame above the limit is neither sent nor passed on, in whatever shape it comes") {
  CompressionOptions options;
  options.max_frame_bytes = 1000;
  const std::string above = "a frame of 1001 bytes is above max_frame_bytes, 1000";
  Fixture sender(options);
  sender.channel.write(Chain(Slice::copy(std::string(1001, 'x'))));
  CHECK(sender.channel.take_sent().empty());
  CHECK(sender.seen == above);
  Fixture as_it_is(options);
  as_it_is.channel.receive(prefixed('\0' + std::string(1000, 'x')));
  CHECK((as_it_is.seen == "[" + std::string(1000, 'x') + "]"));
  as_it_is.seen.clear();
  as_it_is.channel.receive(prefixed('\0' + std::string(1001, 'x')));
  CHECK(as_it_is.seen == above);
  Fixture receiver(options);
  receiver.channel.receive(on_wire({}, {std::string(1001, 'x'), "next"}));
  CHECK(receiver.seen == "a frame decompresses to more than max_frame_bytes, 1000[next]");
}

TEST_CASE("a frame with another first byte, or none, is an error") {
  CompressionOptions options;
  Fixture fixture(options);
  fixture.channel.receive(prefixed("\1x"));
  CHECK(fixture.seen == "a frame begins with 1 instead of 0 or 3");
  fixture.seen.clear();
  fixture.channel.receive(prefixed(""));
  CHECK(fixture.seen == "a frame has no first byte instead of 0 or 3");
  fixture.seen.clear();
  fixture.channel.receive(prefixed("\3"));
  CHECK(fixture.seen == "a compressed frame ends early");
}

TEST_CASE("reading takes a break until the next tick when much has been decompressed") {
  CompressionOptions options;
  options.tick_bytes = 250'000;
  std::string expected;
  std::vector<std::string> frames;
  for (char letter = 'a'; letter != 'u'; ++letter) {
    frames.emplace_back(100'000, letter);
    expected += "[" + frames.back() + "]";
  }
  Fixture fixture(options);
  fixture.channel.receive(on_wire(options, frames));
  fixture.channel.receive_end();
  const std::size_t soon = count(fixture.seen, '[');
  CHECK(soon >= 3);
  CHECK(soon <= 12);  // 3 a tick, and the two calls are 4 ticks
  for (int i = 0; i < 20; ++i) {
    const std::size_t before = count(fixture.seen, '[');
    fixture.channel.tick();  // two of the loop
    CHECK(count(fixture.seen, '[') <= before + 6);
  }
  CHECK((fixture.seen == expected + "end"));
}

TEST_CASE("frames that cannot be decompressed count as work") {
  CompressionOptions options;
  options.max_frame_bytes = 1000;
  Fixture fixture(options);
  std::string bytes;
  for (int i = 0; i < 50; ++i) bytes += on_wire({}, {std::string(10'000, 'x')}).to_string();
  fixture.channel.receive(bytes);
  CHECK(count(fixture.seen, ',') <= 5);
  for (int i = 0; i < 50; ++i) fixture.channel.tick();
  CHECK(count(fixture.seen, ',') == 50);
}

TEST_CASE("a codec that is taken out during its break lets reading go on") {
  CompressionOptions options;
  options.tick_bytes = 1;
  Fixture fixture(options, [](Events& events) {
    // In the first frame, before the break; in the second one there is no codec any more.
    if (HandlerNode* codec = events.pipeline().find("CompressionCodec"))
      CHECK(events.pipeline().remove(*codec));
  });
  const std::string raw = prefixed("raw");
  Chain bytes = on_wire(options, {std::string(1000, 'x')});
  bytes.append(Chain(Slice::copy(raw)));
  fixture.channel.receive(std::move(bytes));
  CHECK((fixture.seen == "[" + std::string(1000, 'x') + "][raw]"));

  // At the end of the tick, when the break has begun and not ended.
  struct Remover final : DeferredTask {
    void run_deferred() override {
      HandlerNode* const codec = channel->pipeline().find("CompressionCodec");
      REQUIRE(codec != nullptr);
      CHECK_FALSE(channel->reading());
      CHECK(channel->pipeline().remove(*codec));
      CHECK(channel->reading());
    }
    EmbeddedChannel* channel = nullptr;
  } remover;
  Fixture later(options, [&](Events& events) { events.channel().loop().defer(remover); });
  remover.channel = &later.channel;
  later.channel.receive(on_wire(options, {std::string(1000, 'x')}));
  CHECK_FALSE(later.channel.pipeline().find("CompressionCodec"));
}

TEST_CASE("a channel may close, abort, or pause in a frame behind which a break begins") {
  CompressionOptions options;
  options.tick_bytes = 1;
  const std::string frame(1000, 'x');
  const std::function<void(Events&)> acts[] = {[](Events& events) { events.channel().close(); },
                                               [](Events& events) { events.channel().abort(); }};
  for (const auto& act : acts) {
    Fixture fixture(options, act);
    fixture.channel.receive(on_wire(options, {frame, frame}));
    fixture.channel.tick();
    CHECK((fixture.seen == "[" + frame + "]"));
    CHECK(fixture.channel.close_error());
  }
  Fixture pausing(options, [](Events& events) { events.channel().pause_read(); });
  pausing.channel.receive(on_wire(options, {frame, frame}));
  for (int i = 0; i < 3; ++i) pausing.channel.tick();
  CHECK(count(pausing.seen, '[') == 1);
  pausing.channel.resume_read();
  pausing.channel.tick();
  CHECK(count(pausing.seen, '[') == 2);
}

TEST_CASE("messages of gRPC are compressed as their flag says") {
  for (const Algorithm algorithm : kAlgorithms) {
    CompressionOptions options;
    options.algorithm = algorithm;
    options.max_frame_bytes = 10'000;
    const MakeCodec make = [options](EmbeddedChannel& channel, std::unique_ptr<Events> last) {
      return channel.pipeline().append(std::make_unique<GrpcMessageCodec>(),
                                       std::make_unique<GrpcCompression>(options), std::move(last));
    };
    const std::string large(10'000, 'x');
    const std::string bytes = test::sent(make, {"", "small", large});
    CHECK(bytes.starts_with("\0\0\0\0\0\0\0\0\0\5small\1\0\0\0"s));
    CHECK(bytes.size() < 200);
    CHECK((events_of(make, std::vector<std::string_view>{bytes}) == "[][small][" + large + "]end"));
    CHECK(test::sent(make, {large + "x"}) == "a frame of 10001 bytes is above max_frame_bytes, 10000");
    CHECK(events_of(make, "\1\0\0\0\0"s) == "a compressed frame ends earlyend");
    const std::string plain = "\0\0\0\x27\x11"s + large + "x";
    CHECK(events_of(make, std::vector<std::string_view>{plain}) ==
          "a frame of 10001 bytes is above max_frame_bytes, 10000end");
  }
}
