// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/page_allocator.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

namespace linkspan {
namespace {

constexpr std::size_t kHugePageBytes = PageAllocator::kPieceBytes;

std::size_t page_bytes() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// When the system can hold no more separate mappings it may refuse to unmap a part of one: then the memory
// goes back at least, and only the addresses stay taken.
void unmap(std::byte* memory, std::size_t size) noexcept {
  if (size != 0 && ::munmap(memory, size) != 0) static_cast<void>(::madvise(memory, size, MADV_DONTNEED));
}

std::byte* map(std::size_t size, int flags) noexcept {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Begins where a huge page can begin.
std::byte* map_aligned(std::size_t size) noexcept {
  std::byte* memory = map(size + kHugePageBytes, 0);
  if (memory == nullptr) return nullptr;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(memory) % kHugePageBytes;
  unmap(memory, before);
  unmap(memory + before + size, kHugePageBytes - before);
  return memory + before;
}

std::byte* map_pages(std::size_t size, HugePages huge_pages) noexcept {
  if (huge_pages == HugePages::reserved) {
#ifdef MAP_HUGETLB
    constexpr int kTwoMebibytes = 21 << 26;  // its logarithm, where the kernel looks for it
    return map(size, MAP_HUGETLB | kTwoMebibytes);
#else
    return nullptr;
#endif
  }
  const bool aligned = huge_pages == HugePages::transparent && size >= kHugePageBytes;
  std::byte* memory = aligned ? map_aligned(size) : map(size, 0);
#ifdef MADV_HUGEPAGE
  // Advice: a kernel without transparent huge pages refuses it, and the memory is as good.
  if (memory != nullptr) {
    static_cast<void>(::madvise(memory, size, aligned ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
  }
#endif
  return memory;
}

}  // namespace

struct PageStorage final : Storage {
  PageStorage(const std::byte* data, std::size_t capacity,
              std::shared_ptr<PageAllocator::State> state_in) noexcept;

  using Storage::set_data;

  std::shared_ptr<PageAllocator::State> state;
  std::size_t mapped_bytes;     // from data() on
  PageStorage* next = nullptr;  // in the list of those put aside
};

class PageAllocator::State {
 public:
  explicit State(PageAllocatorOptions options) noexcept : options_(options) {}

  Block allocate(std::size_t size, std::shared_ptr<State> self) noexcept {
    const std::size_t unit = options_.huge_pages == HugePages::reserved ? kHugePageBytes : page_bytes();
    // Leaves room for rounding up and for aligning.
    constexpr std::size_t kSizeMax = std::numeric_limits<std::size_t>::max() - 2 * kHugePageBytes;
    if (size > kSizeMax) return refuse();
    const std::size_t capacity = (std::max<std::size_t>(size, 1) + unit - 1) / unit * unit;
    if (!reserve(capacity)) return refuse();
    auto* storage = new (std::nothrow) PageStorage(nullptr, capacity, std::move(self));
    std::byte* memory = storage != nullptr ? map_pages(capacity, options_.huge_pages) : nullptr;
    if (memory == nullptr) {
      delete storage;
      const std::lock_guard lock(mutex_);
      live_bytes_ -= capacity;
      ++refusals_;
      return {};
    }
    storage->set_data(memory);
    const std::lock_guard lock(mutex_);
    high_water_bytes_ = std::max(high_water_bytes_, live_bytes_ + released_bytes_);
    ++allocations_;
    return Block(*storage);
  }

  void release(PageStorage* storage) noexcept {
    {
      const std::lock_guard lock(mutex_);
      live_bytes_ -= storage->capacity();
      released_bytes_ += storage->capacity();
      if (storage->mapped_bytes > kPieceBytes && callback_) {
        put_aside(storage);
        callback_();
        return;
      }
    }
    while (!unmap_piece(storage)) {
    }
  }

  bool unmap_released() noexcept {
    PageStorage* storage = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (released_ == nullptr) return false;
      storage = std::exchange(released_, released_->next);
    }
    const bool unmapped = unmap_piece(storage);
    const std::lock_guard lock(mutex_);
    if (!unmapped) put_aside(storage);
    return released_ != nullptr;
  }

  void set_callback(unique_function<void()> callback) {
    const std::lock_guard lock(mutex_);
    std::swap(callback_, callback);  // the old one is destroyed outside of the lock: it may hold a block
  }

  [[nodiscard]] PageAllocatorStatistics statistics() const noexcept {
    const std::lock_guard lock(mutex_);
    return {live_bytes_, released_bytes_, high_water_bytes_, allocations_, refusals_};
  }
  [[nodiscard]] const PageAllocatorOptions& options() const noexcept { return options_; }

 private:
  bool reserve(std::size_t capacity) noexcept {
    const std::lock_guard lock(mutex_);
    const std::size_t mapped = live_bytes_ + released_bytes_;
    if (capacity > options_.budget_bytes || mapped > options_.budget_bytes - capacity) return false;
    live_bytes_ += capacity;
    return true;
  }

  Block refuse() noexcept {
    const std::lock_guard lock(mutex_);
    ++refusals_;
    return {};
  }

  void put_aside(PageStorage* storage) noexcept { storage->next = std::exchange(released_, storage); }

  // From the end, so that a mapping is only ever made shorter, and to where a huge page begins, so that none
  // has to be split. True when that was the last piece.
  bool unmap_piece(PageStorage* storage) noexcept {
    const std::size_t rest = (storage->mapped_bytes - 1) / kPieceBytes * kPieceBytes;
    unmap(const_cast<std::byte*>(storage->data()) + rest, storage->mapped_bytes - rest);
    {
      const std::lock_guard lock(mutex_);
      released_bytes_ -= storage->mapped_bytes - rest;
    }
    storage->mapped_bytes = rest;
    if (rest == 0) delete storage;
    return rest == 0;
  }

  const PageAllocatorOptions options_;
  mutable std::mutex mutex_;
  std::size_t live_bytes_ = 0;
  std::size_t released_bytes_ = 0;
  std::size_t high_water_bytes_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t refusals_ = 0;
  PageStorage* released_ = nullptr;  // put aside
  unique_function<void()> callback_;
};

PageStorage::PageStorage(const std::byte* data, std::size_t capacity,
                         std::shared_ptr<PageAllocator::State> state_in) noexcept
    : Storage(
          data, capacity, Access::writable,
          [](Storage* self) noexcept {
            auto* storage = static_cast<PageStorage*>(self);
            const std::shared_ptr<PageAllocator::State> kept = storage->state;
            kept->release(storage);
          },
          BufferKind::page),
      state(std::move(state_in)),
      mapped_bytes(capacity) {}

PageAllocator::PageAllocator(PageAllocatorOptions options) : state_(std::make_shared<State>(options)) {}

PageAllocator::~PageAllocator() {
  state_->set_callback(nullptr);
  while (state_->unmap_released()) {
  }
}

Block PageAllocator::allocate(std::size_t size) noexcept {
  return state_->allocate(size, state_);
}

bool PageAllocator::populate(std::span<std::byte> part) noexcept {
  if (part.empty()) return true;
#ifdef MADV_POPULATE_WRITE
  const std::size_t before = reinterpret_cast<std::uintptr_t>(part.data()) % page_bytes();
  if (::madvise(part.data() - before, part.size() + before, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
#endif
  for (std::size_t at = 0; at < part.size(); at += page_bytes()) {
    volatile std::byte& byte = part[at];
    byte = byte;
  }
  volatile std::byte& last = part.back();
  last = last;
  return true;
}

void PageAllocator::set_released_callback(unique_function<void()> callback) {
  state_->set_callback(std::move(callback));
}
bool PageAllocator::unmap_released() noexcept {
  return state_->unmap_released();
}
PageAllocatorStatistics PageAllocator::statistics() const noexcept {
  return state_->statistics();
}
const PageAllocatorOptions& PageAllocator::options() const noexcept {
  return state_->options();
}

}  // namespace linkspan
