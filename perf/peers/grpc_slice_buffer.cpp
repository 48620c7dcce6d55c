// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// gRPC's slice buffer, the queue under its transports.
#include <grpc/slice.h>
#include <grpc/slice_buffer.h>

#include "perf/peers/queues.hpp"
#include "perf/support/queues.hpp"

namespace linkspan::perf {
namespace {

class SliceBuffer {
 public:
  struct Pieces {
    Pieces(std::size_t count, std::size_t bytes) {
      const std::string memory(bytes, 'x');
      for (std::size_t i = 0; i < count; ++i) {
        slices.push_back(grpc_slice_from_copied_buffer(memory.data(), memory.size()));
      }
    }
    Pieces(const Pieces&) = delete;
    Pieces& operator=(const Pieces&) = delete;
    ~Pieces() {
      for (const grpc_slice& slice : slices) grpc_slice_unref(slice);
    }
    std::vector<grpc_slice> slices;
  };

  SliceBuffer() { grpc_slice_buffer_init(&buffer_); }
  SliceBuffer(const SliceBuffer&) = delete;
  SliceBuffer& operator=(const SliceBuffer&) = delete;
  ~SliceBuffer() { grpc_slice_buffer_destroy(&buffer_); }

  void append(const Pieces& pieces, std::size_t index) {
    grpc_slice_buffer_add(&buffer_, grpc_slice_ref(pieces.slices[index]));
  }
  void append_foreign(std::span<const std::byte> memory, std::size_t& released) {
    const auto release = [](void* count) { ++*static_cast<std::size_t*>(count); };
    grpc_slice_buffer_add(&buffer_, grpc_slice_new_with_user_data(const_cast<std::byte*>(memory.data()),
                                                                  memory.size(), release, &released));
  }
  void split(std::size_t bytes, SliceBuffer& front) {
    grpc_slice_buffer_move_first(&buffer_, bytes, &front.buffer_);
  }
  void clear() { grpc_slice_buffer_reset_and_unref(&buffer_); }
  [[nodiscard]] std::size_t sum() const {
    std::size_t sum = 0;
    for (const grpc_slice& slice : std::span(buffer_.slices, buffer_.count)) {
      sum += GRPC_SLICE_LENGTH(slice) + *GRPC_SLICE_START_PTR(slice);
    }
    return sum;
  }
  std::size_t fill(std::span<iovec> room) const {
    std::size_t i = 0;
    for (grpc_slice& slice : std::span(buffer_.slices, buffer_.count)) {
      room[i++] = {GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice)};
    }
    return buffer_.length;
  }

 private:
  grpc_slice_buffer buffer_;
};

}  // namespace

void add_grpc_slice_buffer() {
  add_queue_cases<SliceBuffer>("gRPC slice buffer");
}

}  // namespace linkspan::perf
