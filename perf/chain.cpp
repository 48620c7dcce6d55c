// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Slice and Chain against what one would use without them: std::string and std::deque<std::string>. Each pair
// does the same job on the same bytes; the argument is the size of a piece. Compare within one run.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/slice.hpp"

namespace {

using linkspan::Chain;
using linkspan::Slice;

constexpr int kPieces = 16;

std::size_t piece_bytes(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}

// A second handle on the same bytes: a shared view, or a copy.
void share_slice(benchmark::State& state) {
  const Slice piece = Slice::copy(std::string(piece_bytes(state), 'x'));
  for (auto _ : state) {
    Slice copy = piece;
    benchmark::DoNotOptimize(copy);
  }
}
void share_string(benchmark::State& state) {
  const std::string piece(piece_bytes(state), 'x');
  for (auto _ : state) {
    std::string copy = piece;
    benchmark::DoNotOptimize(copy);
  }
}

// One piece queued 16 times, and the queue dropped.
void append_to_chain(benchmark::State& state) {
  const Slice piece = Slice::copy(std::string(piece_bytes(state), 'x'));
  for (auto _ : state) {
    Chain chain;
    for (int i = 0; i < kPieces; ++i) chain.append(piece);
    benchmark::DoNotOptimize(chain);
  }
}
void append_to_deque(benchmark::State& state) {
  const std::string piece(piece_bytes(state), 'x');
  for (auto _ : state) {
    std::deque<std::string> queue;
    for (int i = 0; i < kPieces; ++i) queue.push_back(piece);
    benchmark::DoNotOptimize(queue);
  }
}

// A queue of 16 pieces handed over twice.
void move_chain(benchmark::State& state) {
  const Slice piece = Slice::copy(std::string(piece_bytes(state), 'x'));
  Chain chain;
  for (int i = 0; i < kPieces; ++i) chain.append(piece);
  for (auto _ : state) {
    Chain other = std::move(chain);
    benchmark::DoNotOptimize(other);
    chain = std::move(other);
  }
}
void move_deque(benchmark::State& state) {
  std::deque<std::string> queue(kPieces, std::string(piece_bytes(state), 'x'));
  for (auto _ : state) {
    std::deque<std::string> other = std::move(queue);
    benchmark::DoNotOptimize(other);
    queue = std::move(other);
  }
}

// 16 pieces cut in the middle of one of them, as a frame decoder does, and put together again.
void split_chain(benchmark::State& state) {
  const Slice piece = Slice::copy(std::string(piece_bytes(state), 'x'));
  Chain chain;
  for (int i = 0; i < kPieces; ++i) chain.append(piece);
  const std::size_t cut = piece_bytes(state) * kPieces / 2 + piece_bytes(state) / 2;
  for (auto _ : state) {
    Chain front = chain.split_front(cut);
    benchmark::DoNotOptimize(front);
    // The halves of the cut piece are neighbours: joined, the chain is what it was.
    front.append_joined(chain.pop_front());
    front.append(std::move(chain));
    chain = std::move(front);
  }
}
void split_deque(benchmark::State& state) {
  std::deque<std::string> queue(kPieces, std::string(piece_bytes(state), 'x'));
  const std::size_t cut = piece_bytes(state) / 2;
  for (auto _ : state) {
    std::deque<std::string> front;
    for (int i = 0; i < kPieces / 2; ++i) {
      front.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    front.push_back(queue.front().substr(0, cut));
    queue.front().erase(0, cut);
    benchmark::DoNotOptimize(front);
    front.back() += queue.front();
    queue.pop_front();
    for (std::string& rest : queue) front.push_back(std::move(rest));
    queue = std::move(front);
  }
}

BENCHMARK(share_slice)->Arg(64)->Arg(4096);
BENCHMARK(share_string)->Arg(64)->Arg(4096);
BENCHMARK(append_to_chain)->Arg(64)->Arg(4096);
BENCHMARK(append_to_deque)->Arg(64)->Arg(4096);
BENCHMARK(move_chain)->Arg(4096);
BENCHMARK(move_deque)->Arg(4096);
BENCHMARK(split_chain)->Arg(64)->Arg(4096);
BENCHMARK(split_deque)->Arg(64)->Arg(4096);

}  // namespace

BENCHMARK_MAIN();
