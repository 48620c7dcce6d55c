// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/shared_handler.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/channel/server.hpp"
#include "tests/channel/handlers.hpp"
#include "tests/channel/peer.hpp"
#include "tests/support/log_capture.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

struct Session {
  int lines = 0;
  std::string user = "nobody";
};

const ChannelKey<Session> kSession;
const ChannelKey<std::shared_ptr<int>> kNote;

// Counts the lines of each channel, and those of all.
class CountLines final : public SharedHandler<std::string, std::string, std::string, std::string> {
 public:
  void on_read(Place& place, std::string&& line) const override {
    ++place.channel().attributes().get(kSession).lines;
    all_.fetch_add(1, std::memory_order_relaxed);
    place.pass(std::move(line));
  }
  void on_inactive(Place&, std::error_code) const override { gone_.fetch_add(1, std::memory_order_relaxed); }

  [[nodiscard]] int all() const { return all_.load(std::memory_order_relaxed); }
  [[nodiscard]] int gone() const { return gone_.load(std::memory_order_relaxed); }

 private:
  mutable std::atomic<int> all_{0};
  mutable std::atomic<int> gone_{0};
};

// Answers with how many lines the channel has seen.
class TellCount final : public Service<std::string> {
 public:
  void on_read(std::string&&) override { write(std::to_string(channel().attributes().get(kSession).lines)); }
};

class Bystander final : public SharedHandler<std::string, std::string, std::string, std::string> {};

// Hands the stage on in words, and reads another type than it passes on.
class Measure final : public SharedHandler<std::string, std::size_t, std::size_t, std::string> {
 public:
  explicit Measure(std::vector<std::string>& log) : log_(&log) {}
  void on_read(Place& place, std::string&& line) const override { place.pass(line.size()); }
  void on_write(Place& place, std::size_t&& number) const override {
    place.write(std::to_string(number), [log = log_](std::error_code) { log->emplace_back("written"); });
  }
  void on_added(Place&) const override { log_->emplace_back("added"); }
  void on_removed(Place&) const override { log_->emplace_back("removed"); }
  void on_active(Place& place) const override {
    log_->emplace_back("active");
    place.pass_active();
  }
  void on_error(Place& place, std::error_code, std::string_view detail) const override {
    log_->push_back("error " + std::string(detail));
    place.channel().close();
  }

 private:
  std::vector<std::string>* log_;
};

class Numbers final : public Service<std::size_t> {
 public:
  void on_read(std::size_t&& number) override {
    if (number == 13) throw std::runtime_error("thirteen");
    write(std::move(number));
  }
};

}  // namespace

TEST_CASE("one shared handler serves several channels, whose state is apart") {
  const auto counter = std::make_shared<const CountLines>();
  EmbeddedChannel first;
  EmbeddedChannel second;
  for (EmbeddedChannel* channel : {&first, &second}) {
    REQUIRE(channel->pipeline().append(std::make_unique<Lines>(), share_handler(counter),
                                       std::make_unique<TellCount>()));
    channel->open();
  }
  first.receive("a\nb\n");
  second.receive("c\n");
  CHECK(first.take_sent().to_string() == "1\n2\n");
  CHECK(second.take_sent().to_string() == "1\n");
  CHECK(counter->all() == 3);
  CHECK(first.pipeline().to_string().find("CountLines") != std::string::npos);
  CHECK(first.pipeline().find("CountLines") != nullptr);
}

TEST_CASE("a shared handler hears what it overrides, changes types, and completes writes") {
  std::vector<std::string> log;
  const auto measure = std::make_shared<Measure>(log);
  EmbeddedChannel channel;
  const Status refused = channel.pipeline().append(share_handler(measure));
  CHECK(refused.error().message().find("Measure reads std::string") != std::string::npos);
  REQUIRE(channel.pipeline().append(std::make_unique<Lines>(), share_handler(measure),
                                    std::make_unique<Numbers>()));
  channel.open();
  channel.receive("four\n");
  CHECK(channel.take_sent().to_string() == "4\n");
  channel.receive("thirteen char\n");
  static_cast<void>(channel.take_sent());
  CHECK(log == std::vector<std::string>{"added", "active", "written", "error thirteen", "removed"});
}

TEST_CASE("a shared handler that overrides nothing stands aside") {
  EmbeddedChannel channel;
  REQUIRE(channel.pipeline().append(std::make_unique<Lines>(),
                                    share_handler(std::make_shared<const Bystander>()),
                                    std::make_unique<Echo>()));
  using Node = detail::SharedNode<Bystander>;
  CHECK((detail::kHandlerTable<Node>.read == nullptr));
  CHECK((detail::kHandlerTable<Node>.write == nullptr));
  CHECK(detail::kHandlerTable<Node>.events == 0);
  channel.open();
  channel.receive("hello\n");
  CHECK(channel.take_sent().to_string() == "hello\n");
}

TEST_CASE("a shared handler serves the channels of several loops at once") {
  on_every_transport(2, [](LoopGroup& loops) {
    const auto counter = std::make_shared<const CountLines>();
    {
      ServerOptions options;
      options.endpoint = loopback();
      options.initializer = [&](Channel& channel) {
        return channel.pipeline().append(std::make_unique<Lines>(), share_handler(counter),
                                         std::make_unique<TellCount>());
      };
      const Server server = Server::start(loops, options).value_or_throw();
      constexpr int kPeers = 4;
      constexpr int kLines = 50;
      std::vector<std::unique_ptr<test::Peer>> peers;
      for (int i = 0; i < kPeers; ++i) {
        peers.push_back(std::make_unique<test::Peer>(server.local_endpoint()));
        for (int line = 0; line < kLines; ++line) peers.back()->send("x\n");
        peers.back()->end();
      }
      for (const auto& peer : peers) {
        const std::string all = peer->receive_all();
        CHECK(all.ends_with("49\n50\n"));
      }
      CHECK(counter->all() == kPeers * kLines);
    }
    CHECK(counter->gone() == 4);
    CHECK(counter.use_count() == 1);
  });
}

TEST_CASE("attributes are made on first use, replaced, erased, and destroyed with their channel") {
  const auto note = std::make_shared<int>(7);
  {
    EmbeddedChannel channel;
    ChannelAttributes& attributes = channel.attributes();
    CHECK(attributes.find(kNote) == nullptr);
    CHECK(attributes.find(kSession) == nullptr);
    attributes.emplace(kNote, note);
    CHECK(attributes.find(kSession) == nullptr);
    CHECK(attributes.get(kSession).user == "nobody");
    attributes.get(kSession).user = "somebody";
    CHECK(attributes.find(kSession)->user == "somebody");
    CHECK(note.use_count() == 2);
    attributes.emplace(kNote, std::make_shared<int>(8));
    CHECK(note.use_count() == 1);
    CHECK(**attributes.find(kNote) == 8);
    attributes.emplace(kNote, note);
    attributes.erase(kNote);
    attributes.erase(kNote);
    CHECK(note.use_count() == 1);
    attributes.emplace(kNote, note);
  }
  CHECK(note.use_count() == 1);
}
