// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What storages and their references carry so that a build with -Dbuffer_debug=true can say who holds which
// memory. Without that option these types are empty and their functions do nothing.
// Not for: users of buffers; reports are in buffer_debug.hpp.
// Cost: none without the option. With it 8 bytes a storage, 16 a reference, and for each of both a record, a
// call stack when it begins and when it ends, and a lock.
// Threads: as the types that carry them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "linkspan/base/export.hpp"

// A program and a library that disagree about the option have buffers of different sizes. The tag makes the
// names of everything that has to do with buffers different too, so that such a program does not link.
#ifdef LINKSPAN_BUFFER_DEBUG
#define LINKSPAN_BUFFER_ABI __attribute__((abi_tag("buffer_debug")))
#else
#define LINKSPAN_BUFFER_ABI
#endif

namespace linkspan {

/// Where a storage's memory comes from.
enum class BufferKind : std::uint8_t { heap, pool, page, adopted, borrowed, mapped, other };

#ifdef LINKSPAN_BUFFER_DEBUG
inline constexpr bool kBufferDebug = true;
#else
inline constexpr bool kBufferDebug = false;
#endif

namespace detail {

#ifdef LINKSPAN_BUFFER_DEBUG

struct StorageRecord;
struct HolderRecord;

/// Names a holder without being one. Records are never freed, so a name never dangles; it grows old.
struct HolderName {
  HolderRecord* record = nullptr;  // nullptr: immortal or no memory
  std::uint64_t life = 0;          // which of the record's
};

/// A storage's part: its record, from its construction to its destruction.
class LINKSPAN_API StorageTrace {
 public:
  StorageTrace(BufferKind kind, std::size_t capacity) noexcept;
  StorageTrace(const StorageTrace&) = delete;
  StorageTrace& operator=(const StorageTrace&) = delete;
  ~StorageTrace();

  /// The last owner is gone; heap and pool blocks are filled with kReleasedByte.
  void end(const std::byte* data) noexcept;
  /// Another life begins; checks that nobody has written to the memory meanwhile.
  void revive(const std::byte* data) noexcept;

 private:
  friend class HolderTrace;
  StorageRecord* record_;
};

/// A reference's part: the holder that it is. A move carries it along, also one that copies bytes.
class LINKSPAN_API HolderTrace {
 public:
  HolderTrace() noexcept = default;
  /// The first holder of a storage.
  explicit HolderTrace(const StorageTrace& storage) noexcept;
  /// One more holder of the same storage.
  HolderTrace(const HolderTrace& other) noexcept;
  HolderTrace(HolderTrace&& other) noexcept;
  HolderTrace& operator=(const HolderTrace&) = delete;
  ~HolderTrace();

  void swap(HolderTrace& other) noexcept;
  /// The holder lets go; comes before the storage's count goes down.
  void end() noexcept;
  /// Aborts when the holder has let go already: used after its end, or a copy of its bytes.
  void check() const noexcept;

  // For reports.
  void shows(const std::byte* data, std::size_t size) const noexcept;
  void set_kind(BufferKind kind) const noexcept;
  [[nodiscard]] BufferKind kind() const noexcept;
  [[nodiscard]] HolderName name() const noexcept { return name_; }

 private:
  HolderName name_;
};

#else

class StorageTrace {
 public:
  StorageTrace(BufferKind, std::size_t) noexcept {}
  void end(const std::byte*) noexcept {}
  void revive(const std::byte*) noexcept {}
};

class HolderTrace {
 public:
  HolderTrace() noexcept = default;
  explicit HolderTrace(const StorageTrace&) noexcept {}
  void swap(HolderTrace&) noexcept {}
  void end() noexcept {}
  void check() const noexcept {}
  void shows(const std::byte*, std::size_t) const noexcept {}
  void set_kind(BufferKind) const noexcept {}
};

#endif

}  // namespace detail
}  // namespace linkspan
