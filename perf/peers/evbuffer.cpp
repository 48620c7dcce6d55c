// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// libevent's evbuffer. Memory that is in use elsewhere, too, is appended with a function that counts it down,
// which is what its documentation has evbuffer_add_reference for.
#include <event2/buffer.h>

#include <atomic>
#include <memory>

#include "perf/peers/queues.hpp"
#include "perf/support/queues.hpp"

namespace linkspan::perf {
namespace {

class Evbuffer {
 public:
  struct Pieces {
    struct Shared {
      std::string memory;
      std::atomic<int> references{1};
    };
    Pieces(std::size_t count, std::size_t bytes) {
      for (std::size_t i = 0; i < count; ++i) {
        shared.push_back(std::make_unique<Shared>());
        shared.back()->memory.assign(bytes, 'x');
      }
    }
    std::vector<std::unique_ptr<Shared>> shared;
  };

  Evbuffer() = default;
  Evbuffer(const Evbuffer&) = delete;
  Evbuffer& operator=(const Evbuffer&) = delete;
  ~Evbuffer() { evbuffer_free(buffer_); }

  void append(const Pieces& pieces, std::size_t index) {
    Pieces::Shared& piece = *pieces.shared[index];
    piece.references.fetch_add(1, std::memory_order_relaxed);
    const auto release = [](const void*, std::size_t, void* found) {
      static_cast<Pieces::Shared*>(found)->references.fetch_sub(1, std::memory_order_acq_rel);
    };
    evbuffer_add_reference(buffer_, piece.memory.data(), piece.memory.size(), release, &piece);
  }
  void append_foreign(std::span<const std::byte> memory, std::size_t& released) {
    const auto release = [](const void*, std::size_t, void* count) { ++*static_cast<std::size_t*>(count); };
    evbuffer_add_reference(buffer_, memory.data(), memory.size(), release, &released);
  }
  void split(std::size_t bytes, Evbuffer& front) { evbuffer_remove_buffer(buffer_, front.buffer_, bytes); }
  void clear() { evbuffer_drain(buffer_, evbuffer_get_length(buffer_)); }
  std::size_t sum() {
    evbuffer_iovec views[256];
    const int count = evbuffer_peek(buffer_, -1, nullptr, views, 256);
    std::size_t sum = 0;
    for (const evbuffer_iovec& view : std::span(views, static_cast<std::size_t>(count))) {
      sum += view.iov_len + *static_cast<const unsigned char*>(view.iov_base);
    }
    return sum;
  }
  std::size_t fill(std::span<iovec> room) {
    evbuffer_peek(buffer_, -1, nullptr, room.data(), static_cast<int>(room.size()));
    return evbuffer_get_length(buffer_);
  }

 private:
  evbuffer* buffer_ = evbuffer_new();
};

}  // namespace

void add_evbuffer() {
  add_queue_cases<Evbuffer>("libevent evbuffer");
}

}  // namespace linkspan::perf
