// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// PageSpace: one mapping cut into pages, with a bit for each: 1 is free. Taking and giving back are atomic
// operations on the words of the bitmap, so no thread waits for another, and a page that is given back twice
// is noticed. It also keeps the byte budget of whoever uses it. Shared by its users and by every value that
// lies in its pages.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/page_allocator.hpp"
#include "linkspan/buffer/storage.hpp"

namespace linkspan {

/// Pages in a row.
struct PageRun {
  std::uint32_t first;
  std::uint32_t count;
};

/// The runs of one allocation, in order; most have one. A resource: who has it gives the pages back.
class RunList {
 public:
  RunList() noexcept = default;
  RunList(RunList&& other) noexcept { swap(other); }
  RunList& operator=(RunList&& other) noexcept {
    swap(other);
    return *this;
  }
  RunList(const RunList&) = delete;
  RunList& operator=(const RunList&) = delete;
  ~RunList() {
    if (runs_ != inline_.data()) delete[] runs_;
  }

  [[nodiscard]] std::span<PageRun> runs() noexcept { return {runs_, size_}; }
  [[nodiscard]] std::span<const PageRun> runs() const noexcept { return {runs_, size_}; }
  /// A run that continues the last one extends it. False: no memory.
  [[nodiscard]] bool append(PageRun run) noexcept;
  [[nodiscard]] std::size_t page_count() const noexcept {
    std::size_t pages = 0;
    for (const PageRun& run : runs()) pages += run.count;
    return pages;
  }
  void swap(RunList& other) noexcept;

 private:
  std::array<PageRun, 2> inline_{};
  PageRun* runs_ = inline_.data();
  std::size_t size_ = 0;
  std::size_t capacity_ = inline_.size();
};

class PageSpace {
 public:
  /// `budget_bytes` is what reserve() gives out; pages are a part of that.
  [[nodiscard]] static Result<std::shared_ptr<PageSpace>> open(std::size_t pages, std::size_t page_bytes,
                                                               std::size_t budget_bytes,
                                                               HugePages huge_pages);
  ~PageSpace();
  PageSpace(const PageSpace&) = delete;
  PageSpace& operator=(const PageSpace&) = delete;

  /// All of `pages` or none: false. In one run when there is a place for it within reach, else in the largest
  /// runs that are found.
  [[nodiscard]] bool take(std::size_t pages, RunList& to) noexcept;
  /// One page from the other end, for what is cut into small pieces. `hint` is the caller's. nullptr: none.
  [[nodiscard]] std::byte* take_one(std::size_t& hint) noexcept;
  /// Asserts that the pages were taken.
  void give_back(std::span<const PageRun> runs) noexcept;
  void give_back_one(const std::byte* page) noexcept;

