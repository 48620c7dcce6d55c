// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What the chain benchmark asks of a queue of byte pieces. Each library has an adapter that does it in the
// way its documentation recommends, and add_queue_cases measures all of them with the same code:
//   Pieces(count, bytes)                  pieces of memory, in the library's own shared form
//   append(pieces, index)                 appends one by reference, where the library can
//   append_foreign(memory, released)      appends memory of somebody else; increments `released` at the end
//   split(bytes, front)                   moves the first bytes into `front`, which is empty
//   clear(), sum(), fill(iovecs)          drops all; adds up sizes and first bytes; returns the bytes covered
#pragma once

#include <benchmark/benchmark.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/support/rounds.hpp"

namespace linkspan::perf {

template <class Queue>
class QueueCases {
 public:
  QueueCases(std::int64_t count, std::int64_t bytes)
      : count_(static_cast<std::size_t>(count)),
        bytes_(static_cast<std::size_t>(bytes)),
        total_(count_ * bytes_) {}

  // The life of a queue of output: references are appended, and dropped when they are sent.
  void append(benchmark::State& state) const {
    const typename Queue::Pieces pieces(count_, bytes_);
    Queue queue;
    for (auto _ : state) {
      fill(queue, pieces);
      benchmark::DoNotOptimize(queue);
      queue.clear();
    }
    fill(queue, pieces);
    expect(state, queue.fill(room_) == total_);
  }

  // The same with memory that the queue has to give back to its owner.
  void append_foreign(benchmark::State& state) const {
    const std::string memory(total_, 'x');
    const auto* const bytes = reinterpret_cast<const std::byte*>(memory.data());
    Queue queue;
    std::size_t released = 0;
    for (auto _ : state) {
      for (std::size_t i = 0; i < count_; ++i) {
        queue.append_foreign({bytes + i * bytes_, bytes_}, released);
      }
      benchmark::DoNotOptimize(queue);
      queue.clear();
    }
    expect(state, released == count_ * static_cast<std::size_t>(state.iterations()));
  }

  // A queue is filled, cut in two at any byte, and both parts are dropped.
  void split(benchmark::State& state) const {
    const typename Queue::Pieces pieces(count_, bytes_);
    Queue queue;
    Queue front;
    std::uint32_t random = 1;
    for (auto _ : state) {
      fill(queue, pieces);
      random = random * 1664525 + 1013904223;
      queue.split((std::uint64_t{random} * (total_ - 1) >> 32) + 1, front);
      benchmark::DoNotOptimize(queue);
      benchmark::DoNotOptimize(front);
      queue.clear();
      front.clear();
    }
    fill(queue, pieces);
    queue.split(total_ - 1, front);
    expect(state, front.fill(room_) == total_ - 1 && queue.fill(room_) == 1);
  }

  // What a decoder does: a queue is filled, and frames of 5/8 of a piece are cut off until it is empty.
  void frames(benchmark::State& state) const {
    const typename Queue::Pieces pieces(count_, bytes_);
    const std::size_t frame = bytes_ * 5 / 8;
    Queue queue;
    Queue front;
    for (auto _ : state) {
      fill(queue, pieces);
      std::size_t left = total_;
      for (; left > frame; left -= frame) {
        queue.split(frame, front);
        benchmark::DoNotOptimize(front);
        front.clear();
      }
      queue.clear();
    }
  }

  void iterate(benchmark::State& state) const {
    const typename Queue::Pieces pieces(count_, bytes_);
    Queue queue;
    fill(queue, pieces);
    std::size_t sum = 0;
    for (auto _ : state) {
      benchmark::DoNotOptimize(queue);
      benchmark::DoNotOptimize(sum = queue.sum());
    }
    expect(state, sum >= total_);
  }

  void scatter(benchmark::State& state) const {
    const typename Queue::Pieces pieces(count_, bytes_);
    Queue queue;
    fill(queue, pieces);
    std::size_t covered = 0;
    for (auto _ : state) {
      benchmark::DoNotOptimize(queue);
      benchmark::DoNotOptimize(covered = queue.fill(room_));
      benchmark::ClobberMemory();
    }
    expect(state, covered == total_);
  }

 private:
  void fill(Queue& queue, const typename Queue::Pieces& pieces) const {
    for (std::size_t i = 0; i < count_; ++i) queue.append(pieces, i);
  }
  static void expect(benchmark::State& state, bool holds) {
    if (!holds) state.SkipWithError("the queue does not hold what it should");
  }

  std::size_t count_;
  std::size_t bytes_;
  std::size_t total_;
  mutable std::vector<iovec> room_ = std::vector<iovec>(count_ + 1);
};

template <class Queue>
void add_queue_cases(const std::string& variant) {
  using Cases = QueueCases<Queue>;
  const struct {
    std::string_view name;
    void (Cases::*run)(benchmark::State&) const;
  } kinds[] = {{"append", &Cases::append},   {"append foreign", &Cases::append_foreign},
               {"split", &Cases::split},     {"frames", &Cases::frames},
               {"iterate", &Cases::iterate}, {"scatter", &Cases::scatter}};
  for (const auto& kind : kinds) {
    for (const std::int64_t bytes : {64, 4096, 65536}) {
      for (const std::int64_t count : {1, 4, 16, 64, 256}) {
        const bool chosen = bytes == 4096 && count == 16;
        add({.variant = variant,
             .parameters = {{"case", kind.name}, {"bytes", bytes}, {"slices", count}},
             .run = [run = kind.run, count, bytes](auto& state) { (Cases(count, bytes).*run)(state); },
             .quick = chosen,
             .instructions = chosen || (bytes == 64 && count == 1)});
      }
    }
  }
}

}  // namespace linkspan::perf
