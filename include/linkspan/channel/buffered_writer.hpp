// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BufferedWriter: writes a long stream of bytes in chunks. Small writes are collected in blocks of a bounded
// pool; from a threshold up the caller's own memory is sent, and nothing is copied. Both may be mixed: bytes
// leave in the order of the calls. Chunks are sent one after the other without waiting; what the other side
// has not acknowledged can be sent again on another connection.
//
//   BufferedWriter writer(channel.loop());
//   writer.attach(send_bytes_to(channel.ref()));
//   writer.write(header);                                        // copied
//   writer.write(megabytes, [this](std::error_code error) {...});  // memory is the caller's again
//   writer.flush([this](std::error_code error) {...});             // all of it is acknowledged
//
// Not for: messages, which Channel::write gathers by itself.
// Cost: small writes are one copy each; a write by reference costs four allocations, a chunk two. Checksums
// are computed once, on the memory that is sent, while it is still in the cache.
// Threads: the loop's; the loop outlives the writer and all memory that it refers to. Callbacks are called on
// the loop, never inside of a call; only one that a loop which has ended refuses, or that there is no memory
// to call later, comes at once. A writer without memory for its own books ends with
// std::errc::not_enough_memory, and everything completes with that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <ranges>
#include <span>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "linkspan/base/error.hpp"
#include "linkspan/buffer/chunk.hpp"
#include "linkspan/channel/channel.hpp"
#include "linkspan/channel/handler.hpp"

namespace linkspan {

/// Sends a chunk; `done` is called once, when the kernel has accepted it, or with the reason why it has not.
/// Called in the order of the stream, inside the writer's functions; it does not call the writer.
using ChunkSend = unique_function<void(Chunk&& chunk, WriteDone done)>;

/// The bytes alone, for a pipeline whose last handler takes Chain. A chunk that is refused while others are
/// sent would leave a gap, so the channel is aborted then.
[[nodiscard]] LINKSPAN_API ChunkSend send_bytes_to(ChannelRef channel);
/// For a pipeline whose last handler takes Chunk, such as ChunkCodec; likewise.
[[nodiscard]] LINKSPAN_API ChunkSend send_chunks_to(ChannelRef channel);

/// Memory that is gone when the call returns, as that of a std::string that nobody keeps.
template <class T>
concept TemporaryMemory =
    !std::is_lvalue_reference_v<T> && std::ranges::contiguous_range<T> && !std::ranges::borrowed_range<T>;

enum class AcknowledgedBy {
  kernel,  ///< a chunk is done when the kernel has accepted it; it may still get lost
  peer,    ///< when BufferedWriter::acknowledge says so
};

struct BufferedWriterOptions {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  std::size_t chunk_bytes = std::size_t{4} << 20;  ///< a chunk has at most so many; at least 1
  /// Writes of at least so many bytes of the caller's memory refer to it; kNever: all are copied.
  std::size_t reference_threshold_bytes = std::size_t{1} << 20;
  /// For what is copied and not acknowledged yet; rounded to whole blocks, of 256 KiB where it has so many
  /// bytes, and at least 512 bytes. The pool never grows beyond it.
  std::size_t pool_bytes = std::size_t{32} << 20;
  /// Of all that was taken and is not acknowledged yet, the caller's memory too. A writer with nothing
  /// pending takes any write by reference.
  std::size_t max_pending_bytes = std::size_t{64} << 20;
  std::size_t max_waiting = 1024;  ///< writes and flushes that wait for room; more are refused
  std::size_t high_watermark_bytes = std::size_t{32} << 20;  ///< pending bytes: writable() is false above it
  std::size_t low_watermark_bytes = std::size_t{16} << 20;   ///< and true again at or below it
  ChecksumKind checksum = ChecksumKind::none;                ///< of each chunk
  AcknowledgedBy acknowledged_by = AcknowledgedBy::kernel;
  /// A connection that is lost leaves the writer waiting for another one: attach() sends again what is not
  /// acknowledged. Without it that is the writer's end, and all that is not acknowledged is unwritten.
  bool resend = false;

  BufferedWriterOptions() = default;
};

struct BufferedWriterCounters {
  std::uint64_t copied_bytes = 0;
  std::uint64_t referenced_bytes = 0;
  std::uint64_t chunks = 0;         ///< sealed
  std::uint64_t chunks_resent = 0;  ///< given to another connection once more
  std::uint64_t refused = 0;        ///< writes
};

class LINKSPAN_API BufferedWriter {
 public:
  explicit BufferedWriter(EventLoop& loop, const BufferedWriterOptions& options = {});
  /// give_up(errc::cancelled).
  ~BufferedWriter();
  BufferedWriter(const BufferedWriter&) = delete;
  BufferedWriter& operator=(const BufferedWriter&) = delete;

