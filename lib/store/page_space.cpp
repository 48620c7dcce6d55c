// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/store/page_space.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "linkspan/buffer/buffer_debug.hpp"
#include "linkspan/store/store_error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define LINKSPAN_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LINKSPAN_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef LINKSPAN_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace linkspan {
namespace {

// Free pages are out of bounds for AddressSanitizer, and filled in a build that traces buffers.
void allow(std::byte* memory, std::size_t size) noexcept {
#ifdef LINKSPAN_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(memory, size);
#else
  static_cast<void>(memory);
  static_cast<void>(size);
#endif
}

void forbid(std::byte* memory, std::size_t size) noexcept {
  if (kBufferDebug) std::memset(memory, std::to_integer<int>(kReleasedByte), size);
#ifdef LINKSPAN_ADDRESS_SANITIZER
  __asan_poison_memory_region(memory, size);
#else
  static_cast<void>(memory);
  static_cast<void>(size);
#endif
}

// Bits first .. first + count - 1 of one word; count is not 0.
std::uint64_t mask_of(std::size_t first, std::size_t count) noexcept {
  return (~std::uint64_t{0} >> (64 - count)) << first;
}

}  // namespace

bool RunList::append(PageRun run) noexcept {
  if (size_ != 0 && runs_[size_ - 1].first + runs_[size_ - 1].count == run.first) {
    runs_[size_ - 1].count += run.count;
    return true;
  }
  if (size_ == capacity_) {
    auto* more = new (std::nothrow) PageRun[capacity_ * 2];
    if (more == nullptr) return false;
    std::copy_n(runs_, size_, more);  // tidy: moves handles, not bytes
    if (runs_ != inline_.data()) delete[] runs_;
    runs_ = more;
    capacity_ *= 2;
  }
  runs_[size_++] = run;
  return true;
}

void RunList::swap(RunList& other) noexcept {
  const bool is_inline = runs_ == inline_.data();
  const bool other_is_inline = other.runs_ == other.inline_.data();
  std::swap(inline_, other.inline_);
  std::swap(runs_, other.runs_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
  if (other_is_inline) runs_ = inline_.data();
  if (is_inline) other.runs_ = other.inline_.data();
}

Result<std::shared_ptr<PageSpace>> PageSpace::open(std::size_t pages, std::size_t page_bytes,
                                                   std::size_t budget_bytes, HugePages huge_pages) {
  if (!std::has_single_bit(page_bytes) || page_bytes < 4096 || page_bytes > (std::size_t{1} << 20)) {
    return Error(errc::invalid_argument, "page_bytes has to be a power of two from 4096 to 1048576, and is " +
                                             std::to_string(page_bytes));
  }
  constexpr std::size_t kPagesMost = std::numeric_limits<std::uint32_t>::max() - kWordPages;
  if (pages == 0 || pages > kPagesMost) {
    return Error(errc::invalid_argument,
                 "a store has 1 to " + std::to_string(kPagesMost) + " pages, not " + std::to_string(pages));
  }
  PageAllocatorOptions options;
  options.budget_bytes = std::numeric_limits<std::size_t>::max();
  options.huge_pages = huge_pages;
  PageAllocator allocator(options);
  Block mapping = allocator.allocate(pages * page_bytes);
  if (!mapping) {
    return Error(make_error_code(store_errc::out_of_memory),
                 "the system refuses to map " + std::to_string(pages * page_bytes) + " bytes for a store");
  }
  try {
    return std::shared_ptr<PageSpace>(new PageSpace(std::move(mapping), pages, page_bytes, budget_bytes));
  } catch (const std::bad_alloc&) {
    return Error(make_error_code(store_errc::out_of_memory),
                 "no memory to keep account of " + std::to_string(pages) + " pages of a store");
  }
}

PageSpace::PageSpace(Block mapping, std::size_t pages, std::size_t page_bytes, std::size_t budget_bytes)
    : mapping_(std::move(mapping)),
      base_(mapping_.data()),
      pages_(pages),
      page_bytes_(page_bytes),
      budget_bytes_(budget_bytes),
      words_((pages + kWordPages - 1) / kWordPages),
      free_(new Word[words_]),
      free_pages_(pages) {
  for (std::size_t word = 0; word < words_; ++word) {
    const std::size_t bits = std::min(kWordPages, pages - word * kWordPages);
    free_[word].store(mask_of(0, bits), std::memory_order_relaxed);
  }
  // Threads begin at different places, and not so far apart that a small store is touched everywhere.
  const std::size_t apart = std::min<std::size_t>(words_ / kHints, 512);
  for (std::size_t i = 0; i < kHints; ++i) hints_[i].word.store(i * apart, std::memory_order_relaxed);
#ifdef LINKSPAN_ADDRESS_SANITIZER
  __asan_poison_memory_region(base_, pages_ * page_bytes_);
#endif
}

PageSpace::~PageSpace() {
  allow(base_, pages_ * page_bytes_);  // the addresses may be mapped again
}

PageSpace::Hint& PageSpace::own_hint() noexcept {
  static std::atomic<std::size_t> threads{0};
  static thread_local const std::size_t own = threads.fetch_add(1, std::memory_order_relaxed) % kHints;
  return hints_[own];
}

// Calls `f` with each word that has bits of these pages, and with those bits, until it returns false; for how
// many pages it has returned true.
template <class F>
std::size_t PageSpace::for_words(std::size_t first, std::size_t count, F f) const noexcept {
  std::size_t done = 0;
  while (done < count) {
    const std::size_t bit = (first + done) % kWordPages;
    const std::size_t bits = std::min(kWordPages - bit, count - done);
    if (!f(free_[(first + done) / kWordPages], mask_of(bit, bits))) break;
    done += bits;
  }
  return done;
}

bool PageSpace::reserve(std::size_t bytes) noexcept {
  std::size_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > budget_bytes_ || used > budget_bytes_ - bytes) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_acq_rel,
                                              std::memory_order_relaxed));
  return true;
}

