// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What holds for every codec that makes frames: handlers that pause, close, or edit the pipeline in the
// middle of a batch; what a slow peer costs; and where the headers of what is sent go.
#include "linkspan/codec/frame_codec.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codec/frame_events.hpp"
#include "linkspan/codec/delimiter_codec.hpp"
#include "linkspan/codec/fixed_size_codec.hpp"
#include "linkspan/codec/length_field_codec.hpp"
#include "linkspan/codec/length_prefix_codec.hpp"
#include "linkspan/codec/line_codec.hpp"
#include "linkspan/codec/varint_length_codec.hpp"

using namespace linkspan;
using namespace linkspan::test;
using std::string_literals::operator""s;

namespace {

/// A codec, and a way to put another one of its kind in its place.
struct Sample {
  std::string name;
  MakeCodec make;
  std::function<Status(Pipeline&, HandlerNode& old)> replace;
};

template <class Codec, class Options>
Sample sample(std::string name, MakeCodec make, const Options& options) {
  return {std::move(name), std::move(make), [options](Pipeline& pipeline, HandlerNode& old) {
            return pipeline.replace(old, std::make_unique<Codec>(options));
          }};
}

template <class Codec, class Options>
Sample sample(std::string name, const Options& options) {
  return sample<Codec>(std::move(name), codec<Codec>(options), options);
}

std::vector<Sample> samples() {
  LengthFieldOptions field;
  field.width = field.strip_bytes = 2;
  DelimiterOptions delimiter;
  delimiter.delimiters = {"--", ";"};
  return {sample<LengthPrefixCodec>("LengthPrefixCodec", LengthPrefixOptions()),
          sample<LengthFieldCodec>("LengthFieldCodec", field),
          sample<VarintLengthCodec>("VarintLengthCodec", VarintLengthOptions()),
          sample<LineCodec>("LineCodec", LineOptions()),
          sample<DelimiterCodec>("DelimiterCodec", delimiter),
          sample<FixedSizeCodec>("FixedSizeCodec", std::size_t{3}),
          sample<GrpcMessageCodec>("GrpcMessageCodec", grpc_messages(1000), GrpcMessageOptions())};
}

/// The bytes of the frames abc, def and ghi.
std::string batch(const Sample& sample) {
  const bool grpc = sample.name == "GrpcMessageCodec";
  return sent(sample.make, grpc ? std::vector<std::string>{"pabc", "pdef", "pghi"}
                                : std::vector<std::string>{"abc", "def", "ghi"});
}

std::string all_frames(const Sample& sample) {
  return sample.name == "GrpcMessageCodec" ? "[pabc][pdef][pghi]" : "[abc][def][ghi]";
}

std::string first_frame(const Sample& sample) {
  return sample.name == "GrpcMessageCodec" ? "[pabc]" : "[abc]";
}

struct Fixture {
  Fixture(const Sample& sample, std::function<void(Events&)> on_frame) {
    REQUIRE(sample.make(channel, std::make_unique<Events>(seen, std::move(on_frame))));
    channel.open();
  }

  std::string seen;
  EmbeddedChannel channel;
};

/// A frame comes byte by byte. What is given to a codec is changed as soon as it was looked at: the first
/// `header_bytes` are put right again for the last byte, the others are not, but for those of the last
/// `behind_bytes` that came. Whoever looks at them again sees another length, or an end that is none.
std::string events_of_slow_peer(const MakeCodec& make, std::string bytes, std::size_t header_bytes,
                                std::size_t behind_bytes, char changed) {
  const std::string header = bytes.substr(0, header_bytes);
  std::string seen;
  EmbeddedChannel channel;
  REQUIRE(make(channel, std::make_unique<Events>(seen)));
  channel.open();
  for (std::size_t i = 0; i != bytes.size(); ++i) {
    if (i + 1 == bytes.size()) bytes.replace(0, header_bytes, header);
    channel.receive(Chain(Slice::immortal(std::string_view(bytes).substr(i, 1))));
    if (i + 1 < header_bytes) continue;
    for (std::size_t j = 0; j != header_bytes; ++j) bytes[j] = '\xff';
    if (i >= header_bytes + behind_bytes) bytes[i - behind_bytes] = changed;
  }
  return seen;
}

/// Counts how often it is asked.
class CountingCodec final : public FrameCodec {
 public:
  CountingCodec(std::size_t frame_bytes, int& calls) : frame_bytes_(frame_bytes), calls_(calls) {}
  void on_write(Chain&& frame) override { write(std::move(frame)); }

