// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>

#include "linkspan/channel/datagram_channel.hpp"
#include "linkspan/transport/transport.hpp"
#include "out_of_memory/failing_allocations.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::fail_each_allocation;
using linkspan::test::FailingAllocation;
using linkspan::test::LogCapture;

namespace {

class Echo final : public Service<Packet> {
 public:
  explicit Echo(std::size_t& messages) : messages_(messages) {}
  void on_read(Packet&& packet) override {
    ++messages_;
    write(std::move(packet));
  }

 private:
  std::size_t& messages_;
};

DatagramChannelOptions echoing(std::size_t& messages) {
  DatagramChannelOptions options;
  options.local = Endpoint::parse("127.0.0.1:0").value_or_throw();
  options.initializer = [&messages](Channel& channel) {
    return channel.pipeline().append(std::make_unique<Echo>(messages));
  };
  return options;
}

}  // namespace

TEST_CASE("a datagram channel allocates nothing for a message") {
  EventLoopOptions loop_options;
  loop_options.trim_interval = std::chrono::hours(1);
  const auto loop = EventLoop::create(transport_engine().value_or_throw(), loop_options).value_or_throw();
  std::size_t messages = 0;
  const BoundChannel one = open_datagram_channel(*loop, echoing(messages)).value_or_throw();
  const BoundChannel two = open_datagram_channel(*loop, echoing(messages)).value_or_throw();
  for (int i = 0; i < 16; ++i) {
    one.channel.write(Packet{Chain(Slice::copy(std::string(1000, 'x'))), two.local});
  }
  const auto pass_on = [&](std::size_t count) {
    messages = 0;
    while (messages < count) loop->run_once(std::chrono::milliseconds(1));
  };
  pass_on(2000);  // queues and pools reach their size
  const FailingAllocation failing(0);
  pass_on(2000);
  CHECK(!failing.failed());
}

TEST_CASE("a datagram channel that there is no memory for is not opened, and leaves nothing") {
  const LogCapture log;
  const auto loop = EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
  std::size_t messages = 0;
  const DatagramChannelOptions options = echoing(messages);
  ChannelRef opened;
  const std::size_t allocations = fail_each_allocation(
      [&] {
        const Result<BoundChannel> bound = open_datagram_channel(*loop, options);
        if (bound) opened = bound.value().channel;
      },
      [&](bool failed) {
        CHECK(opened.alive() == !failed);
        for (int i = 0; i < 5; ++i) loop->run_once(Duration::zero());
      });
  CHECK(allocations > 3);
  opened.abort();
  for (int i = 0; opened.alive() && i < 1000; ++i) loop->run_once(std::chrono::milliseconds(1));
  CHECK(!opened.alive());
}
