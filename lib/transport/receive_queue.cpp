// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/receive_queue.hpp"

#include <algorithm>
#include <utility>

#include "linkspan/base/error.hpp"

namespace linkspan {

void ReceiveQueue::Memory::complete(std::error_code error) {
  if (completion) completion(error, std::move(block), filled);
}

void ReceiveQueue::hold(Chain&& data, std::vector<Socket>&& descriptors) {
  if (!descriptors.empty()) arrivals_.push_back({position_ + held_.size(), std::move(descriptors)});
  held_.append(std::move(data));
}

void ReceiveQueue::drop_held() noexcept {
  held_.clear();
  arrivals_ = RingQueue<Arrival>();
}

void ReceiveQueue::add_memory(Block&& memory, std::size_t size, ReceiveCompletion completion) {
  RingQueue<Memory>& queue = memory_.size() < Stream::kReceivesMost ? memory_ : refused_;
  queue.reserve_one();  // what may throw comes first
  queue.push_back({std::move(memory), size, 0, std::move(completion)});
}

std::span<std::byte> ReceiveQueue::target() noexcept {
  if (memory_.empty() || !nothing_held()) return {};
  Memory& next = memory_.front();
  return next.block.writable().subspan(next.filled, next.size - next.filled);
}

void ReceiveQueue::received_into(std::size_t bytes) noexcept {
  position_ += bytes;
  memory_.front().filled += bytes;
}

std::size_t ReceiveQueue::bytes_before_arrival() const noexcept {
  if (arrivals_.empty()) return held_.size();
  return static_cast<std::size_t>(arrivals_.front().position - position_);
}

bool ReceiveQueue::deliver_one(StreamHandler& handler) {
  if (!arrivals_.empty() && arrivals_.front().position <= position_) {
    Arrival arrival = arrivals_.pop_front();
    handler.on_descriptors(std::move(arrival.descriptors));
    return true;
  }
  if (!memory_.empty()) {
    Memory& next = memory_.front();
    const std::size_t bytes = std::min(next.size - next.filled, bytes_before_arrival());
    held_.copy_to(next.block.writable().subspan(next.filled, bytes), 0, CopyPlace::receive_into);
    held_.drop_front(bytes);
    received_into(bytes);
    if (next.filled == next.size) {
      memory_.pop_front().complete({});
      return true;
    }
    return bytes != 0;
  }
  if (held_.empty()) return false;
  Chain data = held_.split_front(bytes_before_arrival());
  position_ += data.size();
  handler.on_read(std::move(data));
  return true;
}

void ReceiveQueue::fail_memory(std::error_code error) {
  // Only what is here now: a completion that gives memory again must not keep the loop here for ever.
  for (std::size_t count = memory_.size(); count != 0; --count) memory_.pop_front().complete(error);
}

void ReceiveQueue::complete_refused() {
  for (std::size_t count = refused_.size(); count != 0; --count) {
    refused_.pop_front().complete(make_error_code(errc::limit_exceeded));
  }
}

}  // namespace linkspan
