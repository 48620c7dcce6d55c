// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/metrics.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "linkspan/channel/embedded_channel.hpp"
#include "linkspan/loop/pending_budget.hpp"
#include "tests/channel/peer.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

class EchoBytes final : public Service<Chain> {
 public:
  void on_read(Chain&& data) override { write(std::move(data)); }
};

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("a meter counts what a channel does, and several may count into one") {
  const auto counters = std::make_shared<ChannelCounters>();
  EmbeddedChannel first({10, 5});
  EmbeddedChannel second;
  for (EmbeddedChannel* channel : {&first, &second}) {
    REQUIRE(
        channel->pipeline().append(std::make_unique<ChannelMeter>(counters), std::make_unique<EchoBytes>()));
    channel->open();
  }
  first.receive("more than ten bytes");
  second.receive("x");
  static_cast<void>(first.take_sent());
  first.break_connection(connection_lost(104));
  second.close();
  static_cast<void>(second.take_sent());
  CHECK(counters->opened == 2);
  CHECK(counters->closed == 2);
  CHECK(counters->failed == 1);
  CHECK(counters->reads == 2);
  CHECK(counters->bytes_read == 20);
  CHECK(counters->writes == 2);
  CHECK(counters->bytes_written == 20);
  CHECK(counters->not_writable == 1);
  Metrics metrics;
  metrics.add("both", *counters);
  CHECK(has_line(metrics.text(), "linkspan_channel_read_bytes_total{channel=\"both\"} 20"));
}

TEST_CASE("metrics of loops and servers are read on another thread, each family once") {
  on_every_transport(2, [](LoopGroup& loops) {
    ServerOptions options;
    options.endpoint = loopback();
    options.initializer = [](Channel& channel) { return channel.pipeline().append<EchoBytes>(); };
    const Server server = Server::start(loops, options).value_or_throw();
    test::Peer peer(server.local_endpoint());
    peer.send("hello");
    CHECK(peer.receive(5) == "hello");
    PendingBudget budget(7);
    budget.add(3);
    RequestCounters requests;
    requests.requests.add(4);

    Metrics metrics;
    for (EventLoop* loop : loops.loops()) metrics.add(*loop);
    metrics.add("echo", server);
    metrics.add("all", budget);
    metrics.add("questions", requests);
    metrics.add("program_things", "gauge", "Things\nof \\ mine", "a \"label\"", 1);
    const std::string text = metrics.text();
    CHECK(has_line(text, "linkspan_server_connections{server=\"echo\"} 1"));
    CHECK(has_line(text, "linkspan_server_accepted_total{server=\"echo\"} 1"));
    CHECK(has_line(text, "linkspan_pending_bytes{budget=\"all\"} 3"));
    CHECK(has_line(text, "linkspan_requests_total{client=\"questions\"} 4"));
    CHECK(has_line(text, "# HELP program_things Things\\nof \\\\ mine"));
    CHECK(has_line(text, "program_things{name=\"a \\\"label\\\"\"} 1"));
    CHECK(text.find("linkspan_loop_sent_bytes_total{loop=\"linkspan-1\"} ") != std::string::npos);

    // Samples follow the head of their family, and no family has two.
    std::istringstream lines(text);
    std::set<std::string> families;
    std::string family;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# HELP ")) {
        family = line.substr(7, line.find(' ', 7) - 7);
        CHECK(families.insert(family).second);
      } else if (line.starts_with("# TYPE ")) {
        CHECK(line.starts_with("# TYPE " + family + ' '));
      } else {
        CHECK(line.starts_with(family + '{'));
      }
    }
  });
}
