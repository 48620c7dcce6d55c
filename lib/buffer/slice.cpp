// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/buffer/slice.hpp"

#include <new>

#include "linkspan/buffer/block.hpp"

namespace linkspan {
namespace {

// Keeps a C++ object alive as the owner of memory.
template <class Owner>
struct OwnerStorage final : Storage {
  OwnerStorage(std::size_t capacity, Owner&& owner_in)
      : Storage(capacity, [](Storage* self) noexcept { delete static_cast<OwnerStorage*>(self); }),
        owner(std::move(owner_in)) {}

  Owner owner;
};

// Runs a function when the memory is released. The storage goes first: the function may do anything.
struct CallbackStorage final : Storage {
  CallbackStorage(std::size_t capacity, unique_function<void()> function)
      : Storage(capacity,
                [](Storage* self) noexcept {
                  auto* storage = static_cast<CallbackStorage*>(self);
                  unique_function<void()> run = std::move(storage->callback);
                  delete storage;
                  if (run) run();
                }),
        callback(std::move(function)) {}

  unique_function<void()> callback;
};

Slice whole(std::span<const std::byte> bytes, Storage* storage) noexcept {
  // A Block is the way to a Slice that owns a storage; nobody writes through this one.
  return Block(const_cast<std::byte*>(bytes.data()), bytes.size(), storage).freeze(bytes.size());
}

}  // namespace

Slice Slice::copy(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  Block block = heap_allocator().allocate(bytes.size());
  if (!block) throw std::bad_alloc();
  copy_bytes(block.data(), bytes.data(), bytes.size(), CopyPlace::user);
  return std::move(block).freeze_all(bytes.size());
}

Slice Slice::adopt(std::string&& text) {
  auto* storage = new OwnerStorage<std::string>(text.capacity(), std::move(text));
  return whole(std::as_bytes(std::span(std::as_const(storage->owner))), storage);
}

Slice Slice::adopt(std::vector<std::byte>&& bytes) {
  auto* storage = new OwnerStorage<std::vector<std::byte>>(bytes.capacity(), std::move(bytes));
  return whole(std::as_const(storage->owner), storage);
}

Slice Slice::adopt(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) {
  return whole(bytes, new OwnerStorage<std::shared_ptr<const void>>(bytes.size(), std::move(owner)));
}

Slice Slice::adopt(std::span<const std::byte> bytes, unique_function<void()> free_memory) {
  return whole(bytes, new CallbackStorage(bytes.size(), std::move(free_memory)));
}

}  // namespace linkspan
