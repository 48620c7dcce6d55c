// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// ReceiveQueue: what a stream has received and not delivered yet, the descriptors that came with it, and the
// memory that its owner wants the next bytes in.
// Owned by its stream, on the loop's thread. Its callbacks run inside deliver_one, fail_memory and
// complete_refused only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <vector>

#include "linkspan/base/ring_queue.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/transport/socket.hpp"
#include "linkspan/transport/stream.hpp"

namespace linkspan {

class ReceiveQueue {
 public:
  /// Nothing is held and nothing waits: what comes may be delivered as it is.
  [[nodiscard]] bool idle() const noexcept { return held_.empty() && arrivals_.empty() && memory_.empty(); }
  /// Nothing was received that is not delivered.
  [[nodiscard]] bool nothing_held() const noexcept { return held_.empty() && arrivals_.empty(); }
  /// Something is held, or memory waits, or has been refused.
  [[nodiscard]] bool has_work() const noexcept { return !idle() || !refused_.empty(); }
  /// Completions are to come.
  [[nodiscard]] bool memory_waits() const noexcept { return !memory_.empty() || !refused_.empty(); }
  /// The next memory was given for no bytes.
  [[nodiscard]] bool next_memory_is_empty() const noexcept {
    return !memory_.empty() && memory_.front().size == 0;
  }

  /// `descriptors` came with `data`, or with what received_into is told next.
  void hold(Chain&& data, std::vector<Socket>&& descriptors);
  /// Drops what is held.
  void drop_held() noexcept;

  /// The next `size` bytes go to the front of `memory`.
  void add_memory(Block&& memory, std::size_t size, ReceiveCompletion completion);
  /// Where the next bytes may be received directly; empty: not now.
  [[nodiscard]] std::span<std::byte> target() noexcept;
  /// `bytes` are in target().
  void received_into(std::size_t bytes) noexcept;

  /// Runs at most one callback with what is held. False: there is nothing to be done.
  bool deliver_one(StreamHandler& handler);
  /// Gives back all memory that waits now, with this error.
  void fail_memory(std::error_code error);
  /// Gives back what was more than Stream::kReceivesMost.
  void complete_refused();

 private:
  struct Memory {
    Block block;
    std::size_t size = 0;
    std::size_t filled = 0;
    ReceiveCompletion completion;

    void complete(std::error_code error);
  };
  struct Arrival {
    std::uint64_t position = 0;  // of the first byte that they came with, or one before it
    std::vector<Socket> descriptors;
  };

  [[nodiscard]] std::size_t bytes_before_arrival() const noexcept;

  std::uint64_t position_ = 0;  // in the stream, of the first byte that is not delivered
  Chain held_;
  RingQueue<Arrival> arrivals_;
  RingQueue<Memory> memory_;
  RingQueue<Memory> refused_;
};

}  // namespace linkspan
