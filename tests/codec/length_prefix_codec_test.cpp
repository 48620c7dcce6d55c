// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/codec/length_prefix_codec.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"

using namespace linkspan;

namespace {

std::string framed(std::string_view body) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(body.size() >> shift));
  return bytes.append(body);
}

/// What the last handler has seen; outlives it, as a channel that closes destroys its handlers.
struct Seen {
  std::vector<std::string> frames;
  std::deque<Chain> slices;
  std::vector<std::error_code> errors;
  std::string detail;
  bool ended = false;
  std::optional<std::error_code> closed;
  bool handles_errors = false;
};

class Recorder final : public Service<Chain> {
 public:
  Recorder(Seen& seen_in, std::function<void(Recorder&)> on_frame)
      : seen(seen_in), on_frame_(std::move(on_frame)) {}

  void on_read(Chain&& frame) override {
    seen.frames.push_back(frame.to_string());
    seen.slices.push_back(std::move(frame));
    if (on_frame_) on_frame_(*this);
  }
  void on_read_end() override {
    seen.ended = true;
    pass_read_end();
  }
  void on_error(std::error_code code, std::string_view text) override {
    seen.errors.push_back(code);
    seen.detail = text;
    if (!seen.handles_errors) pass_error(code, text);
  }
  void on_inactive(std::error_code error) override { seen.closed = error; }
  using HandlerNode::channel;
  using HandlerNode::pipeline;

  Seen& seen;

 private:
  std::function<void(Recorder&)> on_frame_;
};

struct Fixture {
  explicit Fixture(LengthPrefixOptions options = {}, std::function<void(Recorder&)> on_frame = {}) {
    auto owned_codec = std::make_unique<LengthPrefixCodec>(options);
    codec = owned_codec.get();
    REQUIRE(channel.pipeline().append(std::move(owned_codec),
                                      std::make_unique<Recorder>(seen, std::move(on_frame))));
    channel.open();
  }

  Seen seen;
  EmbeddedChannel channel;
  LengthPrefixCodec* codec;
};

LengthPrefixOptions limit(std::size_t bytes) {
  LengthPrefixOptions options;
  options.max_frame_bytes = bytes;
  return options;
}

Slice piece(const std::string& bytes, std::size_t from, std::size_t to) {
  return Slice::immortal(std::string_view(bytes).substr(from, to - from));
}

const std::vector<std::string> kFrames{"", "a", "", "bcd", std::string(300, 'e'), "f"};

std::string stream_of_frames() {
  std::string bytes;
  for (const std::string& frame : kFrames) bytes += framed(frame);
  return bytes;
}

}  // namespace

TEST_CASE("input that is split anywhere gives the same frames, in reads or in slices of one read") {
  const std::string bytes = framed("") + framed("ab") + framed("cdefg");
  const std::vector<std::string> frames{"", "ab", "cdefg"};
  for (std::size_t i = 0; i <= bytes.size(); ++i) {
    for (std::size_t j = i; j <= bytes.size(); ++j) {
      Fixture reads;
      Fixture slices;
      Chain chain;
      for (const auto& [from, to] : {std::pair{std::size_t{0}, i}, {i, j}, {j, bytes.size()}}) {
        if (from == to) continue;
        reads.channel.receive(Chain(piece(bytes, from, to)));
        chain.append(piece(bytes, from, to));
      }
      slices.channel.receive(std::move(chain));
      CHECK(reads.seen.frames == frames);
      CHECK(slices.seen.frames == frames);
    }
  }
}

TEST_CASE("input that comes byte by byte gives the same frames") {
  const std::string bytes = stream_of_frames();
  Fixture fixture;
  for (std::size_t i = 0; i < bytes.size(); ++i) fixture.channel.receive(Chain(piece(bytes, i, i + 1)));
  CHECK(fixture.seen.frames == kFrames);
}

