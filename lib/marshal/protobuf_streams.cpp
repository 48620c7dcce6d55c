// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/marshal/protobuf_streams.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace linkspan {
namespace {

constexpr std::size_t kIntMax = std::numeric_limits<int>::max();

}  // namespace

BufferChainOutputStream::BufferChainOutputStream(ChainWriter& writer,
                                                 std::shared_ptr<const void> owner) noexcept
    : writer_(writer), owner_(std::move(owner)), start_(writer.size()) {}

BufferChainOutputStream::~BufferChainOutputStream() {
  sync();
}

void BufferChainOutputStream::sync() noexcept try {
  const std::size_t bytes = std::exchange(pending_, 0);
  if (bytes != 0 && !failed_) writer_.commit(bytes);
} catch (const std::bad_alloc&) {
  failed_ = true;
}

bool BufferChainOutputStream::Next(void** data, int* size) {
  sync();
  if (failed_) return false;
  const std::span<std::byte> writable = writer_.reserve(1);
  if (writable.empty()) return false;
  const std::size_t window =
      std::clamp(writer_.options().reference_threshold_bytes, kMinWindowBytes, kIntMax);
  pending_ = std::min(writable.size(), window);
  *data = writable.data();
  *size = static_cast<int>(pending_);
  return true;
}

void BufferChainOutputStream::BackUp(int count) {
  const auto bytes = static_cast<std::size_t>(count);
  LINKSPAN_ASSERT(bytes <= pending_, "BackUp returns bytes of the last window");
  pending_ -= bytes;
}

std::int64_t BufferChainOutputStream::ByteCount() const {
  return static_cast<std::int64_t>(writer_.size() - start_ + pending_);
}

bool BufferChainOutputStream::WriteAliasedRaw(const void* data, int size) try {
  LINKSPAN_ASSERT(owner_ != nullptr, "only a stream with an owner references memory");
  sync();
  if (failed_) return false;
  const std::span bytes(static_cast<const std::byte*>(data), static_cast<std::size_t>(size));
  if (bytes.size() < writer_.options().reference_threshold_bytes) {
    writer_.write(bytes);
  } else {
    writer_.append(Slice::adopt(owner_, bytes));
  }
  return !writer_.error();
} catch (const std::bad_alloc&) {
  failed_ = true;
  return false;
}

BufferChainInputStream::~BufferChainInputStream() = default;

bool BufferChainInputStream::Next(const void** data, int* size) {
  cursor_.skip(std::exchange(pending_, 0));
  const std::span<const std::byte> part = cursor_.contiguous();
  pending_ = std::min(part.size(), kIntMax);
  *data = part.data();
  *size = static_cast<int>(pending_);
  return pending_ != 0;
}

void BufferChainInputStream::BackUp(int count) {
  const auto bytes = static_cast<std::size_t>(count);
  LINKSPAN_ASSERT(bytes <= pending_, "BackUp returns bytes of the last window");
  pending_ -= bytes;
}

bool BufferChainInputStream::Skip(int count) {
  cursor_.skip(std::exchange(pending_, 0));
  const std::size_t bytes = std::min(static_cast<std::size_t>(count), cursor_.remaining());
  cursor_.skip(bytes);
  return bytes == static_cast<std::size_t>(count);
}

std::int64_t BufferChainInputStream::ByteCount() const {
  return static_cast<std::int64_t>(cursor_.position() + pending_);
}

}  // namespace linkspan
