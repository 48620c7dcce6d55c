// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/store/page_pool.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "lib/store/page_space.hpp"

namespace linkspan {

Pages::Pages(StorageRef value) noexcept : value_(std::move(value)) {
  if (!value_) return;
  for (const PageRun& run : this->value().runs.runs()) size_ += run.count * this->value().space->page_bytes();
}

detail::PagesValue& Pages::value() const noexcept {
  LINKSPAN_ASSERT(static_cast<bool>(value_), "pages that were refused, frozen or stored are not used");
  return static_cast<detail::PagesValue&>(*value_.get());
}

std::size_t Pages::piece_count() const noexcept {
  return value().runs.runs().size();
}

std::span<std::byte> Pages::piece(std::size_t index) noexcept {
  LINKSPAN_ASSERT(index < piece_count(), "an index is below piece_count()");
  return value().space->memory(value().runs.runs()[index]);
}

Block Pages::block(std::size_t index) noexcept {
  return Block::over(piece(index), value_.share());
}

void Pages::write(std::size_t offset, std::span<const std::byte> bytes) noexcept {
  LINKSPAN_ASSERT(offset <= size_ && bytes.size() <= size_ - offset, "what is written lies in the pages");
  for (const PageRun& run : value().runs.runs()) {
    const std::span<std::byte> memory = value().space->memory(run);
    if (offset >= memory.size()) {
      offset -= memory.size();
      continue;
    }
    const std::size_t part = std::min(bytes.size(), memory.size() - offset);
    copy_bytes(memory.data() + offset, bytes.data(), part, CopyPlace::store);
    bytes = bytes.subspan(part);
    offset = 0;
    if (bytes.empty()) return;
  }
}

void Pages::write(std::size_t offset, const Chain& bytes) noexcept {
  for (const Slice& slice : bytes) {
    write(offset, slice.bytes());
    offset += slice.size();
  }
}

bool Pages::resize(std::size_t bytes) noexcept {
  detail::PagesValue& old = value();
  LINKSPAN_ASSERT(value_.holders() == 1, "pages are resized by their only owner");
  PageSpace& space = *old.space;
  const std::size_t had = size_ / space.page_bytes();
  const std::size_t wanted = space.pages_for(bytes);
  if (wanted == had) return true;

  RunList runs;
  std::size_t kept = 0;
  for (const PageRun& run : old.runs.runs()) {
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(run.count, wanted - kept));
    if (part != 0 && !runs.append({run.first, part})) return false;
    kept += part;
  }
  const std::size_t more = (wanted - kept) * space.page_bytes();
  if (!space.reserve(more)) return false;
  RunList taken;
  bool grown = space.take(wanted - kept, taken);
  for (const PageRun& run : taken.runs()) grown = grown && runs.append(run);
  const std::size_t charge = old.charge - (had - kept) * space.page_bytes() + more;
  auto* value = grown ? new (std::nothrow) detail::PagesValue(old.space, std::move(runs), charge) : nullptr;
  if (value == nullptr) {
    space.give_back(taken.runs());
    space.unreserve(more);
    return false;
  }
  // What the old owner keeps is what the new one has not: it gives that back now.
  space.pinned_bytes.fetch_sub(charge - more, std::memory_order_relaxed);
  old.charge -= charge - more;
  std::size_t skipped = 0;
  for (PageRun& run : old.runs.runs()) {
    const auto part = static_cast<std::uint32_t>(std::min<std::size_t>(run.count, kept - skipped));
    skipped += part;
    run = {run.first + part, run.count - part};
  }
  value_ = StorageRef(*value);
  size_ = wanted * space.page_bytes();
  return true;
}

Chain Pages::freeze(std::size_t size) && {
  LINKSPAN_ASSERT(size <= size_, "frozen bytes are inside the pages");
  static_cast<void>(value());
  Chain chain = detail::slices_of(value_, size);
  value_ = StorageRef();
  size_ = 0;
  return chain;
}

Result<PagePool> PagePool::open(PagePoolOptions options) {
  const std::size_t pages = options.page_bytes != 0 ? options.bytes / options.page_bytes : 0;
  Result<std::shared_ptr<PageSpace>> space =
      PageSpace::open(pages, options.page_bytes, std::numeric_limits<std::size_t>::max(), options.huge_pages);
  if (!space) return space.error();
  return PagePool(std::move(space).value());
}

PagePool::PagePool(std::shared_ptr<PageSpace> space) noexcept : space_(std::move(space)) {}
PagePool::PagePool(PagePool&&) noexcept = default;
PagePool& PagePool::operator=(PagePool&&) noexcept = default;
PagePool::~PagePool() = default;

Pages PagePool::allocate(std::size_t bytes) noexcept {
  const std::size_t charge = detail::pages_charge(*space_, bytes);
  if (space_->pages_for(bytes) > space_->pages() || !space_->reserve(charge)) return {};
  StorageRef value = detail::make_pages_value(space_, bytes, charge);
  if (!value) space_->unreserve(charge);
  return Pages(std::move(value));
}

std::size_t PagePool::page_bytes() const noexcept {
  return space_->page_bytes();
}

PagePoolStatistics PagePool::statistics() const noexcept {
  return {space_->pages(), space_->free_pages()};
}

}  // namespace linkspan
