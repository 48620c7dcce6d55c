// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/channel/buffered_writer.hpp"

#include <doctest/doctest.h>

#include <deque>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "linkspan/transport/transport.hpp"
#include "out_of_memory/failing_allocations.hpp"
#include "support/log_capture.hpp"

using namespace linkspan;
using linkspan::test::fail_each_allocation;
using linkspan::test::LogCapture;

namespace {

struct Told {
  int times = 0;
  std::error_code error;

  [[nodiscard]] WriteDone record() {
    return [this](std::error_code result) {
      ++times;
      error = result;
    };
  }
};

}  // namespace

TEST_CASE(
    "a buffered writer without memory completes everything once, and loses nothing that it says was taken") {
  const LogCapture log;
  const auto loop = EventLoop::create(transport_engine().value_or_throw()).value_or_throw();
  const std::string large(3000, 'x');
  const std::string tail = "tail";
  BufferedWriterOptions options;
  options.reference_threshold_bytes = 2048;
  options.chunk_bytes = 4096;
  options.pool_bytes = 4096;

  struct Sent {
    Chunk chunk;
    WriteDone done;
  };
  std::deque<Sent> wire;
  std::string received;
  received.reserve(10'000);  // the test's own memory is not what fails
  std::vector<Told> told(6);
  std::error_code end;
  bool attached = false;  // what is thrown before that reaches the caller, who has asked for nothing yet
  int failures = 0;

  fail_each_allocation(
      [&] {
        wire.clear();
        received.clear();
        told.assign(told.size(), {});
        end = {};
        attached = false;
        BufferedWriter writer(*loop, options);
        writer.attach([&](Chunk&& chunk, WriteDone done) {
          wire.push_back({std::move(chunk), std::move(done)});
        });
        attached = true;
        CHECK_NOTHROW(writer.write(tail, told[0].record()));
        CHECK_NOTHROW(writer.write(large, told[1].record()));
        CHECK_NOTHROW(writer.write(Chain(Slice::immortal("immortal")), told[2].record()));
        CHECK_NOTHROW(writer.write_when_room(std::as_bytes(std::span(large)), told[3].record()));
        CHECK_NOTHROW(writer.flush(told[4].record()));
        CHECK_NOTHROW(writer.close(told[5].record()));
        for (int i = 0; i < 20; ++i) {
          loop->run_once(Duration::zero());
          while (!wire.empty()) {
            Sent sent = std::move(wire.front());
            wire.pop_front();
            for (const Slice& slice : sent.chunk.bytes) {
              received.append(reinterpret_cast<const char*>(slice.data()), slice.size());
            }
            sent.chunk.bytes.clear();
            sent.done({});
          }
        }
        end = writer.error();
      },
      [&](bool failed) {
        wire.clear();
        for (int i = 0; i < 5; ++i) loop->run_once(Duration::zero());
        if (!attached) return;
        failures += failed ? 1 : 0;
        for (const Told& each : told) CHECK(each.times == 1);
        if (!end) {  // what was refused is left out, and so its completion says
          const std::string written[] = {tail, large, "immortal", large};
          std::string taken;
          for (std::size_t i = 0; i < std::size(written); ++i) taken += told[i].error ? "" : written[i];
          CHECK((received == taken));
        }
        if (failed) return;
        CHECK_FALSE(end);
        for (const Told& each : told) CHECK_FALSE(each.error);
      });
  CHECK(failures > 10);
}
