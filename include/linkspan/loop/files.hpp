// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// Files: blocking file access behind an interface, with what a store needs to be durable: temporary files,
// fsync of files and directories, rename, mappings that are read into memory before they are used.
// Not for: a loop's thread; every call may block on a disk.
// Cost: one or two system calls each. Chains are written with pwritev, without copying.
// Threads: Files may be used from any thread. A File belongs to one thread at a time, but its const
// functions, write_at and sync may be called on several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/buffer/chain.hpp"

namespace linkspan {

/// An open file; closed when destroyed. All errors carry the system's code and name the file.
class LINKSPAN_API File {
 public:
  virtual ~File();

  /// The size now; somebody else may change it.
  [[nodiscard]] virtual Result<std::uint64_t> size() const = 0;
  /// Reads into `to` from `offset` on; fewer bytes than asked for only at the end of the file.
  [[nodiscard]] virtual Result<std::size_t> read_at(std::span<std::byte> to, std::uint64_t offset) const = 0;
  /// Writes all of `chain` at `offset`. `written` says how much of it, also after a failure.
  [[nodiscard]] virtual Status write_at(const Chain& chain, std::uint64_t offset, std::size_t& written) = 0;
  [[nodiscard]] Status write_at(const Chain& chain, std::uint64_t offset) {
    std::size_t written = 0;
    return write_at(chain, offset, written);
  }
  /// Makes contents and size durable (fsync).
  [[nodiscard]] virtual Status sync() = 0;
  /// `size` bytes from `offset` on as a mapped Slice (see map_file for its rules).
  [[nodiscard]] virtual Result<Slice> map(std::uint64_t offset, std::size_t size) const = 0;
  /// Brings the pages of a mapped `slice` into memory, so that whoever reads them does not wait for the disk.
  /// errc::truncated when pages are past the end of the file by now.
  [[nodiscard]] virtual Status populate(const Slice& slice) const = 0;

  /// A small named value kept with the file (an extended attribute); errc::unavailable where the file system
  /// has none, std::nullopt when the file has no such value.
  [[nodiscard]] virtual Status set_attribute(const std::string& name, std::string_view value) = 0;
  [[nodiscard]] virtual Result<std::optional<std::string>> attribute(const std::string& name) const = 0;

  /// False when somebody else holds it already; held until the File is destroyed.
  [[nodiscard]] virtual Result<bool> try_lock() = 0;

  /// For calls that the kernel serves from the file; stays the File's. -1: no file of the system.
  [[nodiscard]] virtual int descriptor() const noexcept;
};

enum class OpenMode {
  read,            ///< an existing file, for reading
  create_new,      ///< a new file, for reading and writing; it must not exist
  open_or_create,  ///< for reading and writing, created when missing
};

enum class FileKind { file, directory, link, other };

/// A name in a directory; a symbolic link is not followed.
struct DirectoryEntry {
  std::string name;
  FileKind kind = FileKind::other;

  friend bool operator==(const DirectoryEntry&, const DirectoryEntry&) = default;
};

struct ListOptions {
  std::size_t max_entries = 10'000;  ///< beyond that listing fails with errc::limit_exceeded

  ListOptions() = default;
  explicit ListOptions(std::size_t max_entries_in) noexcept : max_entries(max_entries_in) {}
};

class LINKSPAN_API Files {
 public:
  virtual ~Files();

  [[nodiscard]] virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) = 0;
  /// Replaces `to` if it exists, in one step.
  [[nodiscard]] virtual Status rename(const std::string& from, const std::string& to) = 0;
  [[nodiscard]] virtual Status remove(const std::string& path) = 0;
  /// Creates `path` and the directories above it where they are missing.
  [[nodiscard]] virtual Status create_directories(const std::string& path) = 0;
  /// Makes renames and removals in a directory durable.
  [[nodiscard]] virtual Status sync_directory(const std::string& path) = 0;
  /// What is in a directory, but for "." and "..", sorted by name.
  [[nodiscard]] virtual Result<std::vector<DirectoryEntry>> list_directory(const std::string& path,
                                                                           ListOptions options) = 0;
};

/// Takes over an open descriptor; `name` is for messages.
[[nodiscard]] LINKSPAN_API std::unique_ptr<File> adopt_file(int descriptor, std::string name);

/// The system's file access; lives for ever.
[[nodiscard]] LINKSPAN_API Files& system_files() noexcept;

}  // namespace linkspan
