// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/transport/send_queue.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "lib/transport/socket_system.hpp"
#include "linkspan/base/error.hpp"

namespace linkspan {
namespace {

// One sendmsg: of 4 KiB each they are 1 MiB, which is what a socket buffer takes.
constexpr std::size_t kSendSlices = 256;
// sendmsg takes at most 2^31 - 1 bytes, rounded down to pages on Linux.
constexpr std::size_t kSendBytes = std::size_t{1} << 30;
// One sendfile: larger ones are not faster, and keep the loop when the pages have to be read.
constexpr std::size_t kFileBytes = 256 * 1024;
// A file that the kernel does not send from is read in blocks of this size.
constexpr std::size_t kReadBytes = 64 * 1024;

std::error_code last_error() noexcept {
  return system_error_code(errno);
}

// Files without pages in the page cache, such as some of /proc, and platforms without sendfile.
bool has_to_be_read(int error) noexcept {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

}  // namespace

void SendQueue::append(Chain&& data, std::vector<Socket>&& descriptors, int number) {
  if (descriptors.empty()) return append(std::move(data), number);
  parts_.reserve_one();  // what may throw comes first
  const std::uint64_t position = end();
  const std::size_t size = data.size();
  append(std::move(data), number);
  parts_.push_back({position, size, std::move(descriptors), nullptr, 0, false, Slice()});
}

bool SendQueue::can_count(const FileRange& range) const noexcept {
  constexpr std::uint64_t kFileEnd = std::numeric_limits<std::int64_t>::max();
  return range.offset <= kFileEnd && range.size <= kFileEnd - range.offset && range.size <= kFileEnd - bytes_;
}

void SendQueue::append(const FileRange& range) {
  if (range.size == 0) return;
  parts_.push_back(
      {end(), range.size, {}, range.file.get(), range.offset, range.file->descriptor() < 0, Slice()});
  bytes_ += range.size;
}

SendQueue::Sent SendQueue::send_next(SocketSystem& sockets, int socket, BlockAllocator& allocator) {
  if (next_is_memory()) return send_memory(sockets, socket, chain_bytes(), {});
  Part& part = parts_.front();
  if (part.descriptors.empty()) return send_file(part, sockets, socket, allocator);
  return send_memory(sockets, socket, part.size, part.descriptors);
}

SendQueue::Sent SendQueue::send_memory(SocketSystem& sockets, int socket, std::size_t bytes,
                                       std::span<const Socket> descriptors) {
  std::array<iovec, kSendSlices> vectors;
  std::size_t most = std::min(kSendBytes, bytes);
  if (begin_ < refused_end_) most = std::min<std::uint64_t>(most, refused_end_ - begin_);
  const auto [count, offered] = chain_.export_iovec(vectors, most);
  const ssize_t sent = sockets.send(socket, std::span(vectors).first(count), descriptors);
  if (sent < 0) return {0, last_error()};
  if (static_cast<std::size_t>(sent) < offered) refused_end_ = begin_ + offered;
  return {static_cast<std::size_t>(sent), {}};
}

SendQueue::Sent SendQueue::send_file(Part& part, SocketSystem& sockets, int socket,
                                     BlockAllocator& allocator) {
  if (!part.is_read) {
    const std::size_t bytes = std::min<std::uint64_t>(part.size, kFileBytes);
    const ssize_t sent = sockets.send_file(socket, part.file->descriptor(), part.offset, bytes);
    if (sent > 0) return {static_cast<std::size_t>(sent), {}};
    if (sent == 0) return {0, make_error_code(errc::truncated)};
    if (!has_to_be_read(errno)) return {0, last_error()};
    part.is_read = true;
  }
  if (part.read.empty()) {
    const std::size_t bytes = std::min<std::uint64_t>(part.size, kReadBytes);
    Block block = allocator.allocate(bytes);
    if (!block) return {0, make_error_code(errc::pool_exhausted)};
    const Result<std::size_t> read = part.file->read_at(block.writable().first(bytes), part.offset);
    if (!read) {
      // Not the socket's, which would be waited for.
      if (read.error().code == std::errc::resource_unavailable_try_again) {
        return {0, make_error_code(errc::unavailable)};
      }
      return {0, read.error().code};
    }
    if (read.value() == 0) return {0, make_error_code(errc::truncated)};
    count_copied(read.value(), CopyPlace::file);
    part.read = std::move(block).freeze_all(read.value());
  }
  iovec vector{const_cast<std::byte*>(part.read.data()), part.read.size()};  // sends do not write
  const ssize_t sent = sockets.send(socket, {&vector, 1}, {});
  if (sent < 0) return {0, last_error()};
  return {static_cast<std::size_t>(sent), {}};
}

Chain SendQueue::part_accepted(std::size_t bytes) {
  const bool with_descriptors = !next_is_memory() && !parts_.front().descriptors.empty();
  const bool memory = next_is_memory() || with_descriptors;
  begin_ += bytes;
  bytes_ -= bytes;
  if (with_descriptors) static_cast<void>(parts_.pop_front());  // they went with the first byte
  if (memory) {
    Chain sent = chain_.split_front(bytes);
    in_flight_.remove(bytes);
    return sent;
  }
  Part& part = parts_.front();
  part.position += bytes;
  part.offset += bytes;
  part.size -= bytes;
  if (!part.read.empty()) part.read.drop_front(bytes);
  if (part.size == 0) static_cast<void>(parts_.pop_front());
  return {};
}

Chain SendQueue::take_unsent() noexcept {
  in_flight_.remove(chain_.size());
  parts_ = RingQueue<Part>();
  begin_ += std::exchange(bytes_, 0);
  return std::move(chain_);
}

}  // namespace linkspan
