// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/slice.hpp"

#include <new>

#include "lib/base/log_exception.hpp"
#include "linkspan/buffer/block.hpp"

namespace linkspan {
namespace {

using Access = Storage::Access;

// Keeps a container alive as the owner of memory, which nobody else can reach.
template <class Container>
struct ContainerStorage final : Storage {
  explicit ContainerStorage(Container&& container_in)
      : Storage(
            nullptr, container_in.capacity(), Access::writable,
            [](Storage* self) noexcept { delete static_cast<ContainerStorage*>(self); }, BufferKind::adopted),
        container(std::move(container_in)) {
    set_data(reinterpret_cast<const std::byte*>(container.data()));
  }

  Container container;
};

struct ArrayStorage final : Storage {
  ArrayStorage(std::unique_ptr<std::byte[]>&& array_in, std::size_t size) noexcept
      : Storage(
            array_in.get(), size, Access::writable,
            [](Storage* self) noexcept { delete static_cast<ArrayStorage*>(self); }, BufferKind::adopted),
        array(std::move(array_in)) {}

  std::unique_ptr<std::byte[]> array;
};

// Keeps an owner of memory that others may own too.
struct SharedStorage final : Storage {
  SharedStorage(std::span<const std::byte> bytes, std::shared_ptr<const void>&& owner_in) noexcept
      : Storage(
            bytes.data(), bytes.size(), Access::read_only,
            [](Storage* self) noexcept { delete static_cast<SharedStorage*>(self); }, BufferKind::adopted),
        owner(std::move(owner_in)) {}

  std::shared_ptr<const void> owner;
};

// A Block is the way to a Slice that owns a storage; nobody writes through this one.
Slice front_of(Storage* storage, std::size_t size) noexcept {
  return Block(*storage).freeze_all(size);
}

}  // namespace

void detail::completion_threw() noexcept {
  log_exception("buffer", "the completion of adopted or borrowed memory");
}

Slice Slice::copy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  Block block = heap_allocator().allocate(bytes.size());
  if (!block) throw std::bad_alloc();
  copy_bytes(block.data(), bytes.data(), bytes.size(), CopyPlace::user);
  return std::move(block).freeze_all(bytes.size());
}

bool Slice::prepend_in_place(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() > headroom()) return false;
  auto* to = const_cast<std::byte*>(data_) - bytes.size();
  copy_bytes(to, bytes.data(), bytes.size(), CopyPlace::below_threshold);
  data_ = to;
  size_ += bytes.size();
  trace_view();
  return true;
}

Slice Slice::adopt(std::string&& text) {
  const std::size_t size = text.size();
  return front_of(new ContainerStorage<std::string>(std::move(text)), size);
}

Slice Slice::adopt(std::vector<std::byte>&& bytes) {
  const std::size_t size = bytes.size();
  return front_of(new ContainerStorage<std::vector<std::byte>>(std::move(bytes)), size);
}

Slice Slice::adopt(std::unique_ptr<std::byte[]> bytes, std::size_t size) {
  if (bytes == nullptr) return {};
  return front_of(new ArrayStorage(std::move(bytes), size), size);
}

Slice Slice::adopt(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) {
  return front_of(new SharedStorage(bytes, std::move(owner)), bytes.size());
}

}  // namespace linkspan
