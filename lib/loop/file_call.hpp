// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// FileCalls: what an engine can do about files without blocking: one system call at a time, its result later.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "linkspan/buffer/chain.hpp"
#include "linkspan/loop/files.hpp"

namespace linkspan {

/// One system call, and where its result goes. Everything that it refers to stays until then.
struct FileCall {
  enum class Kind : unsigned { open, read, write, sync, size, rename, remove, close };

  explicit FileCall(Kind kind_in) noexcept : kind(kind_in) {}
  FileCall(const FileCall&) = delete;
  FileCall& operator=(const FileCall&) = delete;
  virtual ~FileCall() = default;

  /// A descriptor, bytes or 0; or a negative errno. Comes from a poll of the engine; may start the next call.
  virtual void on_result(int result) noexcept = 0;

  Kind kind;
  int descriptor = -1;
  const char* path = nullptr;     // open, rename, remove
  const char* to_path = nullptr;  // rename
  OpenMode mode = OpenMode::read;
  std::uint64_t offset = 0;
  std::span<std::byte> into;     // read
  const Chain* from = nullptr;   // write; as much of it as fits into one call
  std::uint64_t size_bytes = 0;  // what size finds out, and the next one too
  bool is_directory = false;
};

class FileCalls {
 public:
  [[nodiscard]] virtual bool knows(FileCall::Kind kind) const noexcept = 0;
  virtual void start(FileCall& call) = 0;
  /// Cancels what can be cancelled, and returns when everything has come back.
  virtual void finish_all() = 0;

 protected:
  ~FileCalls() = default;
};

/// For open(2).
[[nodiscard]] constexpr int open_flags(OpenMode mode) noexcept {
  switch (mode) {
    case OpenMode::read: break;
    case OpenMode::create_new: return O_CLOEXEC | O_RDWR | O_CREAT | O_EXCL;
    case OpenMode::open_or_create: return O_CLOEXEC | O_RDWR | O_CREAT;
  }
  return O_CLOEXEC | O_RDONLY;
}
constexpr unsigned kNewFilePermissions = 0644;

}  // namespace linkspan