// A page counts as free after its bit is set, and as taken before it is cleared: so there are at least as
// many free bits as all who have reserved still look for.
bool PageSpace::reserve_pages(std::size_t pages) noexcept {
  std::size_t free = free_pages_.load(std::memory_order_relaxed);
  do {
    if (free < pages) return false;
  } while (!free_pages_.compare_exchange_weak(free, free - pages, std::memory_order_acquire,
                                              std::memory_order_relaxed));
  return true;
}

// Takes all of these pages, or none: false.
bool PageSpace::claim(std::size_t first, std::size_t count) noexcept {
  const std::size_t done = for_words(first, count, [](Word& word, std::uint64_t mask) {
    std::uint64_t value = word.load(std::memory_order_relaxed);
    do {
      if ((value & mask) != mask) return false;
    } while (!word.compare_exchange_weak(value, value & ~mask, std::memory_order_acquire,
                                         std::memory_order_relaxed));
    return true;
  });
  if (done == count) return true;
  set_free(first, done);
  return false;
}

void PageSpace::set_free(std::size_t first, std::size_t count) noexcept {
  for_words(first, count, [](Word& word, std::uint64_t mask) {
    const std::uint64_t old = word.fetch_or(mask, std::memory_order_release);
    LINKSPAN_ASSERT((old & mask) == 0, "a page is given back once");
    return true;
  });
}

bool PageSpace::taken(PageRun run) const noexcept {
  return for_words(run.first, run.count, [](const Word& word, std::uint64_t mask) {
           return (word.load(std::memory_order_relaxed) & mask) == 0;
         }) == run.count;
}

