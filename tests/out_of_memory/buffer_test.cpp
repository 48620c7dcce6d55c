// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Each operation of the buffer room with each of its allocations failing: it throws std::bad_alloc or says
// that it was refused, and nothing has changed or leaked.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "linkspan/buffer/block_pool.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/chain_writer.hpp"
#include "linkspan/buffer/mapped_file.hpp"
#include "out_of_memory/failing_allocations.hpp"
#include "support/slices.hpp"

using namespace linkspan;
using linkspan::test::fail_each_allocation;
using linkspan::test::FailingAllocation;
using linkspan::test::Releases;

namespace {

constexpr std::string_view kText = "0123456789abcdef";

// Slices of two bytes each, in a ring that is full.
Chain full_chain(Releases& releases) {
  Chain chain;
  for (std::size_t i = 0; i < kText.size(); i += 2) chain.append(releases.slice(kText.substr(i, 2)));
  return chain;
}

}  // namespace

TEST_CASE("a chain that cannot grow stays as it was, and so does what was to be added") {
  const std::vector<std::function<void(Chain & chain, Chain & other, Chain & result)>> operations{
      [](Chain& chain, Chain&, Chain&) { chain.append(Slice::immortal("x")); },
      [](Chain& chain, Chain&, Chain&) { chain.prepend(Slice::immortal("x")); },
      [](Chain& chain, Chain&, Chain&) { chain.insert(3, Slice::immortal("x")); },
      [](Chain& chain, Chain& other, Chain&) { chain.append(std::move(other)); },
      [](Chain& chain, Chain& other, Chain&) { chain.prepend(std::move(other)); },
      [](Chain& chain, Chain& other, Chain&) { chain.insert(3, std::move(other)); },
      [](Chain& chain, Chain&, Chain& result) { result = chain.split_front(13); },
      [](Chain& chain, Chain&, Chain& result) { result = chain.cut(1, 12); },
      [](Chain& chain, Chain&, Chain& result) { result = chain.cut(3, 2); },
      [](Chain& chain, Chain&, Chain& result) { result = chain.share(); },
      [](Chain& chain, Chain&, Chain&) { static_cast<void>(chain.pinned_size()); },
      [](Chain& chain, Chain&, Chain& result) { result = Chain(chain.flatten()); },
  };
  for (std::size_t i = 0; i < operations.size(); ++i) {
    CAPTURE(i);
    Releases releases;
    Chain chain;
    Chain other;
    Chain result;
    const auto reset = [&] {
      chain = full_chain(releases);
      other = full_chain(releases);
      result.clear();
    };
    reset();
    const std::size_t allocations = fail_each_allocation([&] { operations[i](chain, other, result); },
                                                         [&](bool failed) {
                                                           if (!failed) return;
                                                           CHECK(chain == kText);
                                                           CHECK(other == kText);
                                                           CHECK(result.empty());
                                                         });
    CHECK(allocations != 0);
    CHECK(chain.size() + other.size() + result.size() >= 2 * kText.size());
    chain.clear();
    other.clear();
    result.clear();
    CHECK(releases.alive() == 0);
  }
}

TEST_CASE("a queue that lives on takes, splits off and drops references without allocating") {
  const Slice piece = Slice::copy(kText);
  Chain queue;
  const auto fill_and_drain = [&] {
    for (int i = 0; i < 64; ++i) queue.append(piece);
    static_cast<void>(queue.split_front(kText.size() * 3 + 1));
    queue.drop_front(queue.size());
  };
  fill_and_drain();
  CHECK(fail_each_allocation(fill_and_drain, [](bool failed) { CHECK(!failed); }) == 0);
}

