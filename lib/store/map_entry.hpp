// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// MapEntry: what a slot of a slab, or a piece of the heap when that is too small, holds of an entry: this
// header, then the key and the bytes of a small value, or the reference of a large one and the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "linkspan/base/clock.hpp"
#include "linkspan/buffer/copy_ledger.hpp"
#include "linkspan/buffer/storage.hpp"

namespace linkspan {

struct MapEntry {
  std::uint64_t version;
  TimePoint expires_at;
  std::uint32_t key_size;
  std::uint32_t value_size;

  static constexpr TimePoint kNever = TimePoint::max();

  [[nodiscard]] static std::size_t bytes_for(std::size_t key, std::size_t value, bool large) noexcept {
    return sizeof(MapEntry) + key + (large ? sizeof(StorageRef) : value);
  }

  [[nodiscard]] std::byte* after() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  [[nodiscard]] std::string_view key(bool large) noexcept {
    const std::byte* at = after() + (large ? sizeof(StorageRef) : 0);
    return {reinterpret_cast<const char*>(at), key_size};
  }
  [[nodiscard]] std::byte* small() noexcept { return after() + key_size; }
  [[nodiscard]] StorageRef& large() noexcept { return *std::launder(reinterpret_cast<StorageRef*>(after())); }

  /// Writes header and key; the value is the caller's to write.
  static MapEntry* make(void* memory, std::string_view entry_key, std::size_t size, bool large) noexcept {
    auto* entry = ::new (memory)
        MapEntry{0, kNever, static_cast<std::uint32_t>(entry_key.size()), static_cast<std::uint32_t>(size)};
    if (large) ::new (static_cast<void*>(entry->after())) StorageRef();
    std::byte* at = entry->after() + (large ? sizeof(StorageRef) : 0);
    entry_key.copy(reinterpret_cast<char*>(at), entry_key.size());
    return entry;
  }

  /// To other memory; this one is forgotten.
  MapEntry* move_to(void* memory, bool is_large) noexcept {
    MapEntry* to = make(memory, key(is_large), value_size, is_large);
    to->version = version;
    to->expires_at = expires_at;
    if (is_large) {
      to->large() = std::move(large());
      large().~StorageRef();
    } else {
      copy_bytes(to->small(), small(), value_size, CopyPlace::compact);
    }
    return to;
  }
};
static_assert(sizeof(MapEntry) == 24);

}  // namespace linkspan