bool PageSpace::take_run(std::size_t start_word, std::size_t pages, PageRun& run) noexcept {
  std::size_t first = 0;   // of the free pages in a row that end before `page`
  std::size_t length = 0;  // how many they are
  const std::size_t searched = std::min(words_, std::max(kSearchWords, pages / kWordPages * 2));
  for (std::size_t step = 0; step < searched; ++step) {
    const std::size_t index = (start_word + step) % words_;
    if (index == 0) length = 0;  // around the end there is no row
    const std::uint64_t value = free_[index].load(std::memory_order_relaxed);
    if (value == 0) {
      length = 0;
      continue;
    }
    for (std::size_t bit = 0; bit < kWordPages;) {
      const auto zeros = static_cast<std::size_t>(std::countr_zero(value >> bit));
      if (zeros != 0) {
        length = 0;
        bit += std::min(zeros, kWordPages - bit);
        continue;
      }
      const auto ones = static_cast<std::size_t>(std::countr_one(value >> bit));
      if (length == 0) first = index * kWordPages + bit;
      length += ones;
      bit += ones;
      if (length < pages) continue;
      if (claim(first, pages)) {
        run = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(pages)};
        return true;
      }
      length = 0;  // somebody was faster
    }
  }
  return false;
}

bool PageSpace::take_pieces(std::size_t start_word, std::size_t pages, RunList& to) noexcept {
  // Once around for runs of at least a few pages, then for whatever there is.
  for (std::size_t step = 0, least = std::min<std::size_t>(pages, 8); pages != 0; ++step) {
    if (step == words_) least = 1;
    Word& word = free_[(start_word + step) % words_];
    std::uint64_t value = word.load(std::memory_order_relaxed);
    for (std::size_t bit = 0; bit < kWordPages && pages != 0;) {
      bit += static_cast<std::size_t>(std::countr_zero(value >> bit));
      if (bit >= kWordPages) break;
      std::size_t ones = std::min(static_cast<std::size_t>(std::countr_one(value >> bit)), pages);
      const std::size_t first = (start_word + step) % words_ * kWordPages + bit;
      bit += ones;
      if (ones < std::min(least, pages) || !claim(first, ones)) continue;
      if (!to.append({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(ones)})) {
        set_free(first, ones);
        return false;
      }
      pages -= ones;
    }
  }
  return true;
}

bool PageSpace::take(std::size_t pages, RunList& to) noexcept {
  if (!reserve_pages(pages)) return false;
  if (pages == 0) return true;
  std::atomic<std::size_t>& hint = own_hint().word;
  const std::size_t start = hint.load(std::memory_order_relaxed) % words_;
  PageRun run{};
  RunList taken;
  if (take_run(start, pages, run)) {
    static_cast<void>(taken.append(run));  // there is room for two
  } else if (!take_pieces(start, pages, taken)) {
    for (const PageRun& piece : taken.runs()) set_free(piece.first, piece.count);
    free_pages_.fetch_add(pages, std::memory_order_release);
    return false;
  }
  const PageRun& last = taken.runs().back();
  hint.store((last.first + last.count) / kWordPages, std::memory_order_relaxed);
  for (const PageRun& piece : taken.runs()) allow(address(piece.first), piece.count * page_bytes_);
  to = std::move(taken);
  return true;
}

