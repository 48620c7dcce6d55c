// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/block_pool.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>

#include "linkspan/base/counter.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define LINKSPAN_POISON_BLOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LINKSPAN_POISON_BLOCKS 1
#endif
#endif
#ifdef LINKSPAN_POISON_BLOCKS
#include <sanitizer/asan_interface.h>
#endif

namespace linkspan {

// In front of each pooled block's data, in the same allocation.
struct PooledStorage final : Storage {
  PooledStorage(std::size_t capacity, std::uint32_t size_class_in, BlockPool::Core* core_in) noexcept;

  using Storage::revive;

  BlockPool::Core* core;
  PooledStorage* next = nullptr;  // in a list of released blocks
  std::uint32_t size_class;
};

namespace {

constexpr std::size_t kDataOffset = 64;
static_assert(sizeof(PooledStorage) <= kDataOffset);
// Of what is too large for a class: always from the heap.
constexpr auto kHuge = static_cast<std::uint32_t>(BlockPool::kClassBytes.size());

// Classes are powers of two: how many bits a size has above those of the smallest one says which it is.
static_assert(std::ranges::all_of(BlockPool::kClassBytes, std::has_single_bit<std::size_t>));
constexpr auto kClassOfWidth = [] {
  std::array<std::uint8_t, std::bit_width(BlockPool::kClassBytes.back() / BlockPool::kClassBytes.front())>
      classes{};
  for (std::size_t width = 0; width < classes.size(); ++width) {
    const std::size_t largest = BlockPool::kClassBytes.front() << width;
    const auto* found = std::ranges::lower_bound(BlockPool::kClassBytes, largest);
    classes[width] = static_cast<std::uint8_t>(found - BlockPool::kClassBytes.begin());
  }
  return classes;
}();

std::uint32_t class_of(std::size_t size) noexcept {
  if (size > BlockPool::kClassBytes.back()) return kHuge;
  const std::size_t last_byte = size == 0 ? 0 : size - 1;
  return kClassOfWidth[static_cast<std::size_t>(std::bit_width(last_byte / BlockPool::kClassBytes.front()))];
}

// An address that no other living thread has. The model makes finding it one instruction in the shared
// library too; a program that loads that later has room for it.
const void* this_thread_token() noexcept {
  [[gnu::tls_model("initial-exec")]] static thread_local char token;
  return &token;
}

// Under AddressSanitizer a released block is as unreadable as freed memory.
void poison([[maybe_unused]] PooledStorage* storage) noexcept {
#ifdef LINKSPAN_POISON_BLOCKS
  ASAN_POISON_MEMORY_REGION(storage->data(), storage->capacity());
#endif
}
void unpoison([[maybe_unused]] PooledStorage* storage) noexcept {
#ifdef LINKSPAN_POISON_BLOCKS
  ASAN_UNPOISON_MEMORY_REGION(storage->data(), storage->capacity());
#endif
}

void give_back_to_heap(PooledStorage* storage) noexcept {
  unpoison(storage);
  storage->~PooledStorage();
  ::operator delete(storage);
}

}  // namespace

// Outlives the pool until the last block is back. The owner's thread works on the plain members. Other
// threads push released blocks to foreign_, which holds the head of a list, or kClosed once the pool is gone;
// its lowest bit says that allocate was refused, so whoever pushes onto it has to call the available
// callback.
class BlockPool::Core {
 public:
  explicit Core(BlockPoolOptions options) noexcept : options_(options), owner_(this_thread_token()) {}

  Block allocate(std::size_t size) noexcept {
    const std::uint32_t size_class = class_of(size);
    PooledStorage* storage = pop_cached(classes_[size_class]);
    if (storage == nullptr) return allocate_slowly(size_class, size);
    storage->revive();
    return hand_out(*storage);
  }

  [[gnu::noinline]] Block allocate_slowly(std::uint32_t size_class, std::size_t size) noexcept {
    const std::size_t capacity = size_class == kHuge ? size : kClassBytes[size_class];
    PooledStorage* storage = take(size_class, capacity);
    // Refusal is announced only while no foreign block waits; so the block that comes next is seen to be the
    // first.
    while (storage == nullptr) {
      std::uintptr_t none = 0;
      if (foreign_.compare_exchange_strong(none, kRefused, std::memory_order_acq_rel) || none == kRefused) {
        refusals_.add(1);
        return {};
      }
      drain_foreign();
      storage = take(size_class, capacity);
    }
    return hand_out(*storage);
  }

