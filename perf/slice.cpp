// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What views of memory cost. Wrapping memory against copying it: the source is copied again and again, so
// that it is in the caches as far as they reach, which is the best that a copy can get. And sharing: clones
// and parts of views that are released again, by threads that have memory of their own, the same memory, or
// memory of their own whose counts are neighbours and may be in one cache line.
#include "linkspan/buffer/slice.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "linkspan/buffer/block.hpp"
#include "perf/support/rounds.hpp"

namespace linkspan::perf {
namespace {

using Bytes = std::span<const std::byte>;

// What one would use without Slice.
struct SharedView {
  static SharedView copy(Bytes bytes) {
    const auto memory = std::make_shared<std::byte[]>(bytes.size());
    copy_bytes(memory.get(), bytes.data(), bytes.size(), CopyPlace::user);
    return {memory, bytes.size()};
  }
  template <class F>
  static SharedView borrow(Bytes bytes, F completion) {
    const auto deleter = [completion](const std::byte*) { completion(); };
    return {std::shared_ptr<const std::byte[]>(bytes.data(), deleter), bytes.size()};
  }
  [[nodiscard]] SharedView slice(std::size_t offset, std::size_t part_size) const {
    return {{data, data.get() + offset}, part_size};
  }
  SharedView split_front(std::size_t front_size) {
    SharedView front = slice(0, front_size);
    const std::byte* const rest = data.get() + front_size;
    data = {std::move(data), rest};
    size -= front_size;
    return front;
  }

  std::shared_ptr<const std::byte[]> data;
  std::size_t size;
};

template <class Wrap>
void add_wrap(const std::string& variant, std::int64_t size, Wrap wrap) {
  const auto measure = [size, wrap](benchmark::State& state) {
    const std::vector<std::byte> memory(static_cast<std::size_t>(size), std::byte{'x'});
    std::size_t released = 0;
    for (auto _ : state) {
      auto wrapped = wrap(Bytes(memory), released);
      benchmark::DoNotOptimize(wrapped);
    }
    benchmark::DoNotOptimize(released);
  };
  const bool chosen = size == 64 || size == 4096;
  add({.variant = variant,
       .parameters = {{"case", "wrap"}, {"bytes", size}},
       .run = measure,
       .quick = chosen,
       .instructions = chosen});
}

void add_wraps(std::int64_t size) {
  add_wrap("linkspan", size, [](Bytes bytes, std::size_t& released) {
    return Slice::borrow(bytes, [&released] { ++released; });
  });
  add_wrap("linkspan adopt", size, [](Bytes bytes, std::size_t& released) {
    return Slice::adopt(bytes, [&released] { ++released; });
  });
  add_wrap("linkspan immortal", size, [](Bytes bytes, std::size_t&) { return Slice::immortal(bytes); });
  add_wrap("linkspan copy", size, [](Bytes bytes, std::size_t&) { return Slice::copy(bytes); });
  const auto buffer = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size));
  add_wrap("copy into a buffer", size, [buffer](Bytes bytes, std::size_t&) {
    copy_bytes(buffer->data(), bytes.data(), bytes.size(), CopyPlace::user);
    benchmark::ClobberMemory();
    return Bytes(*buffer);
  });
  add_wrap("shared_ptr", size, [](Bytes bytes, std::size_t& released) {
    return SharedView::borrow(bytes, [&released] { ++released; });
  });
}

constexpr std::size_t kMostThreads = 28;
constexpr std::size_t kPartBytes = 100;
const std::array<std::byte, 4096> kStaticBytes{};

enum class Counts { own, shared, neighbours };

// What the threads share. Views of static memory are small allocations, the last of which lie side by side,
// as the first ones fill the gaps of the heap: with a few each, threads have counts in the same cache line.
template <class View>
class Views {
 public:
  static constexpr std::size_t kOfThread = 4;
  using OfThread = std::array<const View*, kOfThread>;

  Views() {
    for (View& view : own_) view = View::copy(kStaticBytes);
    for (View& view : gaps_) view = View::borrow(kStaticBytes, [] {});
    for (View& view : neighbours_) view = View::borrow(kStaticBytes, [] {});
  }

  [[nodiscard]] OfThread of(const benchmark::State& state, Counts counts) const {
    const auto thread = static_cast<std::size_t>(state.thread_index());
    const auto threads = static_cast<std::size_t>(state.threads());
    OfThread found;
    for (std::size_t i = 0; i < kOfThread; ++i) {
      found[i] = counts == Counts::neighbours ? &neighbours_[i * threads + thread]
                                              : &own_[counts == Counts::own ? thread : 0];
    }
    return found;
  }

 private:
  std::array<View, kMostThreads> own_;
  std::array<View, 1000> gaps_;
  std::array<View, kMostThreads * kOfThread> neighbours_;
};

template <class View>
const Views<View>& views() {
  static const Views<View> made;
  return made;
}

template <class View, void (*operation)(const View&)>
void share(benchmark::State& state, Counts counts) {
  const auto mine = views<View>().of(state, counts);
  std::size_t turn = 0;
  for (auto _ : state) operation(*mine[turn++ % mine.size()]);
}

template <class View>
void clone(const View& view) {
  View copy = view;
  benchmark::DoNotOptimize(copy);
}
template <class View>
void slice(const View& view) {
  View part = view.slice(kPartBytes, kPartBytes);
  benchmark::DoNotOptimize(part);
}
template <class View>
void split(const View& view) {
  View rest = view;
  View front = rest.split_front(kPartBytes);
  benchmark::DoNotOptimize(rest);
  benchmark::DoNotOptimize(front);
}

template <class View, void (*operation)(const View&)>
void add_shares(const std::string& variant, std::string_view name) {
  for (const auto& [counts, described] : {std::pair(Counts::own, "own"), std::pair(Counts::shared, "shared"),
                                          std::pair(Counts::neighbours, "neighbours")}) {
    for (const int threads : {1, 2, 4, 7, 14, 28}) {
      add({.variant = variant,
           .parameters = {{"case", name}, {"counts", described}, {"threads", threads}},
           .run = [counts](benchmark::State& state) { share<View, operation>(state, counts); },
           .threads = threads,
           .quick = threads <= 2,
           .instructions = threads == 1 && counts == Counts::own});
    }
  }
}

template <class View>
void add_all_shares(const std::string& variant) {
  add_shares<View, clone<View>>(variant, "clone");
  add_shares<View, slice<View>>(variant, "slice");
  add_shares<View, split<View>>(variant, "split");
}

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  // shared_ptr counts without atomic operations as long as there is one thread; who shares memory has more.
  std::thread([] {}).join();
  for (std::int64_t size = 64; size <= 4 << 20; size *= 4) add_wraps(size);
  add_all_shares<linkspan::Slice>("linkspan");
  add_all_shares<SharedView>("shared_ptr");
  return run(argc, argv);
}