std::byte* PageSpace::take_one(std::size_t& hint) noexcept {
  if (!reserve_pages(1)) return nullptr;
  if (hint >= words_) hint = words_ - 1;
  for (;; hint = (hint == 0 ? words_ : hint) - 1) {
    Word& word = free_[hint];
    std::uint64_t value = word.load(std::memory_order_relaxed);
    while (value != 0) {
      const std::uint64_t highest = std::bit_floor(value);
      if (!word.compare_exchange_weak(value, value & ~highest, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
        continue;
      }
      std::byte* page = address(hint * kWordPages + static_cast<std::size_t>(std::countr_zero(highest)));
      allow(page, page_bytes_);
      return page;
    }
  }
}

void PageSpace::give_back(std::span<const PageRun> runs) noexcept {
  std::atomic<std::size_t>& hint = own_hint().word;
  std::size_t count = 0;
  for (const PageRun& run : runs) {
    LINKSPAN_ASSERT(taken(run), "a page is given back once");
    forbid(address(run.first), run.count * page_bytes_);
    set_free(run.first, run.count);
    count += run.count;
    // Memory that has been touched already is taken again before memory that has not.
    const std::size_t word = run.first / kWordPages;
    if (word < hint.load(std::memory_order_relaxed)) hint.store(word, std::memory_order_relaxed);
  }
  free_pages_.fetch_add(count, std::memory_order_release);
}

void PageSpace::give_back_one(const std::byte* page) noexcept {
  const std::size_t index = static_cast<std::size_t>(page - base_) / page_bytes_;
  forbid(address(index), page_bytes_);
  set_free(index, 1);
  free_pages_.fetch_add(1, std::memory_order_release);
}

namespace detail {

LargeValue::LargeValue(const std::byte* data, std::size_t capacity, Access access,
                       ReleaseFunction release_function, Kind kind_in,
                       const std::shared_ptr<PageSpace>& space_in, std::size_t charge_in) noexcept
    : Storage(data, capacity, access, release_function, BufferKind::page),
      kind(kind_in),
      space(space_in),
      charge(charge_in) {
  space->pinned_bytes.fetch_add(charge, std::memory_order_relaxed);
}

PagesValue::PagesValue(const std::shared_ptr<PageSpace>& space_in, RunList&& runs_in,
                       std::size_t charge_in) noexcept
    : LargeValue(runs_in.runs().empty() ? nullptr : space_in->address(runs_in.runs().front().first),
                 runs_in.page_count() * space_in->page_bytes(), Access::read_only, &release_pages,
                 Kind::pages, space_in, charge_in),
      runs(std::move(runs_in)) {}

void PagesValue::release_pages(Storage* storage) noexcept {
  const std::unique_ptr<PagesValue> value(static_cast<PagesValue*>(storage));
  PageSpace& space = *value->space;
  space.give_back(value->runs.runs());
  value->give_back_charge();
}

AdoptedValue::AdoptedValue(const std::shared_ptr<PageSpace>& space_in, Chain&& chain_in,
                           std::size_t charge_in) noexcept
    : LargeValue(chain_in.empty() ? nullptr : chain_in.front().data(), charge_in, Access::read_only,
                 &release_chain, Kind::adopted, space_in, charge_in),
      chain(std::move(chain_in)) {}

void AdoptedValue::release_chain(Storage* storage) noexcept {
  const std::unique_ptr<AdoptedValue> value(static_cast<AdoptedValue*>(storage));
  value->chain.clear();
  value->give_back_charge();
}

std::size_t pages_charge(const PageSpace& space, std::size_t bytes) noexcept {
  // What the heap adds to an object of that size, about; a value of many runs takes a little more.
  constexpr std::size_t kHeapBytes = 16;
  return space.pages_for(bytes) * space.page_bytes() + sizeof(PagesValue) + kHeapBytes;
}

StorageRef make_pages_value(const std::shared_ptr<PageSpace>& space, std::size_t bytes,
                            std::size_t charge) noexcept {
  RunList runs;
  if (!space->take(space->pages_for(bytes), runs)) return {};
  auto* value = new (std::nothrow) PagesValue(space, std::move(runs), charge);
  if (value == nullptr) {
    space->give_back(runs.runs());
    return {};
  }
  return StorageRef(*value);
}

Chain slices_of(const StorageRef& value, std::size_t size) {
  Chain chain;
  if (static_cast<const LargeValue&>(*value.get()).kind == LargeValue::Kind::adopted) {
    for (const Slice& slice : static_cast<const AdoptedValue&>(*value.get()).chain) {
      chain.append(Slice::over(slice.bytes(), value.share()));
    }
    return chain;
  }
  const auto& pages = static_cast<const PagesValue&>(*value.get());
  for (const PageRun& run : pages.runs.runs()) {
    if (size == 0) break;
    const std::span<std::byte> memory = pages.space->memory(run);
    const std::size_t part = std::min(size, memory.size());
    chain.append(Slice::over(memory.first(part), value.share()));
    size -= part;
  }
  return chain;
}

}  // namespace detail
}  // namespace linkspan