 private:
  FrameStep next(const Chain& input) override {
    ++calls_;
    return input.size() < frame_bytes_ ? FrameStep::wait(frame_bytes_) : FrameStep::frame(frame_bytes_);
  }

  std::size_t frame_bytes_;
  int& calls_;
};

}  // namespace

TEST_CASE("each frame of a batch is passed on only when reading goes on") {
  for (const Sample& sample : samples()) {
    CAPTURE(sample.name);
    Fixture fixture(sample, [](Events& events) { events.channel().pause_read(); });
    fixture.channel.receive(batch(sample));
    fixture.channel.receive_end();
    std::size_t frame_bytes = first_frame(sample).size();
    CHECK(fixture.seen == first_frame(sample));
    for (std::size_t frames = 2; frames <= 3; ++frames) {
      fixture.channel.resume_read();
      fixture.channel.tick();
      CHECK(fixture.seen == all_frames(sample).substr(0, frames * frame_bytes));
    }
    fixture.channel.resume_read();
    fixture.channel.tick();
    CHECK(fixture.seen == all_frames(sample) + "end");
  }
}

TEST_CASE("a handler that closes or aborts in a batch gets no further frame, and no error") {
  for (const Sample& sample : samples()) {
    CAPTURE(sample.name);
    Fixture closing(sample, [](Events& events) { events.channel().close(); });
    closing.channel.receive(batch(sample) + batch(sample).substr(0, 2));
    CHECK(closing.seen == first_frame(sample));
    Fixture aborting(sample, [](Events& events) { events.channel().abort(); });
    aborting.channel.receive(batch(sample) + batch(sample).substr(0, 2));
    CHECK(aborting.seen == first_frame(sample));
  }
}

TEST_CASE("a codec that is taken out in a batch hands on what it has not decoded, and then all that comes") {
  for (const Sample& sample : samples()) {
    CAPTURE(sample.name);
    Status removed = std::monostate();
    Fixture fixture(sample, [&](Events& events) {
      if (HandlerNode* codec = events.pipeline().find(sample.name))
        removed = events.pipeline().remove(*codec);
    });
    const std::string bytes = batch(sample);
    fixture.channel.receive(bytes);
    if (sample.name == "GrpcMessageCodec") {  // what is behind it takes nothing else, so it stays
      CHECK_FALSE(removed.ok());
      CHECK(fixture.seen == all_frames(sample));
      continue;
    }
    CHECK(removed.ok());
    CHECK(fixture.seen == "[abc][" + bytes.substr(bytes.size() / 3) + "]");
    fixture.channel.receive("raw");
    fixture.channel.receive_end();
    CHECK(fixture.seen == "[abc][" + bytes.substr(bytes.size() / 3) + "][raw]end");
  }
}

TEST_CASE("a codec that is replaced in a batch, in the middle of a frame, loses nothing to its successor") {
  for (const Sample& sample : samples()) {
    CAPTURE(sample.name);
    const std::string bytes = batch(sample);
    for (std::size_t size = bytes.size() / 3; size <= bytes.size(); ++size) {
      int replaced = 0;
      Fixture fixture(sample, [&](Events& events) {
        HandlerNode* const codec = events.pipeline().find(sample.name);
        REQUIRE(codec != nullptr);
        if (replaced++ == 0) CHECK(sample.replace(events.pipeline(), *codec));
      });
      fixture.channel.receive(std::string_view(bytes).substr(0, size));
      CHECK(replaced != 0);
      if (size != bytes.size()) fixture.channel.receive(std::string_view(bytes).substr(size));
      fixture.channel.receive_end();
      CHECK(fixture.seen == all_frames(sample) + "end");
    }
  }
}

TEST_CASE("a line upgrades a connection to another framing, in one piece with what follows it") {
  const Sample lines = sample<LineCodec>("LineCodec", LineOptions());
  Fixture fixture(lines, [](Events& events) {
    if (HandlerNode* codec = events.pipeline().find("LineCodec")) {
      CHECK(events.pipeline().replace(*codec, std::make_unique<LengthPrefixCodec>()));
    }
  });
  fixture.channel.receive("upgrade\r\n\0\0\0\3one\0\0\0\3t"s);
  fixture.channel.receive("wo");
  CHECK(fixture.seen == "[upgrade][one][two]");
}

