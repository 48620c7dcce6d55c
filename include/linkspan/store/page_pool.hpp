// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// PagePool: one mapping, cut into pages of one size, for values that many threads write, share and drop.
// Pages: some of them, all or none, with one owner that may write; freezing turns them into slices, whose
// pages go back when the last slice is gone.
// Not for: pieces much smaller than a page; buffers of one loop (BlockPool).
// Cost: taking and giving back are atomic operations on a bitmap, and one heap allocation for the count.
// Pages in a row are preferred; when there are no more, a value is as many slices as runs were found for it.
// Threads: any; Pages are a value, for one thread at a time; they, and slices of them, may outlive the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/page_allocator.hpp"
#include "linkspan/store/store_error.hpp"

namespace linkspan {

class PageSpace;
class OffHeapMap;
namespace detail {
struct PagesValue;
}

struct PagePoolOptions {
  std::size_t bytes = std::size_t{64} << 20;  ///< rounded down to whole pages
  std::size_t page_bytes = 4096;              ///< a power of two from 4096 to 1 MiB
  HugePages huge_pages = HugePages::transparent;

  PagePoolOptions() = default;
};

struct PagePoolStatistics {
  std::uint64_t pages;
  std::uint64_t free_pages;
};

/// Pages with one owner, or none. There is no way to give them back twice.
class LINKSPAN_API Pages {
 public:
  Pages() noexcept = default;
  Pages(Pages&&) noexcept = default;
  Pages& operator=(Pages&&) noexcept = default;
  ~Pages() = default;

  /// False when they were refused.
  explicit operator bool() const noexcept { return static_cast<bool>(value_); }

  /// Bytes of all pages.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Pages in a row are one piece.
  [[nodiscard]] std::size_t piece_count() const noexcept;
  [[nodiscard]] std::span<std::byte> piece(std::size_t index) noexcept;
  /// The same piece, for what wants a Block to write to (Channel::receive_into). The pages are not free
  /// before the block is gone too.
  [[nodiscard]] Block block(std::size_t index) noexcept;

  /// Copies (CopyPlace::store); asserts that the bytes are inside.
  void write(std::size_t offset, std::span<const std::byte> bytes) noexcept;
  void write(std::size_t offset, const Chain& bytes) noexcept;

  /// To as many pages as `bytes` need; what is in the first ones stays. All or nothing: false, and nothing
  /// has changed, when there are not enough. Asserts that no block() is out.
  [[nodiscard]] bool resize(std::size_t bytes) noexcept;

  /// The first `size` bytes as slices, which are immutable from now on. Throws std::bad_alloc when there are
  /// more than 4 pieces and no memory for a list of them; the pages are the caller's still then.
  [[nodiscard]] Chain freeze(std::size_t size) &&;

 private:
  friend class PagePool;
  friend class OffHeapMap;

  explicit Pages(StorageRef value) noexcept;
  [[nodiscard]] detail::PagesValue& value() const noexcept;

  StorageRef value_;
  std::size_t size_ = 0;
};

class LINKSPAN_API PagePool {
 public:
  [[nodiscard]] static Result<PagePool> open(PagePoolOptions options = {});
  PagePool(PagePool&&) noexcept;
  PagePool& operator=(PagePool&&) noexcept;
  ~PagePool();

  /// Pages for `bytes`, not zeroed; none when there are not enough, or no memory for the count.
  [[nodiscard]] Pages allocate(std::size_t bytes) noexcept;

  [[nodiscard]] std::size_t page_bytes() const noexcept;
  /// Exact when no other thread takes or gives back.
  [[nodiscard]] PagePoolStatistics statistics() const noexcept;

 private:
  explicit PagePool(std::shared_ptr<PageSpace> space) noexcept;

  std::shared_ptr<PageSpace> space_;  // shared with the pages
};

}  // namespace linkspan
