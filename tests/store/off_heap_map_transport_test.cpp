// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Values of an OffHeapMap on their way over a connection: sent straight from their pages, also when the entry
// changes meanwhile, and received straight into pages that become a value.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "linkspan/channel/client.hpp"
#include "linkspan/channel/server.hpp"
#include "linkspan/store/off_heap_map.hpp"
#include "tests/channel/own_loop.hpp"

using namespace linkspan;
using namespace linkspan::test;

namespace {

constexpr std::size_t kValueBytes = 3'000'000;

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  std::uint32_t state = 1;
  for (char& c : text) c = static_cast<char>((state = state * 1'664'525 + 1'013'904'223) >> 24);
  return text;
}

/// Sends a value, and overwrites it while it is under way.
class Sender final : public Service<Chain> {
 public:
  explicit Sender(OffHeapMap& map) : map_(map) {}
  void on_active() override {
    write(std::move(map_.get("value")->bytes));
    CHECK(map_.erase("value"));
  }
  void on_read(Chain&&) override {}

 private:
  OffHeapMap& map_;
};

/// Receives it into reserved pages, and puts them under another key.
class Receiver final : public Service<Chain> {
 public:
  Receiver(OffHeapMap& map, bool& done) : map_(map), done_(done) {}
  void on_active() override {
    pages_ = map_.reserve(kValueBytes).value();
    std::size_t left = kValueBytes;
    for (std::size_t i = 0; i < pages_.piece_count() && left != 0; ++i) {
      const std::size_t part = std::min(left, pages_.piece(i).size());
      left -= part;
      channel().receive_into(pages_.block(i), part,
                             [this, left](std::error_code error, Block&& block, std::size_t) {
                               CHECK_FALSE(error);
                               block.reset();
                               if (left != 0) return;
                               CHECK_FALSE(map_.adopt("copy", std::move(pages_).freeze(kValueBytes)));
                               done_ = true;
                             });
    }
  }
  void on_read(Chain&&) override {}

 private:
  OffHeapMap& map_;
  bool& done_;
  Pages pages_;
};

}  // namespace

TEST_CASE("a value goes from page to page over a connection, and no byte of it is copied by the store") {
  const std::string text = pattern(kValueBytes);
  on_every_kernel_loop([&](EventLoop& loop) {
    OffHeapMapOptions map_options;
    map_options.max_bytes = std::size_t{16} << 20;
    const auto map = OffHeapMap::open(map_options).value_or_throw();
    REQUIRE_FALSE(map->put("value", text));
    const CopyScope scope;
    bool done = false;
    {
      ServerOptions options;
      options.endpoint = Endpoint::parse("127.0.0.1:0").value_or_throw();
      options.initializer = [&](Channel& channel) {
        return channel.pipeline().append(std::make_unique<Sender>(*map));
      };
      Server server = Server::start(loop, std::move(options)).value_or_throw();
      const Client client(loop, [&](Channel& channel) {
        return channel.pipeline().append(std::make_unique<Receiver>(*map, done));
      });
      const ChannelRef channel =
          client.connect(server.local_endpoint(), [](std::error_code error) { CHECK_FALSE(error); });
      run_until(loop, [&] { return done; });
      channel.abort();
      server.stop(Duration::zero());
      run_until(loop, [&] { return server.connections() == 0; });
      settle(loop);
    }
    const CopyCounts copied = scope.copied();
    CHECK(copied[CopyPlace::store] == 0);
    CHECK(copied[CopyPlace::write] == 0);
    CHECK(copied[CopyPlace::user] == 0);
    // At most what had come before the pages were offered.
    CHECK(copied.total() == copied[CopyPlace::receive_into] + copied[CopyPlace::receive]);
    CHECK(copied.total() < kValueBytes / 2);
    CHECK_FALSE(map->contains("value"));
    CHECK((map->get("copy")->bytes == text));
    CHECK(map->statistics().pinned_bytes == 0);
    stop(loop);
  });
}
