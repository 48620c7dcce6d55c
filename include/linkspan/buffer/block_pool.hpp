// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// BlockPool: the blocks of one loop, in size classes, under a byte budget.
// Not for: memory that lives long; a cached block counts against the budget until it is trimmed.
// Cost: allocate and free on the owner's thread pop and push a list. A free on another thread pushes to a
// lock-free list that the owner empties. Blocks above the largest class come from the heap and count too.
// Threads: allocate, collect, trim and destruction belong to the owner's thread; blocks are released on any
// thread, also after the pool is gone. statistics() is safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/block.hpp"

namespace linkspan {

struct BlockPoolOptions {
  std::size_t budget_bytes = std::size_t{256}
                             << 20;  ///< live and cached bytes together; beyond it allocate refuses
  std::size_t cache_bytes = std::size_t{16} << 20;  ///< released blocks kept for reuse, at most
};

/// Of one size class.
struct BlockClassStatistics {
  std::uint64_t live_blocks;
  std::uint64_t cached_blocks;
};

/// live_bytes far above what the program's chains show means that few bytes pin large blocks: see
/// Chain::pinned_size and Chain::compact.
struct BlockPoolStatistics {
  std::uint64_t live_bytes;        ///< handed out and not yet returned, rounded up to classes
  std::uint64_t cached_bytes;      ///< waiting for reuse
  std::uint64_t high_water_bytes;  ///< the highest live_bytes so far
  std::uint64_t allocations;
  std::uint64_t refusals;
  std::array<BlockClassStatistics, 6> classes;  ///< in the order of BlockPool::kClassBytes
};

class LINKSPAN_API BlockPool final : public BlockAllocator {
 public:
  static constexpr std::array<std::size_t, 6> kClassBytes{512, 2048, 4096, 16 * 1024, 64 * 1024, 256 * 1024};

  /// The calling thread becomes the owner.
  explicit BlockPool(BlockPoolOptions options = {});
  ~BlockPool() override;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Rounded up to a class. An empty Block when the budget or the heap refuses.
  [[nodiscard]] Block allocate(std::size_t size) noexcept override;

  /// Takes home what other threads have released. Whether any blocks are cached now.
  bool collect() noexcept;
  /// Gives all cached blocks back to the heap.
  void trim() noexcept;
  /// Gives back those that were not needed since the last call. The loop of a pool does it about once a
  /// second (EventLoopOptions::trim_interval) while there is something to give back.
  void trim_unused() noexcept;

  /// Called, on whatever thread releases it, when a block comes back after allocate has refused: once per
  /// refusal. Must not throw or touch the pool; set it before the pool is used.
  void set_available_callback(unique_function<void()> callback);

  [[nodiscard]] BlockPoolStatistics statistics() const noexcept;
  [[nodiscard]] const BlockPoolOptions& options() const noexcept;

 private:
  class Core;
  friend struct PooledStorage;

  Core* core_;  // lives until the last block is back
};

}  // namespace linkspan