  [[nodiscard]] std::byte* address(std::size_t page) const noexcept { return base_ + page * page_bytes_; }
  [[nodiscard]] std::span<std::byte> memory(PageRun run) const noexcept {
    return {address(run.first), run.count * page_bytes_};
  }
  [[nodiscard]] std::byte* page_of(const void* inside) const noexcept {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(inside) - base_);
    return base_ + offset / page_bytes_ * page_bytes_;
  }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }
  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t pages_for(std::size_t bytes) const noexcept {
    return bytes / page_bytes_ + (bytes % page_bytes_ != 0 ? 1 : 0);
  }
  [[nodiscard]] std::size_t free_pages() const noexcept {
    return free_pages_.load(std::memory_order_relaxed);
  }

  // The budget.
  [[nodiscard]] bool reserve(std::size_t bytes) noexcept;
  void unreserve(std::size_t bytes) noexcept { used_bytes_.fetch_sub(bytes, std::memory_order_acq_rel); }
  [[nodiscard]] std::size_t used_bytes() const noexcept {
    return used_bytes_.load(std::memory_order_acquire);
  }
  [[nodiscard]] std::size_t available_bytes() const noexcept {
    return budget_bytes_ - std::min(used_bytes(), budget_bytes_);
  }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return budget_bytes_; }
  std::atomic<std::size_t> pinned_bytes{0};  // of values that are in no entry

 private:
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::size_t kWordPages = 64;
  static constexpr std::size_t kHints = 16;
  // How far is searched for a run of the whole size: pages for 1 GiB of 4 KiB.
  static constexpr std::size_t kSearchWords = 4096;

  PageSpace(Block mapping, std::size_t pages, std::size_t page_bytes, std::size_t budget_bytes);

  [[nodiscard]] bool reserve_pages(std::size_t pages) noexcept;
  template <class F>
  std::size_t for_words(std::size_t first, std::size_t count, F f) const noexcept;
  [[nodiscard]] bool claim(std::size_t first, std::size_t count) noexcept;
  void set_free(std::size_t first, std::size_t count) noexcept;
  [[nodiscard]] bool taken(PageRun run) const noexcept;
  [[nodiscard]] bool take_run(std::size_t start_word, std::size_t pages, PageRun& run) noexcept;
  [[nodiscard]] bool take_pieces(std::size_t start_word, std::size_t pages, RunList& to) noexcept;

  struct alignas(64) Hint {
    std::atomic<std::size_t> word;
  };
  Hint& own_hint() noexcept;

  Block mapping_;
  std::byte* base_;
  std::size_t pages_;
  std::size_t page_bytes_;
  std::size_t budget_bytes_;
  std::size_t words_;
  std::unique_ptr<Word[]> free_;
  std::array<Hint, kHints> hints_;
  alignas(64) std::atomic<std::size_t> free_pages_;
  alignas(64) std::atomic<std::size_t> used_bytes_{0};
};

namespace detail {

/// The count in front of a value that is shared with readers, and its part of the budget.
struct LargeValue : Storage {
  enum class Kind : std::uint8_t { pages, adopted };

  LargeValue(const std::byte* data, std::size_t capacity, Access access, ReleaseFunction release_function,
             Kind kind_in, const std::shared_ptr<PageSpace>& space_in, std::size_t charge_in) noexcept;

  /// An entry has it from now on, or not any more; several may.
  void enter() noexcept {
    if (entries.fetch_add(1, std::memory_order_relaxed) == 0) {
      space->pinned_bytes.fetch_sub(charge, std::memory_order_relaxed);
    }
  }
  void leave() noexcept {
    if (entries.fetch_sub(1, std::memory_order_relaxed) == 1) {
      space->pinned_bytes.fetch_add(charge, std::memory_order_relaxed);
    }
  }
  /// At the end, when no entry has it.
  void give_back_charge() noexcept {
    space->pinned_bytes.fetch_sub(charge, std::memory_order_relaxed);
    space->unreserve(charge);
  }

  Kind kind;
  std::atomic<std::uint32_t> entries{0};
  std::shared_ptr<PageSpace> space;
  std::size_t charge;  // bytes of the budget, given back at the end
};

struct PagesValue final : LargeValue {
  PagesValue(const std::shared_ptr<PageSpace>& space_in, RunList&& runs_in, std::size_t charge_in) noexcept;
  static void release_pages(Storage* storage) noexcept;

  RunList runs;
};

/// Blocks that were received, kept as they are.
struct AdoptedValue final : LargeValue {
  AdoptedValue(const std::shared_ptr<PageSpace>& space_in, Chain&& chain_in, std::size_t charge_in) noexcept;
  static void release_chain(Storage* storage) noexcept;

  Chain chain;
};

/// Pages for `bytes`, already in the budget with `charge` bytes; empty when the pages or memory are out.
[[nodiscard]] StorageRef make_pages_value(const std::shared_ptr<PageSpace>& space, std::size_t bytes,
                                          std::size_t charge) noexcept;
/// What such a value costs of the budget.
[[nodiscard]] std::size_t pages_charge(const PageSpace& space, std::size_t bytes) noexcept;

/// Its first `size` bytes as slices. Throws std::bad_alloc.
[[nodiscard]] Chain slices_of(const StorageRef& value, std::size_t size);

}  // namespace detail
}  // namespace linkspan
