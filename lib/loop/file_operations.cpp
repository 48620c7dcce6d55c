// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "lib/loop/file_operations.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "linkspan/base/assert.hpp"

namespace linkspan::detail {

// --- open and close

OpenPath::OpenPath(FileQueue& queue, std::string path_in, OpenMode mode_in, AsyncFiles::OpenDone done)
    : FileOperation(queue, Kind::open, queue.engine_opens(), "opening", std::move(path_in)),
      opened_(std::make_shared<OpenFile>(path_)),
      done_(std::move(done)) {
  mode = mode_in;
}

Status OpenPath::run(Files& files) {
  Result<std::unique_ptr<File>> made = files.open(path_, mode);
  if (!made) return made.error();
  opened_->file = std::move(made).value();
  return std::monostate();
}

bool OpenPath::take(int result) {
  if (kind == Kind::open) {
    opened_->descriptor = descriptor = result;
    kind = Kind::size;  // since a directory can be opened, but not read
    return true;
  }
  if (is_directory) outcome = Error(system_error_code(EISDIR), "opening " + path_);
  return false;
}

void OpenPath::report(Status status, End end) {
  AsyncFiles::OpenDone done = std::move(done_);
  if (end == End::abandoned) {
    if (done) done(status.error());
    return;
  }
  AsyncFile handle(queue_.shared_from_this(), std::move(opened_));
  if (!done) return;
  if (status) {
    done(std::move(handle));
  } else {
    done(status.error());
  }
}

CloseFile::CloseFile(FileQueue& queue, std::shared_ptr<OpenFile> open)
    : FileOperation(queue, Kind::close, open->descriptor >= 0, "closing", open->path),
      closing_(std::move(open)) {
  descriptor = std::exchange(closing_->descriptor, -1);
}

CloseFile::~CloseFile() {
  if (descriptor >= 0) ::close(descriptor);
}

Status CloseFile::run(Files&) {
  closing_.reset();
  return std::monostate();
}

void CloseFile::report(Status status, End) {
  // Whatever close(2) says, it has closed; our own errors say that it was not called.
  if (status || status.error().code.category() == std::system_category()) descriptor = -1;
}

// --- on an open file

OnFile::OnFile(FileQueue& queue, Kind kind_in, const char* what, std::shared_ptr<OpenFile> open)
    : FileOperation(queue, kind_in, open->descriptor >= 0, what, open->path) {
  descriptor = open->descriptor;
  file = std::move(open);
}

ReadFile::ReadFile(FileQueue& queue, std::shared_ptr<OpenFile> open, Block&& block, std::size_t size,
                   std::uint64_t offset_in, AsyncFile::ReadDone done)
    : OnFile(queue, Kind::read, "reading", std::move(open)),
      block_(std::move(block)),
      done_(std::move(done)) {
  LINKSPAN_ASSERT(static_cast<bool>(done_), "who reads takes what was read");
  LINKSPAN_ASSERT(size <= block_.size(), "what is read fits into the block");
  into = block_.writable().first(size);
  offset = offset_in;
}

Status ReadFile::run(Files&) {
  Result<std::size_t> read = file->file->read_at(into, offset);
  if (!read) return read.error();
  bytes_ = read.value();
  return std::monostate();
}

bool ReadFile::take(int result) {
  const auto bytes = static_cast<std::size_t>(result);
  bytes_ += bytes;
  offset += bytes;
  into = into.subspan(bytes);
  return bytes != 0 && !into.empty();
}

void ReadFile::report(Status status, End end) {
  AsyncFile::ReadDone done = std::move(done_);
  if (end == End::abandoned) return done(Block(), status.error());
  if (!status) return done(std::move(block_), status.error());
  done(std::move(block_), bytes_);
}

WriteFile::WriteFile(FileQueue& queue, std::shared_ptr<OpenFile> open, Chain&& data, std::uint64_t offset_in,
                     AsyncFile::WriteDone done)
    : OnFile(queue, Kind::write, "writing", std::move(open)), data_(std::move(data)), done_(std::move(done)) {
  from = &data_;
  offset = offset_in;
}

Status WriteFile::run(Files&) {
  return file->file->write_at(data_, offset, written_);
}

bool WriteFile::take(int result) {
  const auto bytes = static_cast<std::size_t>(result);
  written_ += bytes;
  offset += bytes;
  data_.drop_front(bytes);
  if (bytes == 0 && !data_.empty()) outcome = Error(system_error_code(EIO), "writing " + path_);
  return bytes != 0 && !data_.empty();
}

void WriteFile::report(Status status, End end) {
  AsyncFile::WriteDone done = std::move(done_);
  std::size_t written = 0;
  if (end == End::finished) {
    data_.clear();
    written = written_;
  }
  if (done) done(std::move(status), written);
}

SyncFile::SyncFile(FileQueue& queue, std::shared_ptr<OpenFile> open, AsyncFile::Done done)
    : OnFile(queue, Kind::sync, "fsync of", std::move(open)), done_(std::move(done)) {}

Status SyncFile::run(Files&) {
  return file->file->sync();
}

void SyncFile::report(Status status, End) {
  if (AsyncFile::Done done = std::move(done_)) done(std::move(status));
}

SizeOfFile::SizeOfFile(FileQueue& queue, std::shared_ptr<OpenFile> open, AsyncFile::SizeDone done)
    : OnFile(queue, Kind::size, "size of", std::move(open)), done_(std::move(done)) {}

Status SizeOfFile::run(Files&) {
  Result<std::uint64_t> size = file->file->size();
  if (!size) return size.error();
  size_bytes = size.value();
  return std::monostate();
}

void SizeOfFile::report(Status status, End) {
  AsyncFile::SizeDone done = std::move(done_);
  if (!done) return;
  if (status) {
    done(size_bytes);
  } else {
    done(status.error());
  }
}

// --- on a path

OnPath::OnPath(FileQueue& queue, Kind kind_in, bool for_engine_in, const char* what, std::string path_in,
               AsyncFiles::Done done)
    : FileOperation(queue, kind_in, for_engine_in, what, std::move(path_in)), done_(std::move(done)) {}

void OnPath::report(Status status, End) {
  if (AsyncFiles::Done done = std::move(done_)) done(std::move(status));
}

RenamePath::RenamePath(FileQueue& queue, std::string from_in, std::string to, AsyncFiles::Done done)
    : OnPath(queue, Kind::rename, true, "renaming to", std::move(to), std::move(done)),
      from_(std::move(from_in)) {
  path = from_.c_str();
  to_path = path_.c_str();
}

Status RenamePath::run(Files& files) {
  return files.rename(from_, path_);
}

RemovePath::RemovePath(FileQueue& queue, std::string path_in, AsyncFiles::Done done)
    : OnPath(queue, Kind::remove, true, "removing", std::move(path_in), std::move(done)) {}

Status RemovePath::run(Files& files) {
  return files.remove(path_);
}

HelpWithPath::HelpWithPath(FileQueue& queue, const char* what, std::string path_in, Function function,
                           AsyncFiles::Done done)
    : OnPath(queue, Kind::sync, false, what, std::move(path_in), std::move(done)), function_(function) {}

Status HelpWithPath::run(Files& files) {
  return (files.*function_)(path_);
}

ListPath::ListPath(FileQueue& queue, std::string path_in, ListOptions options, AsyncFiles::ListDone done)
    : FileOperation(queue, Kind::sync, false, "listing", std::move(path_in)),
      options_(options),
      done_(std::move(done)) {}

Status ListPath::run(Files& files) {
  Result<std::vector<DirectoryEntry>> entries = files.list_directory(path_, options_);
  if (!entries) return entries.error();
  entries_ = std::move(entries).value();
  return std::monostate();
}

void ListPath::report(Status status, End) {
  AsyncFiles::ListDone done = std::move(done_);
  if (!done) return;
  if (status) {
    done(std::move(entries_));
  } else {
    done(status.error());
  }
}

}  // namespace linkspan::detail
