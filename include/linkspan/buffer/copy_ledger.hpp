// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The copy ledger: every byte that the library itself copies in user space is counted, by place and by
// thread, in release builds too. "No payload byte was copied" is a number that tests assert. What is encoded
// in place (a length, a protobuf skeleton) is not a copy; what the kernel copies is not ours.
// Not for: copies that a user's own code makes.
// Cost: a thread-local look-up and one plain add per copy.
// Threads: each thread counts for itself; reading is safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "linkspan/base/counter.hpp"
#include "linkspan/base/intrusive_list.hpp"

namespace linkspan {

/// Where a copy happened.
enum class CopyPlace : std::uint8_t {
  framing,          ///< a codec put frames together or took them apart
  marshal,          ///< a marshaller copied what could have been referenced
  write,            ///< a transport flattened data on its way out
  receive,          ///< a small receive was copied out so that its large buffer could stay
  receive_into,     ///< memory to receive into was given after its bytes had come
  below_threshold,  ///< a piece so small that copying is cheaper than a reference
  unshare,          ///< memory was shared and somebody asked to write to it
  file,             ///< a file that the kernel cannot send from was read
  compact,          ///< memory that a few bytes kept was given up: Chain::compact, slabs of a store
  store,            ///< a store took a value into its memory, or a small one out of it
  collected,        ///< a BufferedWriter collected a small write in its pool
  user,             ///< the caller asked for a copy: Slice::copy, Chain::to_string, Cursor::copy_to, ...
};
inline constexpr std::size_t kCopyPlaces = 12;

[[nodiscard]] LINKSPAN_API std::string_view to_string(CopyPlace place) noexcept;

/// Bytes copied, by place.
struct CopyCounts {
  std::array<std::uint64_t, kCopyPlaces> bytes{};

  [[nodiscard]] std::uint64_t operator[](CopyPlace place) const noexcept {
    return bytes[static_cast<std::size_t>(place)];
  }
  [[nodiscard]] std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : bytes) sum += count;
    return sum;
  }
  CopyCounts& operator+=(const CopyCounts& other) noexcept {
    for (std::size_t i = 0; i < kCopyPlaces; ++i) bytes[i] += other.bytes[i];
    return *this;
  }
  CopyCounts& operator-=(const CopyCounts& other) noexcept {
    for (std::size_t i = 0; i < kCopyPlaces; ++i) bytes[i] -= other.bytes[i];
    return *this;
  }
  friend CopyCounts operator-(CopyCounts a, const CopyCounts& b) noexcept { return a -= b; }
};

/// One thread's part of the ledger; lives as long as the thread.
class CopyLedger : public ListNode<> {
 public:
  [[nodiscard]] LINKSPAN_API static CopyLedger& this_thread() noexcept;
  /// All threads, those that have ended included.
  [[nodiscard]] LINKSPAN_API static CopyCounts total() noexcept;

  [[nodiscard]] LINKSPAN_API CopyCounts counts() const noexcept;

 private:
  friend void count_copied(std::size_t size, CopyPlace place) noexcept;
  struct Registry;

  CopyLedger() noexcept;
  ~CopyLedger();

  std::array<Counter, kCopyPlaces> bytes_;
};

/// The one function that copies payload bytes inside the library.
LINKSPAN_API void copy_bytes(void* to, const void* from, std::size_t size, CopyPlace place) noexcept;

/// Counts a copy that the kernel has made for us although the library exists to do without: a read of a file.
LINKSPAN_API void count_copied(std::size_t size, CopyPlace place) noexcept;

/// What all threads copied since construction: `CopyScope scope; ...; CHECK(scope.copied().total() == 0);`
class CopyScope {
 public:
  CopyScope() noexcept : start_(CopyLedger::total()) {}
  [[nodiscard]] CopyCounts copied() const noexcept { return CopyLedger::total() - start_; }

 private:
  CopyCounts start_;
};

}  // namespace linkspan
