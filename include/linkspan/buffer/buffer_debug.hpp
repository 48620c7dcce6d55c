// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Who holds which memory: reports of the buffers that are alive, with the call stacks of their allocation and
// of everything that holds them. In a build with -Dbuffer_debug=true; without it these functions are there
// too, count nothing and say so. docs/DEBUGGING.md shows a report.
// Not for: release builds, and not for programs that go on after a broken rule: those abort.
// Cost: none without the option. With it each buffer and each Slice has a record (buffer_trace.hpp).
// Threads: any; a report is exact for the threads that stand still.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "linkspan/buffer/buffer_trace.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/buffer/slice.hpp"

namespace linkspan {

/// What heap and pool blocks are filled with on their release.
inline constexpr std::byte kReleasedByte{0xdd};

#ifdef LINKSPAN_BUFFER_DEBUG

/// How many buffers are alive.
[[nodiscard]] LINKSPAN_API std::size_t live_buffer_count() noexcept;

/// The buffers that are alive, oldest first, as text for people: the first 100 of them, with 16 holders each.
[[nodiscard]] LINKSPAN_API std::string live_buffers();

/// Names what holds a slice's memory in reports ("stream 12 write queue"); the first 31 bytes count.
LINKSPAN_API void label_buffer(const Slice& slice, std::string_view label) noexcept;

/// No buffer outlives it: aborts at its end, with a report, when one that any thread allocated since its
/// beginning is alive. For tests.
class LINKSPAN_API LINKSPAN_BUFFER_ABI BufferScope {
 public:
  BufferScope() noexcept;
  BufferScope(const BufferScope&) = delete;
  BufferScope& operator=(const BufferScope&) = delete;
  ~BufferScope();

  /// Those allocated since its beginning that are alive now.
  [[nodiscard]] std::size_t live_count() const noexcept;
  [[nodiscard]] std::string live() const;

 private:
  std::uint64_t begin_;
};

#else

[[nodiscard]] inline std::size_t live_buffer_count() noexcept {
  return 0;
}
[[nodiscard]] inline std::string live_buffers() {
  return "buffers are not traced: this is not a build with -Dbuffer_debug=true\n";
}
inline void label_buffer(const Slice&, std::string_view) noexcept {}

class BufferScope {
 public:
  BufferScope() noexcept {}  // not defaulted: a scope is a variable that is used
  BufferScope(const BufferScope&) = delete;
  BufferScope& operator=(const BufferScope&) = delete;
  [[nodiscard]] std::size_t live_count() const noexcept { return 0; }
  [[nodiscard]] std::string live() const { return live_buffers(); }
};

#endif

}  // namespace linkspan
