// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/channel/pipeline.hpp"

using namespace linkspan;

namespace {

// Text in lines; keeps what has no end yet.
class Lines final : public Codec<Chain, std::string> {
 public:
  void on_read(Chain&& data) override {
    buffer_ += data.to_string();
    std::size_t end;
    while (!removed() && (end = buffer_.find('\n')) != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      pass(std::move(line));
    }
  }
  void on_write(std::string&& line) override { write(Chain(Slice::adopt(std::move(line) + "\n"))); }
  Chain take_unread() override { return Chain(Slice::adopt(std::exchange(buffer_, {}))); }

 private:
  std::string buffer_;
};

class Echo final : public Service<std::string> {
 public:
  void on_read(std::string&& line) override { write(std::move(line)); }
};

class Number final : public Handler<std::string, int, int, std::string> {
 public:
  void on_read(std::string&& text) override { pass(std::stoi(text)); }
  void on_write(int&& value) override { write(std::to_string(value)); }
};

// Takes part in nothing.
class Idle final : public Handler<std::string, std::string, std::string, std::string> {};

}  // namespace

TEST_CASE("messages go through the handlers in order, in both directions") {
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines, Idle, Echo>());
  CHECK(channel.pipeline().to_string() == "Lines, Idle, Echo");
  channel.open();
  channel.receive("one\ntw");
  CHECK(channel.take_sent() == "one\n");
  channel.receive("o\n");
  CHECK(channel.take_sent() == "two\n");
}

TEST_CASE("a refused join names both sides and leaves the pipeline as it was") {
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append<Lines, Echo>());
  const Status status = channel.pipeline().prepend(std::make_unique<Echo>());
  REQUIRE(!status);
  CHECK(status.error().message() == "the wire passes on Chain, but Echo reads std::string");
  CHECK(channel.pipeline().to_string() == "Lines, Echo");
  channel.open();
  channel.receive("x\n");
  CHECK(channel.take_sent() == "x\n");
}
