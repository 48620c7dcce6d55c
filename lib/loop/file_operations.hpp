// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The operations of AsyncFiles: for an engine a call after the other, for a helper thread a call of Files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/loop/file_queue.hpp"
#include "linkspan/buffer/block.hpp"
#include "linkspan/buffer/chain.hpp"
#include "linkspan/loop/async_files.hpp"

namespace linkspan::detail {

class OpenPath final : public FileOperation {
 public:
  OpenPath(FileQueue& queue, std::string path, OpenMode mode, AsyncFiles::OpenDone done);
  Status run(Files& files) override;
  void report(Status status, End end) override;

 private:
  bool take(int result) override;

  std::shared_ptr<OpenFile> opened_;
  AsyncFiles::OpenDone done_;
};

/// On an open file.
class OnFile : public FileOperation {
 protected:
  OnFile(FileQueue& queue, Kind kind, const char* what, std::shared_ptr<OpenFile> open);
};

class ReadFile final : public OnFile {
 public:
  ReadFile(FileQueue& queue, std::shared_ptr<OpenFile> open, Block&& block, std::size_t size,
           std::uint64_t offset, AsyncFile::ReadDone done);
  Status run(Files& files) override;
  void report(Status status, End end) override;

 private:
  bool take(int result) override;

  Block block_;
  std::size_t bytes_ = 0;
  AsyncFile::ReadDone done_;
};

class WriteFile final : public OnFile {
 public:
  WriteFile(FileQueue& queue, std::shared_ptr<OpenFile> open, Chain&& data, std::uint64_t offset,
            AsyncFile::WriteDone done);
  Status run(Files& files) override;
  void report(Status status, End end) override;

 private:
  bool take(int result) override;

  Chain data_;  // what is not written yet
  std::size_t written_ = 0;
  AsyncFile::WriteDone done_;
};

class SyncFile final : public OnFile {
 public:
  SyncFile(FileQueue& queue, std::shared_ptr<OpenFile> open, AsyncFile::Done done);
  Status run(Files& files) override;
  void report(Status status, End end) override;

 private:
  AsyncFile::Done done_;
};

class SizeOfFile final : public OnFile {
 public:
  SizeOfFile(FileQueue& queue, std::shared_ptr<OpenFile> open, AsyncFile::SizeDone done);
  Status run(Files& files) override;
  void report(Status status, End end) override;

 private:
  AsyncFile::SizeDone done_;
};

/// Nobody is told.
class CloseFile final : public FileOperation {
 public:
  CloseFile(FileQueue& queue, std::shared_ptr<OpenFile> open);
  ~CloseFile() override;
  Status run(Files& files) override;
  void report(Status status, End end) override;

 private:
  std::shared_ptr<OpenFile> closing_;
};

/// An operation on a path.
class OnPath : public FileOperation {
 public:
  void report(Status status, End end) override;

 protected:
  OnPath(FileQueue& queue, Kind kind, bool for_engine, const char* what, std::string path,
         AsyncFiles::Done done);

 private:
  AsyncFiles::Done done_;
};

class RenamePath final : public OnPath {
 public:
  RenamePath(FileQueue& queue, std::string from, std::string to, AsyncFiles::Done done);
  Status run(Files& files) override;

 private:
  const std::string from_;
};

class RemovePath final : public OnPath {
 public:
  RemovePath(FileQueue& queue, std::string path, AsyncFiles::Done done);
  Status run(Files& files) override;
};

/// What no engine does.
class HelpWithPath final : public OnPath {
 public:
  using Function = Status (Files::*)(const std::string& path);

  HelpWithPath(FileQueue& queue, const char* what, std::string path, Function function,
               AsyncFiles::Done done);
  Status run(Files& files) override;

 private:
  Function function_;
};

class ListPath final : public FileOperation {
 public:
  ListPath(FileQueue& queue, std::string path, ListOptions options, AsyncFiles::ListDone done);
  Status run(Files& files) override;
  void report(Status status, End end) override;

 private:
  const ListOptions options_;
  std::vector<DirectoryEntry> entries_;
  AsyncFiles::ListDone done_;
};

}  // namespace linkspan::detail
