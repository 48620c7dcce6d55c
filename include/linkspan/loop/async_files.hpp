// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// AsyncFiles: files for a loop, which never waits for a disk: on io_uring in the loop's own ring, elsewhere,
// and for what the ring cannot do, on the loop's helper threads over the Environment's Files.
// EventLoop::files() gives a loop's.
// Not for: threads that may block (Files), and sending files to sockets (Stream::write_file).
// Cost: an operation is an allocation, and an entry of the ring or a job of a helper thread. Nothing is
// copied.
// Threads: the loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "linkspan/base/result.hpp"
#include "linkspan/base/unique_function.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/loop/event_loop.hpp"
#include "linkspan/loop/files.hpp"

namespace linkspan {

namespace detail {
class FileQueue;
class OpenPath;
struct OpenFile;
}  // namespace detail

/// Completions of all operations run exactly once, on the loop, never inside a call. All may be null but a
/// read's. One that throws is logged and counted. Errors carry the system's code and name the file; besides
/// those there are
/// errc::limit_exceeded: EventLoopOptions::max_file_operations are under way already;
/// errc::cancelled: the loop stops, and the operation had not begun, or not finished by the stop deadline;
/// errc::stopped: the loop was stopping already.
///
/// Operations on one file run at once and in any order: who needs an order starts the next one when the one
/// before has completed.
class LINKSPAN_API AsyncFile {
 public:
  /// Gives the block back, with the first `bytes` filled in; after a failure it holds anything. It is empty
  /// only after errc::cancelled at the stop deadline: then a thread may still be writing to the memory, which
  /// goes back when that is over.
  using ReadDone = unique_function<void(Block block, Result<std::size_t> bytes)>;
  /// `written` is how much is in the file: all of it unless there is an error.
  using WriteDone = unique_function<void(Status status, std::size_t written)>;
  using SizeDone = unique_function<void(Result<std::uint64_t> size)>;
  using Done = unique_function<void(Status status)>;

  AsyncFile() noexcept = default;
  AsyncFile(AsyncFile&&) noexcept = default;
  AsyncFile& operator=(AsyncFile&& other) noexcept;
  /// Closes the file off the loop, after the operations that are under way.
  ~AsyncFile();

  explicit operator bool() const noexcept { return file_ != nullptr; }
  [[nodiscard]] const std::string& path() const noexcept;

  /// Reads `size` bytes from `offset` on into the front of a block that has room for them; fewer only at the
  /// end of the file.
  void read(Block&& into, std::size_t size, std::uint64_t offset, ReadDone done);
  /// Writes all of `data` at `offset`. Its slices are held while they may be read, and no longer.
  void write(Chain&& data, std::uint64_t offset, WriteDone done);
  /// Makes what was written before durable (fsync).
  void sync(Done done);
  void size(SizeDone done);

  /// The same open file for Stream::write_file: a second descriptor, which outlives this handle and is closed
  /// by whoever lets go of it last. Does not wait. Fails with the system's error when there is no descriptor.
  [[nodiscard]] Result<std::shared_ptr<const File>> share() const;

 private:
  friend class detail::OpenPath;

  AsyncFile(std::shared_ptr<detail::FileQueue> queue, std::shared_ptr<detail::OpenFile> file) noexcept;

  std::shared_ptr<detail::FileQueue> queue_;
  std::shared_ptr<detail::OpenFile> file_;
};

/// A loop's access to files. At most EventLoopOptions::max_file_operations are under way, and
/// file_operations_at_once of them begun; the others wait, in order.
class LINKSPAN_API AsyncFiles {
 public:
  using OpenDone = unique_function<void(Result<AsyncFile> file)>;
  using ListDone = unique_function<void(Result<std::vector<DirectoryEntry>> entries)>;
  using Done = AsyncFile::Done;

  explicit AsyncFiles(EventLoop& loop);
  ~AsyncFiles();
  AsyncFiles(const AsyncFiles&) = delete;
  AsyncFiles& operator=(const AsyncFiles&) = delete;

  void open(std::string path, OpenMode mode, OpenDone done);
  /// These five do what Files does.
  void rename(std::string from, std::string to, Done done);
  void remove(std::string path, Done done);
  void create_directories(std::string path, Done done);
  void sync_directory(std::string path, Done done);
  void list_directory(std::string path, ListOptions options, ListDone done);

 private:
  std::shared_ptr<detail::FileQueue> queue_;  // with the open files
};

}  // namespace linkspan