TEST_CASE("what a slow peer has sent is not looked at again before the frame is there") {
  const std::string frame(300, 'x');
  const std::string seen_frame = "[" + std::string(299, '!');  // all but the last byte
  const auto events = [&](const MakeCodec& make, std::size_t header_bytes) {
    return events_of_slow_peer(make, sent(make, {frame}), header_bytes, 0, '!').substr(0, 300);
  };
  LengthFieldOptions field;
  field.offset = 3;
  CHECK(events_of_slow_peer(codec<LengthFieldCodec>(field), "abc\0\0\1\x2c"s + frame, 7, 0, '!') ==
        "[abc\0\0\1\x2c"s + std::string(299, '!') + "x]");
  CHECK(events(codec<LengthPrefixCodec>(LengthPrefixOptions()), 4) == seen_frame);
  CHECK(events(codec<VarintLengthCodec>(VarintLengthOptions()), 2) == seen_frame);
  CHECK(events(codec<FixedSizeCodec>(std::size_t{300}), 0) == seen_frame);
  CHECK(events_of_slow_peer(grpc_messages(1000), sent(grpc_messages(1000), {"p" + frame}), 5, 0, '!')
            .starts_with("[p" + std::string(299, '!')));

  // Here every byte that is seen again would end the frame.
  for (const bool strip : {true, false}) {
    LineOptions line;
    line.strip = strip;
    CHECK(events_of_slow_peer(codec<LineCodec>(line), frame + "\r\n", 0, 0, '\n') ==
          "[" + std::string(strip ? 300 : 301, '\n') + (strip ? "]" : "\n]"));
  }
  DelimiterOptions delimiters;
  delimiters.delimiters = {"aab", "!"};
  const MakeCodec make = codec<DelimiterCodec>(delimiters);
  CHECK(events_of_slow_peer(make, frame + "!", 0, 0, '!') == "[" + std::string(300, '!') + "]");
  // Where one may begin, its bytes are looked at again, and no others.
  std::string starts;
  while (starts.size() < 300) starts += "aax";
  CHECK(events_of_slow_peer(make, starts + "!", 0, 2, '!') == "[" + std::string(298, '!') + "ax]");
}

TEST_CASE("a codec is asked once for what it waits for, however many pieces come") {
  int calls = 0;
  std::string seen;
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append(std::make_unique<CountingCodec>(1000, calls),
                                    std::make_unique<Events>(seen)));
  channel.open();
  for (int frame = 1; frame <= 3; ++frame) {
    for (int i = 0; i != 1000; ++i) channel.receive("x");
    CHECK(calls == 2 * frame);
  }
}

TEST_CASE("headers go into a frame's headroom, where it has some that nobody sees") {
  LengthFieldOptions field;
  field.strip_bytes = 4;
  for (const MakeCodec& make :
       {codec<LengthPrefixCodec>(LengthPrefixOptions()), codec<LengthFieldCodec>(field),
        codec<VarintLengthCodec>(VarintLengthOptions())}) {
    std::string seen;
    EmbeddedChannel channel;
    REQUIRE(make(channel, std::make_unique<Events>(seen)));
    channel.open();
    BlockPool& pool = channel.loop().pool();
    constexpr std::size_t kHeadroomBytes = 16;
    const auto frame_with_headroom = [&] {
      Block block = pool.allocate(512);
      block.drop_front(kHeadroomBytes);
      for (std::byte& byte : block.writable()) byte = std::byte{'x'};
      return std::move(block).freeze_all(400);
    };
    Slice slice = frame_with_headroom();
    const std::byte* const data = slice.data();
    const std::uint64_t before = pool.statistics().allocations;
    channel.write(Chain(std::move(slice)));
    const Chain in_place = channel.take_sent();
    CHECK(in_place.slice_count() == 1);
    CHECK(in_place.back().data() + in_place.size() == data + 400);
    CHECK(pool.statistics().allocations == before);

    Slice shared = frame_with_headroom();
    channel.write(Chain(shared));
    const Chain apart = channel.take_sent();
    CHECK(apart.slice_count() == 2);
    CHECK((apart == in_place.to_string()));
    CHECK(pool.statistics().allocations == before + 2);  // that frame's block, and one for headers
  }
}

TEST_CASE("delimiters that are sent share their memory") {
  DelimiterOptions options;
  options.delimiters = {"\r\n"};
  std::string seen;
  EmbeddedChannel channel;
  REQUIRE(codec<DelimiterCodec>(options)(channel, std::make_unique<Events>(seen)));
  channel.open();
  channel.write(Chain(Slice::immortal("a")));
  channel.write(Chain(Slice::immortal("b")));
  const Chain out = channel.take_sent();
  CHECK(out == "a\r\nb\r\n");
  CHECK(out[1].data() == out[3].data());
}