  /// Chunks go there from now on, those first that are not acknowledged. Not once the writer has failed.
  void attach(ChunkSend send);

  /// Takes all bytes or none. `done` is called once, when nothing will read the memory again: soon, if the
  /// bytes were copied; from the threshold up when they are acknowledged and nobody holds them any more. It
  /// says whether the bytes were taken, and of those by reference whether they were acknowledged; of those
  /// that were copied flush() tells. Writes by reference end a chunk, so that they do not wait for more.
  ///
  /// A write that is refused returns the reason, and so says `done`: errc::pool_exhausted, when the pool is
  /// full or other writes wait; errc::limit_exceeded, for max_pending_bytes or what the pool can never hold;
  /// errc::shut_down after close(); or why the writer has failed.
  std::error_code write(std::span<const std::byte> bytes, WriteDone done = nullptr);
  std::error_code write(std::string_view text, WriteDone done = nullptr) {
    return write(std::as_bytes(std::span(text)), std::move(done));
  }
  template <TemporaryMemory Memory>
  std::error_code write(Memory&& memory, WriteDone done = nullptr) = delete;
  /// Bytes that have an owner: slices of kReferenceThreshold bytes and more are referenced, unless nothing
  /// is. `done` says soon whether they were taken. Does not end a chunk.
  std::error_code write(Chain&& bytes, WriteDone done = nullptr);

  /// The same, but what finds no room waits for it, in order; what is copied is taken piece by piece, so that
  /// a pool of any size does. Beyond max_waiting it completes with errc::limit_exceeded. Returns a number for
  /// withdraw(); 0 if the write does not wait.
  std::uint64_t write_when_room(std::span<const std::byte> bytes, WriteDone done);
  std::uint64_t write_when_room(Chain&& bytes, WriteDone done);
  template <TemporaryMemory Memory>
  std::uint64_t write_when_room(Memory&& memory, WriteDone done) = delete;
  /// True: nothing of that write was taken, and nothing will be; it completes with errc::cancelled.
  bool withdraw(std::uint64_t waiting);

  /// Sends what was collected. `done` is called when all that was written before, also what waits, is
  /// acknowledged, or with the reason why some of it will not be.
  void flush(WriteDone done = nullptr);
  /// The same, and takes no more writes. The channel stays open.
  void close(WriteDone done = nullptr);
  /// The peer has the first `bytes` of the stream; whole chunks count. False when they were not sent.
  bool acknowledge(std::uint64_t bytes);
  /// The connection is gone, which a writer whose chunks the kernel has accepted cannot see by itself.
  void detach(std::error_code reason);
  /// Everything that is not acknowledged fails with `reason`, and the writer with it. Memory that is being
  /// sent is free when the channel lets go of it.
  void give_up(std::error_code reason);

  /// Called with false when more than the high watermark is pending or a write was refused, with true when
  /// there is room again.
  void on_writable_changed(unique_function<void(bool writable)> callback);
  /// Called when the connection has failed: with resend the writer waits for attach() then.
  void on_detached(unique_function<void(std::error_code error)> callback);

  [[nodiscard]] bool writable() const noexcept;
  [[nodiscard]] bool attached() const noexcept;
  /// Why it takes nothing any more; none while it does, or after close().
  [[nodiscard]] std::error_code error() const noexcept;
  /// The account: what was taken, and how much of that is acknowledged. What is between is pending, and
  /// unwritten once the writer has failed.
  [[nodiscard]] std::uint64_t taken_bytes() const noexcept;
  [[nodiscard]] std::uint64_t acknowledged_bytes() const noexcept;
  /// Taken and not acknowledged, and what waits; 0 once it has failed.
  [[nodiscard]] std::size_t pending_bytes() const noexcept;
  [[nodiscard]] const BufferedWriterCounters& counters() const noexcept;
  /// What its pool holds now, and at most.
  [[nodiscard]] BlockPoolStatistics pool_statistics() const noexcept;
  [[nodiscard]] EventLoop& loop() const noexcept;

 private:
  class Core;

  std::shared_ptr<Core> core_;  // the completions of chunks that are being sent know it weakly
};

}  // namespace linkspan