  void release(PooledStorage* storage) noexcept {
    if (owner_.load(std::memory_order_relaxed) == this_thread_token()) {
      recycle(storage);
      if ((foreign_.load(std::memory_order_relaxed) & kRefused) != 0) announce();
      return;
    }
    poison(storage);
    std::uintptr_t head = foreign_.load(std::memory_order_acquire);
    for (;;) {
      if (head == kClosed) {
        give_back_to_heap(storage);
        if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
        return;
      }
      if ((head & kRefused) != 0) {
        if (push_and_announce(storage)) return;
        head = foreign_.load(std::memory_order_acquire);
        continue;
      }
      storage->next = to_pointer(head);
      // Once this succeeds the core may be deleted by its owner at any moment.
      if (foreign_.compare_exchange_weak(head, to_bits(storage), std::memory_order_acq_rel)) return;
    }
  }

  bool collect() noexcept {
    drain_foreign();
    return cached_bytes() != 0;
  }

  void trim() noexcept {
    drain_foreign();
    free_all_cached();
  }

  void trim_unused() noexcept {
    drain_foreign();
    for (SizeClass& size_class : classes_) {
      free_cached(size_class, size_class.unused);
      size_class.unused = size_class.cached();
    }
  }

  // The pool is gone: no more allocations, blocks go straight to the heap.
  void close() noexcept {
    std::uintptr_t head = 0;
    unique_function<void()> callback;  // destroyed outside of the lock: it may hold a block
    {
      const std::lock_guard lock(announce_mutex_);
      owner_.store(nullptr, std::memory_order_relaxed);
      head = foreign_.exchange(kClosed, std::memory_order_acq_rel);
      std::swap(available_callback_, callback);
    }
    recycle_list(to_pointer(head & ~kRefused));
    free_all_cached();
    std::uint64_t outstanding = 0;
    for (const SizeClass& size_class : classes_) outstanding += size_class.live.get();
    const std::int64_t change = static_cast<std::int64_t>(outstanding) - kRemainingBias;
    if (remaining_.fetch_add(change, std::memory_order_acq_rel) + change == 0) delete this;
  }

  void set_available_callback(unique_function<void()> callback) {
    const std::lock_guard lock(announce_mutex_);
    std::swap(available_callback_, callback);  // the old one is destroyed outside of the lock
  }

  [[nodiscard]] BlockPoolStatistics statistics() const noexcept {
    BlockPoolStatistics now{live_.get(),        cached_bytes(),  high_water_.get(),
                            allocations_.get(), refusals_.get(), {}};
    for (std::size_t i = 0; i < kClassBytes.size(); ++i) {
      now.classes[i] = {classes_[i].live.get(), classes_[i].cached()};
    }
    return now;
  }
  [[nodiscard]] const BlockPoolOptions& options() const noexcept { return options_; }

 private:
  static constexpr std::uintptr_t kRefused = 1;
  static constexpr std::uintptr_t kClosed = 2;
  static constexpr std::int64_t kRemainingBias = std::int64_t{1} << 62;

  static std::uintptr_t to_bits(PooledStorage* storage) noexcept {
    return reinterpret_cast<std::uintptr_t>(storage);
  }
  static PooledStorage* to_pointer(std::uintptr_t bits) noexcept {
    return reinterpret_cast<PooledStorage*>(bits);
  }

  // What can be worked out from other counters is not counted. Seen from another thread, of two counters one
  // may be older.
  static std::uint64_t difference(std::uint64_t all, std::uint64_t part) noexcept {
    return all > part ? all - part : 0;
  }

  struct SizeClass {
    PooledStorage* free = nullptr;
    Counter blocks;            // from the heap
    Counter live;              // of these, handed out
    std::uint64_t unused = 0;  // the least of cached() since the last trim_unused

    [[nodiscard]] std::uint64_t cached() const noexcept { return difference(blocks.get(), live.get()); }
  };

  [[nodiscard]] std::uint64_t cached_bytes() const noexcept { return difference(held_.get(), live_.get()); }

  [[nodiscard]] bool fits(std::size_t capacity) const noexcept {
    return held_.get() <= options_.budget_bytes - capacity;
  }

  Block hand_out(PooledStorage& storage) noexcept {
    SizeClass& size_class = classes_[storage.size_class];
    size_class.live.add(1);
    size_class.unused = std::min(size_class.unused, size_class.blocks.get() - size_class.live.get());
    allocations_.add(1);
    live_.add(storage.capacity());
    high_water_.raise_to(live_.get());
    return Block(storage);
  }

  PooledStorage* take(std::uint32_t size_class, std::size_t capacity) noexcept {
    SizeClass& kept = classes_[size_class];
    drain_foreign();
    if (PooledStorage* storage = pop_cached(kept)) {
      storage->revive();
      return storage;
    }
    if (capacity > options_.budget_bytes) return nullptr;
    if (!fits(capacity)) {
      free_all_cached();
      if (!fits(capacity)) return nullptr;
    }
    if (capacity > std::numeric_limits<std::size_t>::max() - kDataOffset) return nullptr;
    void* memory = ::operator new(kDataOffset + capacity, std::nothrow);
    if (memory == nullptr) return nullptr;
    kept.blocks.add(1);
    held_.add(capacity);
    return ::new (memory) PooledStorage(capacity, size_class, this);
  }

