// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Abseil's Cord. Pieces are Cords of their own; appending one shares it, or copies it when it is small, as
// Cord decides.
#include <absl/strings/cord.h>

#include <utility>

#include "perf/peers/queues.hpp"
#include "perf/support/queues.hpp"

namespace linkspan::perf {
namespace {

class Cord {
 public:
  struct Pieces {
    Pieces(std::size_t count, std::size_t bytes) {
      for (std::size_t i = 0; i < count; ++i) cords.emplace_back(std::string(bytes, 'x'));
    }
    std::vector<absl::Cord> cords;
  };

  void append(const Pieces& pieces, std::size_t index) { cord_.Append(pieces.cords[index]); }
  void append_foreign(std::span<const std::byte> memory, std::size_t& released) {
    cord_.Append(absl::MakeCordFromExternal({reinterpret_cast<const char*>(memory.data()), memory.size()},
                                            [&released] { ++released; }));
  }
  void split(std::size_t bytes, Cord& front) {
    front.cord_ = cord_.Subcord(0, bytes);
    cord_.RemovePrefix(bytes);
  }
  void clear() { cord_.Clear(); }
  [[nodiscard]] std::size_t sum() const {
    std::size_t sum = 0;
    for (const absl::string_view chunk : cord_.Chunks()) {
      sum += chunk.size() + static_cast<unsigned char>(chunk[0]);
    }
    return sum;
  }
  std::size_t fill(std::span<iovec> room) const {
    std::size_t covered = 0;
    std::size_t i = 0;
    for (const absl::string_view chunk : cord_.Chunks()) {
      room[i++] = {const_cast<char*>(chunk.data()), chunk.size()};
      covered += chunk.size();
    }
    return covered;
  }

 private:
  absl::Cord cord_;
};

}  // namespace

void add_cord() {
  add_queue_cases<Cord>("absl Cord");
}

}  // namespace linkspan::perf