TEST_CASE("a slice that cannot be made leaves its memory with the caller") {
  int freed = 0;
  std::string text(100, 't');
  std::vector<std::byte> bytes(100);
  auto array = std::make_unique<std::byte[]>(100);
  const auto owner = std::make_shared<const std::string>("owned");
  Slice slice;
  CHECK(fail_each_allocation([&] { slice = Slice::adopt(std::move(text)); },
                             [&](bool failed) { CHECK(text.size() == (failed ? 100 : 0)); }) == 1);
  CHECK(fail_each_allocation([&] { slice = Slice::adopt(std::move(bytes)); },
                             [&](bool failed) { CHECK(bytes.size() == (failed ? 100 : 0)); }) == 1);
  CHECK(fail_each_allocation(
            [&] { slice = Slice::borrow(std::as_bytes(std::span(kText)), [&freed] { ++freed; }); },
            [&](bool) { CHECK(freed == 0); }) == 1);
  slice = Slice();
  CHECK(freed == 1);
  CHECK(fail_each_allocation([&] { slice = Slice::adopt(owner, std::as_bytes(std::span(*owner))); },
                             [&](bool failed) { CHECK(owner.use_count() == (failed ? 1 : 2)); }) == 1);
  CHECK(fail_each_allocation([&] { slice = Slice::copy("text"); }, [](bool) {}) == 1);
}

TEST_CASE("a mapping whose owner cannot be made is unmapped") {
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0);
  const auto mappings = [] {
    std::size_t lines = 0;
    char buffer[4096];
    const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t size = 0; (size = ::read(maps, buffer, sizeof(buffer))) > 0;) {
      lines += static_cast<std::size_t>(std::count(buffer, buffer + size, '\n'));
    }
    ::close(maps);
    return lines;
  };
  const std::size_t before = mappings();
  std::size_t worst = 0;
  const std::size_t allocations = fail_each_allocation([file] { static_cast<void>(map_file(file, 0, 100)); },
                                                       [&](bool) { worst = std::max(worst, mappings()); });
  CHECK(allocations != 0);
  CHECK(worst <= before);
  ::close(file);
}

TEST_CASE("allocators refuse when the heap does, and a writer says so") {
  BlockPool pool;
  {
    const FailingAllocation failing(0);
    CHECK_FALSE(pool.allocate(100));
  }
  CHECK(pool.statistics().refusals == 1);
  CHECK(pool.statistics().live_bytes == 0);
  {
    const FailingAllocation failing(0);
    CHECK_FALSE(heap_allocator().allocate(100));
  }
  ChainWriter writer(pool);
  {
    const FailingAllocation failing(0);
    writer.write("text");
    CHECK(writer.error() == errc::pool_exhausted);
  }
  CHECK(writer.take().empty());
}

TEST_CASE("compact changes nothing when it runs out of memory") {
  Chain chain;
  const auto reset = [&chain] {
    Block block = heap_allocator().allocate(1000);
    block.data()[0] = std::byte{'x'};
    chain = Chain(std::move(block).freeze_all(1));
  };
  reset();
  CHECK(fail_each_allocation([&] { chain.compact(); },
                             [&](bool failed) {
                               CHECK(chain == "x");
                               CHECK(chain.pinned_size() == (failed ? 1000 : 1));
                             }) != 0);
}

TEST_CASE("in the steady state queues, pools and writers allocate nothing" *
          doctest::skip(kBufferDebug)) {  // where every holder is recorded
  BlockPool pool;
  ChainWriter writer(pool);
  Chain queue;
  const Slice piece = Slice::copy(std::string(4096, 'x'));
  std::size_t sent = 0;
  const auto round = [&] {
    for (int i = 0; i < 100; ++i) {
      writer.write_varint(sent);
      writer.write("a small piece");
      writer.append(piece);
      queue.append(writer.take());
      queue.append(pool.allocate(4000).freeze(4000));
      if (queue.size() > 50'000) {
        const Chain front = queue.split_front(5'000);
        sent += front.size();
      }
    }
    queue.drop_front(queue.size());
  };
  for (int i = 0; i < 20; ++i) round();  // the ring and the pool reach their sizes
  const FailingAllocation failing(0);
  for (int i = 0; i < 10; ++i) round();
  CHECK_FALSE(failing.failed());
  CHECK(sent != 0);
}