  // Owner's thread: a block is back.
  void recycle(PooledStorage* storage) noexcept {
    SizeClass& kept = classes_[storage->size_class];
    live_.subtract(storage->capacity());
    kept.live.subtract(1);
    if (cached_bytes() > options_.cache_bytes || storage->size_class == kHuge) {
      free(storage);
      return;
    }
    poison(storage);
    storage->next = std::exchange(kept.free, storage);
  }

  void free(PooledStorage* storage) noexcept {
    classes_[storage->size_class].blocks.subtract(1);
    held_.subtract(storage->capacity());
    give_back_to_heap(storage);
  }

  void recycle_list(PooledStorage* list) noexcept {
    while (list != nullptr) recycle(std::exchange(list, list->next));
  }

  // A refusal is no block, and stays where it is until it has been announced.
  void drain_foreign() noexcept {
    if (foreign_.load(std::memory_order_relaxed) <= kClosed) return;
    recycle_list(to_pointer(foreign_.exchange(0, std::memory_order_acq_rel)));
  }

  // nullptr: none is cached.
  static PooledStorage* pop_cached(SizeClass& kept) noexcept {
    PooledStorage* storage = kept.free;
    if (storage == nullptr) return nullptr;
    kept.free = storage->next;
    unpoison(storage);
    return storage;
  }
  void free_cached(SizeClass& kept, std::uint64_t blocks) noexcept {
    for (; blocks != 0; --blocks) free(pop_cached(kept));
  }
  void free_all_cached() noexcept {
    for (SizeClass& kept : classes_) {
      free_cached(kept, kept.cached());
      kept.unused = 0;
    }
  }

  // Owner's thread. Another thread may have announced the same refusal just now, or be at it.
  void announce() noexcept {
    const std::lock_guard lock(announce_mutex_);
    const std::uintptr_t before = foreign_.fetch_and(~kRefused, std::memory_order_acq_rel);
    if ((before & kRefused) != 0 && available_callback_) available_callback_();
  }

  // The lock keeps close() out until the callback has run. False when the list is no longer marked.
  bool push_and_announce(PooledStorage* storage) noexcept {
    const std::lock_guard lock(announce_mutex_);
    std::uintptr_t head = foreign_.load(std::memory_order_acquire);
    do {
      if ((head & kRefused) == 0 || head == kClosed) return false;
      storage->next = to_pointer(head & ~kRefused);
    } while (!foreign_.compare_exchange_weak(head, to_bits(storage), std::memory_order_acq_rel));
    if (available_callback_) available_callback_();
    return true;
  }

  BlockPoolOptions options_;
  std::atomic<const void*> owner_;
  std::array<SizeClass, kClassBytes.size() + 1> classes_;  // and kHuge
  Counter held_;                                           // from the heap, handed out or cached
  Counter live_;                                           // of these, handed out
  Counter high_water_;
  Counter allocations_;
  Counter refusals_;

  std::atomic<std::uintptr_t> foreign_{0};
  std::atomic<std::int64_t> remaining_{kRemainingBias};  // blocks out once the pool is closed
  std::mutex announce_mutex_;
  unique_function<void()> available_callback_;
};

PooledStorage::PooledStorage(std::size_t capacity, std::uint32_t size_class_in,
                             BlockPool::Core* core_in) noexcept
    : Storage(
          reinterpret_cast<std::byte*>(this) + kDataOffset, capacity, Access::writable,
          [](Storage* self) noexcept {
            auto* storage = static_cast<PooledStorage*>(self);
            storage->core->release(storage);
          },
          BufferKind::pool),
      core(core_in),
      size_class(size_class_in) {}

BlockPool::BlockPool(BlockPoolOptions options) : core_(new Core(options)) {}
BlockPool::~BlockPool() {
  core_->close();
}

Block BlockPool::allocate(std::size_t size) noexcept {
  return core_->allocate(size);
}
bool BlockPool::collect() noexcept {
  return core_->collect();
}
void BlockPool::trim() noexcept {
  core_->trim();
}
void BlockPool::trim_unused() noexcept {
  core_->trim_unused();
}
void BlockPool::set_available_callback(unique_function<void()> callback) {
  core_->set_available_callback(std::move(callback));
}
BlockPoolStatistics BlockPool::statistics() const noexcept {
  return core_->statistics();
}
const BlockPoolOptions& BlockPool::options() const noexcept {
  return core_->options();
}

}  // namespace linkspan
