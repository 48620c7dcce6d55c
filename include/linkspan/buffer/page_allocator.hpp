// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// PageAllocator: blocks of whole pages, straight from the system, for memory that is large and lives long.
// Not for: buffers of a few KiB or of a short life (BlockPool): each block costs mmap, a fault per page on
// first touch, and munmap. A loop that needs large memory at once uses LargeMemory (loop/large_memory.hpp).
// Cost: some microseconds for allocate, however large; pages take memory when they are first touched, or
// populated. The storage is on the heap, so that data begins on a page and a release touches no page.
// Threads: any; blocks may outlive the allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/block.hpp"

namespace linkspan {

enum class HugePages {
  never,
  transparent,  ///< blocks of 2 MiB and more are aligned for huge pages, which the system gives when it can
  reserved,     ///< from the pages of 2 MiB that the administrator set aside; when they are used up, or the
                ///< system has no such thing, allocate refuses
};

struct PageAllocatorOptions {
  std::size_t budget_bytes = std::size_t{1} << 30;  ///< mapped bytes; beyond it allocate refuses
  HugePages huge_pages = HugePages::transparent;

  PageAllocatorOptions() = default;
};

struct PageAllocatorStatistics {
  std::uint64_t live_bytes;        ///< handed out and not yet released, in whole pages
  std::uint64_t released_bytes;    ///< released but still mapped; see set_released_callback
  std::uint64_t high_water_bytes;  ///< the highest sum of both so far
  std::uint64_t allocations;
  std::uint64_t refusals;
};

class LINKSPAN_API PageAllocator final : public BlockAllocator {
 public:
  /// Memory is unmapped in pieces of this size at most, because unmapping a lot in one go stalls every thread
  /// of the process that maps memory meanwhile. Also the size of a huge page.
  static constexpr std::size_t kPieceBytes = std::size_t{2} << 20;

  explicit PageAllocator(PageAllocatorOptions options = {});
  /// Unmaps what is released; blocks that are still out are unmapped by whoever releases them.
  ~PageAllocator() override;
  PageAllocator(const PageAllocator&) = delete;
  PageAllocator& operator=(const PageAllocator&) = delete;

  /// Rounded up to whole pages, and at least one; all bytes are zero. An empty Block when the budget or the
  /// system refuses.
  [[nodiscard]] Block allocate(std::size_t size) noexcept override;

  /// Gives `part` of a block its memory now, in one system call where there is one for it (Linux 5.14),
  /// instead of at the first touch of each page. Bytes keep their values. False when the system is out of
  /// memory.
  [[nodiscard]] static bool populate(std::span<std::byte> part) noexcept;

  /// By default a block is unmapped by the thread that releases it. That takes some 100 ms for 2 GiB of small
  /// pages. With a callback, blocks of more than one piece are only put aside, and count against the budget
  /// until unmap_released() has got to them. The callback tells that there are some: it is called on the
  /// releasing thread, must not throw or use this allocator, and is called no more once another one, or none,
  /// was set.
  void set_released_callback(unique_function<void()> callback);
  /// Unmaps one piece of what was put aside; true when there is more.
  bool unmap_released() noexcept;

  [[nodiscard]] PageAllocatorStatistics statistics() const noexcept;
  [[nodiscard]] const PageAllocatorOptions& options() const noexcept;

 private:
  class State;
  friend struct PageStorage;

  std::shared_ptr<State> state_;  // shared with the blocks
};

}  // namespace linkspan