TEST_CASE("frames are cut out of what was received without copying, and share its memory") {
  const std::string bytes = framed(std::string(5000, 'x')) + framed(std::string(70'000, 'y'));
  Fixture fixture;
  Chain chain;
  for (std::size_t i = 0; i < bytes.size(); i += 1000) {
    chain.append(piece(bytes, i, std::min(i + 1000, bytes.size())));
  }
  const CopyScope scope;
  fixture.channel.receive(std::move(chain));
  CHECK(scope.copied()[CopyPlace::framing] == 0);
  CHECK(scope.copied().total() == scope.copied()[CopyPlace::user]);  // the recorder's own
  REQUIRE(fixture.seen.slices.size() == 2);
  CHECK(fixture.seen.slices[0].front().view().data() == bytes.data() + 4);
  CHECK(fixture.seen.slices[0].slice_count() == 6);
}

TEST_CASE("a frame that is sent gets its prefix in front, and is referenced") {
  Fixture fixture;
  const std::string body(100'000, 'b');
  const CopyScope scope;
  fixture.channel.write(Chain(Slice::immortal(body)));
  fixture.channel.write(Chain());
  fixture.channel.write(Chain(Slice::immortal("small")));
  const Chain sent = fixture.channel.take_sent();
  CHECK(scope.copied().total() == 0);
  CHECK(sent == framed(body) + framed("") + framed("small"));
  CHECK(sent[1].view().data() == body.data());
}

TEST_CASE("prefixes share one block of the loop's pool") {
  Fixture fixture;
  const std::uint64_t before = fixture.channel.loop().pool().statistics().allocations;
  for (int i = 0; i < 128; ++i) fixture.channel.write(Chain(Slice::immortal("x")));
  CHECK(fixture.channel.loop().pool().statistics().allocations == before + 1);
  std::string expected;
  for (int i = 0; i < 128; ++i) expected += framed("x");
  CHECK(fixture.channel.take_sent() == expected);
}

TEST_CASE("a frame at the limit passes, one above it is an error as soon as its prefix is there") {
  Fixture fixture(limit(10));
  fixture.channel.receive(framed("0123456789"));
  CHECK(fixture.seen.frames.size() == 1);
  CHECK(fixture.seen.errors.empty());
  fixture.channel.receive(framed("0123456789a").substr(0, 3));
  CHECK(fixture.seen.errors.empty());
  const std::uint64_t before = fixture.channel.loop().pool().statistics().allocations;
  fixture.channel.receive(framed("0123456789a").substr(3, 1));
  REQUIRE(fixture.seen.errors.size() == 1);
  CHECK(fixture.seen.errors[0] == errc::limit_exceeded);
  CHECK(fixture.seen.detail == "a frame of 11 bytes is above max_frame_bytes, 10");
  CHECK(fixture.channel.loop().pool().statistics().allocations == before);
  REQUIRE(fixture.seen.closed);
  CHECK(*fixture.seen.closed == errc::limit_exceeded);
}

TEST_CASE("the limit is 64 MiB unless it is set") {
  Fixture fixture;
  fixture.channel.receive(std::string_view("\x04\x00\x00\x00", 4));
  CHECK(fixture.seen.errors.empty());
  Fixture above;
  above.channel.receive(std::string_view("\x04\x00\x00\x01", 4));
  REQUIRE(above.seen.errors.size() == 1);
  Fixture largest;
  largest.channel.receive("\xff\xff\xff\xff");
  CHECK(largest.seen.detail == "a frame of 4294967295 bytes is above max_frame_bytes, 67108864");
}

TEST_CASE("nothing is read any more after a broken prefix, even if the channel stays open") {
  Fixture fixture(limit(10));
  fixture.seen.handles_errors = true;
  fixture.channel.receive(framed("01234567890") + framed("ok"));
  fixture.channel.receive(framed("ok"));
  fixture.channel.receive_end();
  CHECK(fixture.seen.frames.empty());
  CHECK(fixture.seen.errors.size() == 1);
  CHECK_FALSE(fixture.seen.closed);
  fixture.channel.write(Chain(Slice::immortal("bye")));
  CHECK(fixture.channel.take_sent() == framed("bye"));
}

TEST_CASE("a frame above the limit is not sent") {
  Fixture fixture(limit(10));
  fixture.seen.handles_errors = true;
  fixture.channel.write(Chain(Slice::immortal("0123456789a")));
  CHECK(fixture.channel.take_sent().empty());
  CHECK(fixture.seen.detail == "a frame of 11 bytes is above max_frame_bytes, 10");
}

TEST_CASE("the peer's end between two frames is passed on; in the middle of one it is an error") {
  const std::string bytes = framed("abc");
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    Fixture fixture;
    if (size != 0) fixture.channel.receive(std::string_view(bytes).substr(0, size));
    fixture.channel.receive_end();
    const bool whole = size == 0 || size == bytes.size();
    CHECK(fixture.seen.ended == whole);
    REQUIRE(fixture.seen.errors.size() == (whole ? 0 : 1));
    if (!whole) CHECK(fixture.seen.errors[0] == errc::truncated);
  }
}

TEST_CASE("a pause holds back what is decoded next, and the peer's end behind it") {
  Fixture fixture({}, [](Recorder& recorder) { recorder.channel().pause_read(); });
  fixture.channel.receive(framed("one") + framed("two"));
  fixture.channel.receive_end();
  CHECK(fixture.seen.frames == std::vector<std::string>{"one"});
  fixture.channel.resume_read();
  fixture.channel.tick();
  CHECK(fixture.seen.frames == std::vector<std::string>{"one", "two"});
  CHECK_FALSE(fixture.seen.ended);
  fixture.channel.resume_read();
  fixture.channel.tick();
  CHECK(fixture.seen.ended);
  CHECK(fixture.seen.errors.empty());
}

TEST_CASE("no frame is passed on after one that closes or aborts the channel") {
  Fixture closing({}, [](Recorder& recorder) { recorder.channel().close(); });
  closing.channel.receive(stream_of_frames());
  CHECK(closing.seen.frames.size() == 1);
  Fixture aborting({}, [](Recorder& recorder) { recorder.channel().abort(); });
  aborting.channel.receive(stream_of_frames());
  CHECK(aborting.seen.frames.size() == 1);
}

TEST_CASE("a codec that is taken out between two frames hands on what it has not decoded") {
  Fixture fixture({}, [](Recorder& recorder) {
    if (recorder.seen.frames.size() == 1)
      CHECK(recorder.pipeline().remove(*recorder.pipeline().find("LengthPrefixCodec")));
  });
  fixture.channel.receive(framed("upgrade") + "raw " + framed("bytes").substr(0, 2));
  CHECK(fixture.seen.frames == std::vector<std::string>{"upgrade", "raw " + framed("bytes").substr(0, 2)});
  CHECK(fixture.seen.errors.empty());
}

TEST_CASE("a codec that is replaced hands on the prefix of a frame that has begun") {
  Fixture fixture;
  const std::string bytes = framed("abcdef");
  fixture.channel.receive(std::string_view(bytes).substr(0, 7));
  CHECK(fixture.channel.pipeline().replace(*fixture.codec, std::make_unique<LengthPrefixCodec>()));
  fixture.channel.tick();
  fixture.channel.receive(std::string_view(bytes).substr(7));
  CHECK(fixture.seen.frames == std::vector<std::string>{"abcdef"});
}

TEST_CASE("when the pool refuses a block for a prefix, the frame is dropped with an error") {
  Fixture fixture;
  fixture.seen.handles_errors = true;
  BlockPool& pool = fixture.channel.loop().pool();
  std::vector<Block> taken;
  for (const std::size_t size : {std::size_t{256} << 10, std::size_t{512}}) {
    for (Block block = pool.allocate(size); block; block = pool.allocate(size))
      taken.push_back(std::move(block));
  }
  fixture.channel.write(Chain(Slice::immortal("lost")));
  CHECK(fixture.channel.take_sent().empty());
  REQUIRE(fixture.seen.errors.size() == 1);
  CHECK(fixture.seen.errors[0] == errc::pool_exhausted);
  taken.clear();
  fixture.channel.write(Chain(Slice::immortal("sent")));
  CHECK(fixture.channel.take_sent() == framed("sent"));
}
