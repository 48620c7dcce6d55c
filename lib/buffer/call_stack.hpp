// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Where a thread is: its number and the innermost return addresses. Only in builds with -Dbuffer_debug=true.
// Taking one costs about a microsecond; names are looked up when it is printed. Systems without execinfo.h
// have no stacks, only threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace linkspan::detail {

class CallStack {
 public:
  CallStack() noexcept = default;
  /// Of the calling thread, from the caller of the caller on: who is interested is called by who is meant.
  [[nodiscard]] static CallStack here() noexcept;

  /// "on thread 7" and then a line a frame: name, file and an offset for addr2line.
  [[nodiscard]] std::string to_string() const;

 private:
  static constexpr int kOwnFrames = 2;  // here() and its caller
  static constexpr int kFrames = 16;

  std::array<void*, kOwnFrames + kFrames> frames_;
  int depth_ = 0;
  std::uint32_t thread_ = 0;
};

}  // namespace linkspan::detail
