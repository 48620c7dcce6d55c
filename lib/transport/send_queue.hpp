// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// SendQueue: what a stream has to send: one chain, and among its bytes, at positions in the stream, parts
// that are no memory: ranges of files, and descriptors, which travel with the byte there. A stream that sends
// none of them pays for an empty ring. Owned by its stream, on the loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "lib/buffer/in_flight.hpp"
#include "linkspan/base/ring_queue.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/transport/file_range.hpp"
#include "linkspan/transport/socket.hpp"

namespace linkspan {

class SocketSystem;

class SendQueue {
 public:
  /// Positions in the stream, of the first byte that is not sent yet and behind the last one.
  [[nodiscard]] std::uint64_t begin() const noexcept { return begin_; }
  [[nodiscard]] std::uint64_t end() const noexcept { return begin_ + bytes_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return bytes_ == 0; }

  /// `number` of the stream is for reports.
  void append(Chain&& data, int number) {
    in_flight_.add(data, "write queue", number);
    bytes_ += data.size();
    if (chain_.empty()) {
      chain_ = std::move(data);
    } else {
      chain_.append(std::move(data));
    }
  }
  /// Descriptors go with the first byte, and there is one: as many as a message takes.
  void append(Chain&& data, std::vector<Socket>&& descriptors, int number);
  /// Whether positions can count it: false for what no file can have.
  [[nodiscard]] bool can_count(const FileRange& range) const noexcept;
  /// The file has to stay open until all of the range is accepted or nothing will be sent any more.
  void append(const FileRange& range);

  /// What is next are chain_bytes() of chain(), and nothing that goes with them.
  [[nodiscard]] bool next_is_memory() const noexcept { return chain_bytes() != 0; }
  [[nodiscard]] const Chain& chain() const noexcept { return chain_; }
  [[nodiscard]] std::size_t chain_bytes() const noexcept {
    return parts_.empty() ? chain_.size() : static_cast<std::size_t>(parts_.front().position - begin_);
  }

  struct Sent {
    std::size_t bytes = 0;  // the next ones, to be reported to accepted()
    std::error_code error;  // why there are none
  };
  /// Sends what is next with one call that does not wait for the peer. Errors are the system's, or
  /// errc::truncated, or errc::pool_exhausted when a file has to be read and `allocator` refuses.
  [[nodiscard]] Sent send_next(SocketSystem& sockets, int socket, BlockAllocator& allocator);

  /// The next `bytes`, of one kind, have been sent. Returns their memory.
  [[nodiscard]] Chain accepted(std::size_t bytes) {
    if (bytes != bytes_ || !parts_.empty()) return part_accepted(bytes);
    begin_ += bytes;
    bytes_ = 0;
    in_flight_.remove(bytes);
    return std::move(chain_);
  }
  /// The next `bytes` are all that is queued, one slice of memory.
  [[nodiscard]] bool is_one_slice(std::size_t bytes) const noexcept {
    return bytes == bytes_ && chain_.slice_count() == 1 && parts_.empty();
  }
  /// And have been sent. Returns it.
  Slice accepted_slice() noexcept {
    begin_ += bytes_;
    in_flight_.remove(static_cast<std::size_t>(bytes_));
    bytes_ = 0;
    return chain_.pop_front();
  }
  /// Empties the queue: the memory that was not sent.
  [[nodiscard]] Chain take_unsent() noexcept;

 private:
  [[nodiscard]] Chain part_accepted(std::size_t bytes);

  struct Part {
    std::uint64_t position = 0;       // of its first byte that is not sent yet
    std::uint64_t size = 0;           // from there on
    std::vector<Socket> descriptors;  // then `size` bytes of the chain are theirs; without any:
    const File* file = nullptr;
    std::uint64_t offset = 0;  // of the byte at `position`
    bool is_read = false;      // the kernel cannot send from this file
    Slice read;                // by us, from `offset` on
  };

  [[nodiscard]] Sent send_memory(SocketSystem& sockets, int socket, std::size_t bytes,
                                 std::span<const Socket> descriptors);
  [[nodiscard]] Sent send_file(Part& part, SocketSystem& sockets, int socket, BlockAllocator& allocator);

  std::uint64_t begin_ = 0;
  std::uint64_t bytes_ = 0;
  // Of memory that a call offered and the socket took in part. The next call offers the rest, not more: on
  // loopback with TCP, filling every call up again halved what a sender got through that the peer keeps full.
  std::uint64_t refused_end_ = 0;
  Chain chain_;
  [[no_unique_address]] InFlight in_flight_;  // watches chain_
  RingQueue<Part> parts_;                     // by position
};

}  // namespace linkspan
