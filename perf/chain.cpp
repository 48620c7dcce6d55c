// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Chain against the queues of bytes that one would use without it. perf/support/queues.hpp says what is
// measured, perf/peers/ holds the adapters of other libraries.
#include "linkspan/buffer/chain.hpp"

#include <deque>

#include "perf/peers/queues.hpp"
#include "perf/support/queues.hpp"

namespace linkspan::perf {
namespace {

class ChainQueue {
 public:
  struct Pieces {
    Pieces(std::size_t count, std::size_t bytes) {
      for (std::size_t i = 0; i < count; ++i) slices.push_back(Slice::copy(std::string(bytes, 'x')));
    }
    std::vector<Slice> slices;
  };

  void append(const Pieces& pieces, std::size_t index) { chain_.append(pieces.slices[index]); }
  void append_foreign(std::span<const std::byte> memory, std::size_t& released) {
    chain_.append(Slice::borrow(memory, [&released] { ++released; }));
  }
  void split(std::size_t bytes, ChainQueue& front) { front.chain_ = chain_.split_front(bytes); }
  void clear() { chain_.drop_front(chain_.size()); }
  [[nodiscard]] std::size_t sum() const {
    std::size_t sum = 0;
    for (const Slice& slice : chain_) sum += slice.size() + static_cast<std::size_t>(*slice.data());
    return sum;
  }
  std::size_t fill(std::span<iovec> room) const { return chain_.export_iovec(room).bytes; }

 private:
  Chain chain_;
};

// The standard library has no shared memory for this: it copies.
class StringQueue {
 public:
  struct Pieces {
    Pieces(std::size_t count, std::size_t bytes) : strings(count, std::string(bytes, 'x')) {}
    std::vector<std::string> strings;
  };

  void append(const Pieces& pieces, std::size_t index) { strings_.push_back(pieces.strings[index]); }
  void append_foreign(std::span<const std::byte> memory, std::size_t& released) {
    strings_.emplace_back(reinterpret_cast<const char*>(memory.data()), memory.size());
    ++released;
  }
  void split(std::size_t bytes, StringQueue& front) {
    while (bytes != 0 && bytes >= strings_.front().size()) {
      bytes -= strings_.front().size();
      front.strings_.push_back(std::move(strings_.front()));
      strings_.pop_front();
    }
    if (bytes == 0) return;
    front.strings_.push_back(strings_.front().substr(0, bytes));
    strings_.front().erase(0, bytes);
  }
  void clear() { strings_.clear(); }
  [[nodiscard]] std::size_t sum() const {
    std::size_t sum = 0;
    for (const std::string& text : strings_) sum += text.size() + static_cast<unsigned char>(text[0]);
    return sum;
  }
  std::size_t fill(std::span<iovec> room) {
    std::size_t covered = 0;
    std::size_t i = 0;
    for (std::string& text : strings_) {
      room[i++] = {text.data(), text.size()};
      covered += text.size();
    }
    return covered;
  }

 private:
  std::deque<std::string> strings_;
};

}  // namespace
}  // namespace linkspan::perf

int main(int argc, char** argv) {
  using namespace linkspan::perf;
  add_queue_cases<ChainQueue>("linkspan");
  add_queue_cases<StringQueue>("deque of strings");
  add_peer_queues();
  return run(argc, argv);
}
