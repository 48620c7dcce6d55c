// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/async_files.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "lib/loop/file_operations.hpp"
#include "lib/loop/file_queue.hpp"

namespace linkspan {

using detail::FileOperation;
using detail::FileQueue;
using detail::OpenFile;

// --- AsyncFile

AsyncFile::AsyncFile(std::shared_ptr<FileQueue> queue, std::shared_ptr<OpenFile> file) noexcept
    : queue_(std::move(queue)), file_(std::move(file)) {
  ++file_->users;
}

AsyncFile& AsyncFile::operator=(AsyncFile&& other) noexcept {
  std::swap(queue_, other.queue_);
  std::swap(file_, other.file_);
  return *this;
}

AsyncFile::~AsyncFile() {
  if (file_ != nullptr) queue_->release(std::move(file_));
}

const std::string& AsyncFile::path() const noexcept {
  return file_->path;
}

void AsyncFile::read(Block&& into, std::size_t size, std::uint64_t offset, ReadDone done) {
  queue_->add(
      std::make_shared<detail::ReadFile>(*queue_, file_, std::move(into), size, offset, std::move(done)));
}

void AsyncFile::write(Chain&& data, std::uint64_t offset, WriteDone done) {
  queue_->add(std::make_shared<detail::WriteFile>(*queue_, file_, std::move(data), offset, std::move(done)));
}

void AsyncFile::sync(Done done) {
  queue_->add(std::make_shared<detail::SyncFile>(*queue_, file_, std::move(done)));
}

void AsyncFile::size(SizeDone done) {
  queue_->add(std::make_shared<detail::SizeOfFile>(*queue_, file_, std::move(done)));
}

Result<std::shared_ptr<const File>> AsyncFile::share() const {
  const int descriptor = file_->file ? file_->file->descriptor() : file_->descriptor;
  // One that is not the system's is used as it is.
  if (descriptor < 0) return std::shared_ptr<const File>(file_, file_->file.get());
  const int second = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (second < 0) return Error(system_error_code(errno), "sharing " + file_->path);
  return std::shared_ptr<const File>(adopt_file(second, file_->path));
}

// --- AsyncFiles

AsyncFiles::AsyncFiles(EventLoop& loop) : queue_(std::make_shared<FileQueue>(loop)) {}

AsyncFiles::~AsyncFiles() {
  queue_->loop_gone();
}

void AsyncFiles::open(std::string path, OpenMode mode, OpenDone done) {
  queue_->add(std::make_shared<detail::OpenPath>(*queue_, std::move(path), mode, std::move(done)));
}

void AsyncFiles::rename(std::string from, std::string to, Done done) {
  queue_->add(std::make_shared<detail::RenamePath>(*queue_, std::move(from), std::move(to), std::move(done)));
}

void AsyncFiles::remove(std::string path, Done done) {
  queue_->add(std::make_shared<detail::RemovePath>(*queue_, std::move(path), std::move(done)));
}

void AsyncFiles::create_directories(std::string path, Done done) {
  queue_->add(std::make_shared<detail::HelpWithPath>(*queue_, "creating directory", std::move(path),
                                                     &Files::create_directories, std::move(done)));
}

void AsyncFiles::sync_directory(std::string path, Done done) {
  queue_->add(std::make_shared<detail::HelpWithPath>(*queue_, "fsync of directory", std::move(path),
                                                     &Files::sync_directory, std::move(done)));
}

void AsyncFiles::list_directory(std::string path, ListOptions options, ListDone done) {
  queue_->add(std::make_shared<detail::ListPath>(*queue_, std::move(path), options, std::move(done)));
}

}  // namespace linkspan
